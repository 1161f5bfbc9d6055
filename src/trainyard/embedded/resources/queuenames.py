"""Names of queues: which queues somebody made by hand, and jobs that name none of them.

Where nobody made any, a name is enough to have a queue (decision 39). Where somebody did, a name
that no queue has is a mistake (decision 86).
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from trainyard.embedded.api_errors import Cause
from trainyard.embedded.resources.resource import Object
from trainyard.kinds.shared import labels

_PATH = ("spec", "scheduler", "t9kScheduler", "queue")


def is_implicit(queue: Object) -> bool:
    """The scheduler made it, and nobody has changed its spec since."""
    metadata = queue["metadata"]
    marked = labels.IMPLICIT in (metadata.get("annotations") or ())
    return marked and metadata.get("generation", 1) == 1


def unknown_queue(job: Object, queues: Iterable[Object]) -> Cause | None:
    """What is wrong with the queue that a job names; None if it may be had."""
    wanted = named_queue(job)
    present = list(queues)
    known = sorted(queue["metadata"]["name"] for queue in present)
    if wanted in ("", labels.DEFAULT_QUEUE, *known) or all(map(is_implicit, present)):
        return None
    close = get_close_matches(wanted, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    text = f'Not found: "{wanted}": there is no such queue among {", ".join(known)}{hint}'
    return Cause(".".join(_PATH), text, "FieldValueNotFound")


def named_queue(job: Object) -> str:
    """The queue that a job names, or ""."""
    value: object = job
    for key in _PATH:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""
