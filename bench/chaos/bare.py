"""A command that trains under faults without trainyard: the ranks that it starts are hit alike."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainyard.api.chaos.chaos_schedule import Fault, Planned
from trainyard.embedded.chaos_faults.target_processes import process_environment, send_signal
from trainyard.payloads.processes import Process, all_processes, children_of, descendants
from trainyard.schema.dataclass import dataclass

_LOOK_SECONDS = 0.1
_CYCLE_SECONDS = 0.2


@dataclass(slots=True)
class Ended:
    """How it went."""

    code: int | None
    """None: it was given up."""
    seconds: float
    faults: int


class Bare:
    """One run of a command."""

    def __init__(self, command: list[str], folder: Path, ranks: int) -> None:
        """It checkpoints in `folder`, and starts so many ranks."""
        self._command, self._folder, self._ranks = command, folder, ranks
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, plan: Iterator[Planned], lasting: float, limit: float) -> Ended:
        """To its end, or for `limit` seconds."""
        self._folder.mkdir()
        started, faults = time.monotonic(), 0
        whole: float | None = None
        due, before = 0.0, 0.0
        planned = next(plan, None)
        with self._started() as process:
            while process.poll() is None and time.monotonic() - started < limit:
                time.sleep(_LOOK_SECONDS)
                ranks = self._found()
                if len(ranks) < self._ranks or not (self._folder / "checkpoint").exists():
                    whole = None
                    continue
                now = time.monotonic()
                whole, due = whole or now, due or now
                if planned is None:
                    continue
                gap = planned.after - before
                if now >= max(due + gap, whole + gap / 2):  # as `trainyard chaos` does
                    self._hit(planned, ranks, lasting)
                    faults += 1
                    due, before = now, planned.after
                    planned = next(plan, None)
            return Ended(process.poll(), time.monotonic() - started, faults)

    @contextmanager
    def _started(self) -> Iterator[subprocess.Popen[bytes]]:
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield self._process
        finally:
            tree = children_of()
            for pid in (self._process.pid, *descendants(self._process.pid, tree)):
                if found := all_processes().get(pid):
                    send_signal([found], signal.SIGKILL)
            self._process.wait()

    def _found(self) -> list[Process]:
        """The living ranks, in order."""
        assert self._process is not None
        processes = all_processes()
        found = {}
        for pid in descendants(self._process.pid, children_of(processes)):
            if pid in processes and not processes[pid].is_dead:
                environment = process_environment(pid)
                parent = process_environment(processes[pid].parent)
                if (rank := environment.get("RANK")) and "RANK" not in parent:
                    found[int(rank)] = processes[pid]
        return [found[rank] for rank in sorted(found)]

    def _hit(self, planned: Planned, ranks: list[Process], lasting: float) -> None:
        rank = ranks[int(planned.draw * len(ranks))]
        if planned.fault == Fault.KILL:
            send_signal([rank], signal.SIGKILL)
            return
        cycle = lasting if planned.fault == Fault.STOP else _CYCLE_SECONDS / 2
        end = time.monotonic() + lasting
        while time.monotonic() < end:
            send_signal([rank], signal.SIGSTOP)
            time.sleep(cycle)
            send_signal([rank], signal.SIGCONT)
            if planned.fault == Fault.SLOW:
                time.sleep(cycle)
