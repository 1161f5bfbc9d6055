"""`trainyard.run`: a client for one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, Unpack, overload

from trainyard.api.job_manifests import Manifest
from trainyard.api.options import RunOptions, ScriptOptions
from trainyard.api.sync_client import Client
from trainyard.client.job_follower import Screen
from trainyard.client.job_view import Job

T = TypeVar("T")


@overload
def run(
    what: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    screen: Screen | None = None,
    **options: Unpack[RunOptions],
) -> T: ...


@overload
def run(
    what: Manifest | Iterable[Manifest],
    args: Sequence[Any] = (),
    *,
    snapshot: bool = False,
    screen: Screen | None = None,
    **options: Unpack[ScriptOptions],
) -> list[Job]: ...


def run(what: Any, *args: Any, **options: Any) -> Any:
    """As `Client.run`, on the embedded cluster that is up, or else on one for this call alone."""
    with Client() as client:
        return client.run(what, *args, **options)
