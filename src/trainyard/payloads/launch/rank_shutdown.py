"""Ends the training on one replica: each rank is asked once, and without delay (decision 97).

Asking is SIGTERM. Whom: the first processes below ours that are no mere launchers, since what a
rank has below it, such as loaders of data, is its own business and lives as long as it does. What
such a process leaves behind is asked when it has gone. A process that only reads what another one
of the training writes (``| tee log``) ends with its input. Launchers that would signal their ranks
again are held (SIGSTOP) meanwhile. Mounted into the user's image: standard library, Python 3.8.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trainyard.payloads import processes
from trainyard.payloads.processes import CONNECTION, FORWARDER, OURS, RANK, SHELL

if TYPE_CHECKING:
    ProcessIdentity = tuple[int, int]

CARRIERS_SECONDS = 2.0
"""How much longer than the ranks the processes have that lead to them, to report their end."""


LAST_OUTPUT_SECONDS = 1.0
"""How long a launcher has for its own end when its ranks have gone."""


class TrainingProcess(NamedTuple):
    """A process of the training, and its part in it."""

    process: processes.Process
    part: str

    @property
    def identity(self) -> ProcessIdentity:
        """Which process it is, whoever has its number later."""
        return self.process.pid, self.process.started


def training_processes(root: int, run: Path) -> list[TrainingProcess]:
    """Every living process below ``root`` that is not of the launch itself, parents first."""
    everything = processes.all_processes()
    tree = processes.children_of(everything)
    parts = {pid: processes.part_of(pid, run) for pid in processes.descendants(root, tree)}
    # A connection would end with the shell that some systems keep above what it runs.
    for pid in [pid for pid, part in parts.items() if part == OURS]:
        above = everything[pid].parent
        while above in parts and parts[above] == SHELL:
            parts[above] = OURS
            above = everything[above].parent
    found, waiting = [], [root]
    while waiting:
        children = [everything[pid] for pid in tree.get(waiting.pop(), [])]
        waiting += [child.pid for child in children]
        alive = (child for child in children if not child.is_dead)
        found += [
            TrainingProcess(child, parts[child.pid]) for child in alive if parts[child.pid] != OURS
        ]
    return found


class RankShutdown:
    """Ends the training below this process, and remembers which processes it has asked."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.kill_at = 0.0
        self.ranks_ended_at = 0.0
        """Since when there is nobody to be asked or awaited; 0 while there is."""
        self.asked: set[ProcessIdentity] = set()
        self.helpers: dict[ProcessIdentity, ProcessIdentity] = {}
        """What those that were asked, or others below them, had forked, and who had."""

    @property
    def active(self) -> bool:
        """Whether somebody is being ended."""
        return self.kill_at > 0

    def begin(self, seconds: float) -> None:
        """End all that is there, by force after ``seconds``; what was promised before stays."""
        self.kill_at = max(self.kill_at, time.monotonic() + seconds)

    def step(self) -> bool:
        """Do what is due now; return whether the training has ended.

        Call it again every few hundredths of a second until it has.
        """
        everyone = training_processes(os.getpid(), self.run)
        below: list[TrainingProcess] = []
        candidates = self._candidates(everyone, below)
        self._end_helpers(everyone, below)
        has_asked = any(member.identity in self.asked for member in everyone)
        for member in self._readers_last(candidates, everyone, has_asked):
            self._ask(member)
        now = time.monotonic()
        if candidates or has_asked:
            self.ranks_ended_at = 0.0
        else:
            self.ranks_ended_at = self.ranks_ended_at or now
        for member in everyone:
            if now >= self._ends_at(member.part, everyone):
                send_signal(member.process.pid, signal.SIGKILL)
        if not everyone:
            self.kill_at = 0.0
            self.asked, self.helpers = set(), {}
        return not everyone

    def _ends_at(self, part: str, everyone: list[TrainingProcess]) -> float:
        """When a process of this part is killed."""
        if part in (SHELL, RANK):
            return self.kill_at
        if part == FORWARDER and self.ranks_ended_at:
            return 0.0
        # What leads to other replicas ends with what it leads to.
        if self.ranks_ended_at and all(member.part != CONNECTION for member in everyone):
            return self.ranks_ended_at + LAST_OUTPUT_SECONDS
        return self.kill_at + CARRIERS_SECONDS

    def _candidates(
        self, everyone: list[TrainingProcess], below: list[TrainingProcess]
    ) -> list[TrainingProcess]:
        """Whom to ask: no launchers, nobody twice, and nobody below one who was asked."""
        tops: set[int] = set()
        found = []
        for member in everyone:
            process, identity = member.process, member.identity
            if process.parent in tops:
                tops.add(process.pid)
                below.append(member)
            elif member.part == FORWARDER:
                send_signal(process.pid, signal.SIGSTOP)
            elif member.part in (SHELL, RANK):
                if member.part == RANK:
                    tops.add(process.pid)
                if identity not in self.asked and identity not in self.helpers:
                    found.append(member)
        return found

    def _readers_last(
        self, candidates: list[TrainingProcess], everyone: list[TrainingProcess], has_asked: bool
    ) -> list[TrainingProcess]:
        """Without those that another one feeds, unless nobody else is left to be asked."""
        written = {
            pipe: member.process.pid
            for member in everyone
            for pipe in processes.pipes_out_of(member.process.pid)
        }
        first = [
            member
            for member in candidates
            if written.get(processes.pipe_into(member.process.pid), member.process.pid)
            == member.process.pid
        ]
        return first if first or has_asked else candidates

    def _ask(self, member: TrainingProcess) -> None:
        """SIGTERM, unless the rank's own launcher was quicker."""
        self.asked.add(member.identity)
        if not (self.run / "asked" / str(member.process.pid)).exists():
            send_signal(member.process.pid, signal.SIGTERM)

    def _end_helpers(self, everyone: list[TrainingProcess], below: list[TrainingProcess]) -> None:
        """What a rank had forked would take our asking for the rank's; it ends with it."""
        living = {member.process.pid: member.identity for member in everyone}
        for helper, parent in self.helpers.items():
            if living.get(helper[0]) == helper and living.get(parent[0]) != parent:
                send_signal(helper[0], signal.SIGKILL)
        for member in below:
            process, identity = member.process, member.identity
            line = processes.arguments(process.parent)
            if not line:  # it has just ended
                continue
            self.helpers.pop(identity, None)
            if line == processes.arguments(process.pid):
                self.helpers[identity] = living[process.parent]


def send_signal(pid: int, number: int) -> None:
    """Signal a process that may have gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
