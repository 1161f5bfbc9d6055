"""What the server refused lately. Not persisted: a new process simply asks again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from trainyard.lifecycle.observed import Conflict, Refusal
from trainyard.workloads.resources import Resource

_Name = tuple[Resource, str]


class Memory:
    """Refused creations and taken names, per job UID. `now` is the wall clock."""

    def __init__(self, now: Callable[[], datetime], conflict_seconds: float) -> None:
        self._now = now
        self._conflict_time = timedelta(seconds=conflict_seconds)
        self._refusals: dict[str, dict[_Name, Refusal]] = {}
        self._conflicts: dict[str, dict[_Name, tuple[Conflict, datetime]]] = {}

    def refused(self, uid: str, resource: Resource, name: str, code: int, message: str) -> None:
        """A creation was refused for a reason that trying again at once does not change."""
        refusals = self._refusals.setdefault(uid, {})
        before = refusals.get((resource, name))
        count = before.count + 1 if before else 1
        refusals[resource, name] = Refusal(resource, name, code, message, self._now(), count)

    def taken(self, uid: str, resource: Resource, name: str, owner: str) -> None:
        """A name is held by an object that is not the job's."""
        conflict = Conflict(resource, name, owner)
        until = self._now() + self._conflict_time
        self._conflicts.setdefault(uid, {})[resource, name] = (conflict, until)

    def created(self, uid: str, resource: Resource, name: str) -> None:
        """A creation succeeded."""
        for notes in (self._refusals, self._conflicts):
            if uid in notes:
                notes[uid].pop((resource, name), None)
                if not notes[uid]:
                    del notes[uid]

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._refusals.pop(uid, None)
        self._conflicts.pop(uid, None)

    def refusals(self, uid: str) -> tuple[Refusal, ...]:
        """Refused creations of a job."""
        return tuple(self._refusals.get(uid, {}).values())

    def conflicts(self, uid: str) -> tuple[Conflict, ...]:
        """Names that were seen to be taken lately."""
        now = self._now()
        known = self._conflicts.get(uid)
        if not known:
            return ()
        current = {name: note for name, note in known.items() if note[1] > now}
        if current:
            self._conflicts[uid] = current
        else:
            del self._conflicts[uid]
        return tuple(conflict for conflict, _ in current.values())

    def next_expiry(self, uid: str) -> datetime | None:
        """When a taken name should be tried again."""
        return min((until for _, until in self._conflicts.get(uid, {}).values()), default=None)
