"""Checks the queue that an object names.

As long as users have created no queue, a queue is created for any name (decision 39). Once they
have, a name without a queue is a mistake (decision 86).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from trainyard.embedded.api_errors import StatusCause
from trainyard.embedded.resources.resource import Object
from trainyard.kube.embedded_contract import IMPLICIT


def is_implicit(queue: Object) -> bool:
    """Whether the scheduler created a queue and no user has changed its spec."""
    metadata = queue["metadata"]
    marked = IMPLICIT in (metadata.get("annotations") or ())
    return marked and metadata.get("generation", 1) == 1


def unknown_queue(
    obj: Object, path: Sequence[str], queues: Iterable[Object], default: str
) -> StatusCause | None:
    """Why the queue that an object names at a path cannot be used; None if it can.

    `queues` are those that exist, `default` the name that is always valid.
    """
    wanted = named_queue(obj, path)
    present = list(queues)
    known = sorted(queue["metadata"]["name"] for queue in present)
    if wanted in ("", default, *known) or all(map(is_implicit, present)):
        return None
    close = get_close_matches(wanted, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    text = f'Not found: "{wanted}": there is no such queue among {", ".join(known)}{hint}'
    return StatusCause(".".join(path), text, "FieldValueNotFound")


def named_queue(obj: Object, path: Sequence[str]) -> str:
    """The queue that an object names at a path, or ""."""
    value: object = obj
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""
