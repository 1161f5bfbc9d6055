"""Kueue in the modelled cluster: takes its turn a little after every change."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from tests.queueing.kueue import FLAVOR, PLURAL, Invalid, Kueue
from tests.simulation.server import Change, Key, ModelServer, Obj, Observer, Refused

_IDLE_SECONDS = 1.0


@dataclass(slots=True)
class Queues(Observer):
    """Kueue with one LocalQueue, whose webhook reviews what others write."""

    server: ModelServer
    rng: random.Random
    loop: asyncio.AbstractEventLoop
    kueue: Kueue
    is_due: bool = field(default=False)

    def start(self) -> None:
        """From now on jobs are queued."""
        self.server.reviews[PLURAL] = self._review
        self.server.create("resourceflavors", "", FLAVOR)
        self._tick()

    def changed(self, plural: str, change: Change) -> None:
        """Take a turn soon."""
        if plural == PLURAL and not self.is_due:
            self.is_due = True
            self.loop.call_later(self.rng.uniform(0.001, 0.5), self._turn)

    def _tick(self) -> None:
        """What depends on the time alone."""
        self._turn()
        self.loop.call_later(_IDLE_SECONDS, self._tick)

    def _turn(self) -> None:
        self.is_due = False
        now = self.server.now().replace(microsecond=0)
        for each in list(self.kueue.turn(self.server.all(PLURAL), now)):
            metadata = each["metadata"]
            key = Key(PLURAL, metadata["namespace"], metadata["name"])
            self.server.set(key, spec=each["spec"], status=each["status"])

    def _review(self, old: Obj | None, new: Obj) -> None:
        try:
            self.kueue.review(old, new)
        except Invalid as problem:
            raise Refused(
                403, "Forbidden", f"vworkload.kb.io denied the request: {problem}"
            ) from None
