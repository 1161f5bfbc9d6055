"""Rules of `runPolicy.restartMode` (decision 283)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from trainyard.kinds.shared.run_policy import RestartScope
from trainyard.schema.problems import Path, Problem, error

_PATH: Path = ("spec", "runPolicy", "restartMode")


def check_in_place(
    scopes: Collection[RestartScope | None],
    *,
    is_elastic: bool,
    agents_stay: bool,
    without_command: Iterable[Path],
) -> Iterator[Problem]:
    """What only new pods can restart, of a job whose `restartMode` is InPlace.

    `scopes` are those of the job and of its replica types. `agents_stay`: launchers that live on
    take new pods in. `without_command`: containers that run their image's own command.
    """
    if is_elastic:
        yield error(_PATH, "cannot be InPlace: replicas of an elastic job come and go")
    if "Replica" in scopes:
        yield error(_PATH, "cannot be InPlace: a replica that restarts alone gets a new pod")
    elif agents_stay:
        why = "with maxRestarts the agents that live on take new pods in"
        yield error(_PATH, f"cannot be InPlace: {why}; set runPolicy.restartScope to Job")
    for path in without_command:
        text = "is required with restartMode InPlace: an image's own cannot be started again"
        yield error((*path, "command"), text)
