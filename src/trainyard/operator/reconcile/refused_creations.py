"""Which creations the server refused lately, and which names are taken by others.

Not persisted: a new process simply tries again (decision 26).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from trainyard.kube.resources import Resource
from trainyard.lifecycle.observed import Conflict, Refusal

_Name = tuple[Resource, str]


class RefusedCreations:
    """Refused creations and taken names, by job UID. `now` is the wall clock.

    A taken name is tried again after `retry_min_seconds`, then twice as late each time, up to
    `retry_max_seconds`: its holder may be a remnant of a deleted job of the same name.
    """

    def __init__(
        self, now: Callable[[], datetime], retry_min_seconds: float, retry_max_seconds: float
    ) -> None:
        self._now = now
        self._retry_min = retry_min_seconds
        self._retry_max = retry_max_seconds
        self._refusals: dict[str, dict[_Name, Refusal]] = {}
        self._conflicts: dict[str, dict[_Name, tuple[Conflict, float]]] = {}

    def record_refusal(
        self, uid: str, resource: Resource, name: str, code: int, message: str
    ) -> None:
        """Note a creation that was refused for a reason that an immediate retry does not change."""
        refusals = self._refusals.setdefault(uid, {})
        before = refusals.get((resource, name))
        count = before.count + 1 if before else 1
        refusals[resource, name] = Refusal(resource, name, code, message, self._now(), count)

    def record_conflict(self, uid: str, resource: Resource, name: str, owner: str) -> None:
        """Note a name that is taken by an object which is not the job's."""
        conflicts = self._conflicts.setdefault(uid, {})
        before = conflicts.get((resource, name))
        delay = min(before[1] * 2, self._retry_max) if before else self._retry_min
        until = self._now() + timedelta(seconds=delay)
        conflicts[resource, name] = (Conflict(resource, name, owner, until), delay)

    def clear(self, uid: str, resource: Resource, name: str) -> None:
        """Forget what was noted of an object: it was created."""
        for notes in (self._refusals, self._conflicts):
            if uid in notes:
                notes[uid].pop((resource, name), None)
                if not notes[uid]:
                    del notes[uid]

    def clear_existing(self, uid: str, names: Iterable[_Name]) -> None:
        """Forget what was noted of objects that exist: an earlier creation may arrive late."""
        if uid in self._refusals or uid in self._conflicts:
            for resource, name in names:
                self.clear(uid, resource, name)

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._refusals.pop(uid, None)
        self._conflicts.pop(uid, None)

    def refusals_of(self, uid: str) -> tuple[Refusal, ...]:
        """The refused creations of a job."""
        return tuple(self._refusals.get(uid, {}).values())

    def conflicts_of(self, uid: str) -> tuple[Conflict, ...]:
        """The names of a job that were found to be taken."""
        return tuple(conflict for conflict, _ in self._conflicts.get(uid, {}).values())


def describe_holder(raw: Mapping[str, Any]) -> str:
    """Describe what has a name: the controller of the object if it has one, else the object."""
    metadata = raw["metadata"]
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            return f"{reference['kind']} {reference['name']}"
    return f"{raw.get('kind', 'object')} {metadata.get('namespace', '')}/{metadata['name']}"
