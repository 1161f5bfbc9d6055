"""Ranks of `straggling.py`: what they wrote down, and one of them slowed down from outside."""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCRIPT = Path(__file__).with_name("straggling.py")
WORK_SECONDS, LOOK_SECONDS = 0.1, 0.005
"""After so much work, half a step, it is stopped: on a busy machine, a stop that is shorter than
the time between its turns costs it nothing."""


class Ranks:
    """Two of them, which train in a folder of theirs until they are told to end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def times(self, rank: int) -> list[float]:
        """When a rank came to its collectives; nothing before the first."""
        try:
            lines = (self.folder / f"rank-{rank}").read_text().splitlines()
        except OSError:
            return []
        return [float(line) for line in lines[:-1]]  # the last one may be half written

    @property
    def steps(self) -> int:
        """How many both have made."""
        return min(len(self.times(0)), len(self.times(1)))

    def let_end(self) -> None:
        """Have them end after this step."""
        (self.folder / "end").touch()

    def lateness(self, rank: int, first: int = 0) -> list[float]:
        """By what share of each step from `first` on the other rank waited for this one."""
        own, other = self.times(rank), self.times(1 - rank)
        ends = [max(pair) for pair in zip(own, other, strict=False)]
        whole = range(max(first, 1), len(ends))
        return [(own[n] - other[n]) / (ends[n] - ends[n - 1]) for n in whole]

    def was_late(self, rank: int, share: float = 0.06) -> bool:
        """Whether there were a dozen steps in a row at most of which it was late."""
        told = self.lateness(rank)
        rows = [told[n : n + 12] for n in range(max(1, len(told) - 11))]
        return any(statistics.median(row) >= share for row in rows if row)


@contextmanager
def slowed(pid: int, share: float) -> Iterator[None]:
    """With a rank stopped for a share of the time that its own work takes it.

    That is when it runs or waits for a core: with a part of all time, a rank would catch up where
    others use the machine.
    """
    over = threading.Event()

    def stop_and_go(ran: float, waited: float) -> None:
        owed = 0.0
        while not over.wait(LOOK_SECONDS):
            now_ran, now_waited = _worked(pid)
            if now_ran - ran < WORK_SECONDS:
                continue
            owed += share * (now_ran - ran + now_waited - waited)
            ran, waited = now_ran, now_waited
            if owed > 0:
                since = time.monotonic()
                os.kill(pid, signal.SIGSTOP)
                over.wait(owed)
                os.kill(pid, signal.SIGCONT)
                owed -= time.monotonic() - since

    thread = threading.Thread(target=stop_and_go, args=_worked(pid))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _worked(pid: int) -> tuple[float, float]:
    """Seconds for which a process' main thread has run, and has waited for a core to run on."""
    # https://docs.kernel.org/scheduler/sched-stats.html#proc-pid-schedstat
    ran, waited, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    return int(ran) / 1e9, int(waited) / 1e9
