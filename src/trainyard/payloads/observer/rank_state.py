"""Judges what a rank is doing from samples of the last seconds. Pure: no I/O, no clock.

Mounted into the user's image: standard library, Python 3.8.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

OWN_RANK = "TRAINYARD_RANK"
"""The rank of a process that is to see none: a job's only one."""
COLLECTING, WAITING, MEETING = "Collecting", "Waiting", "Meeting"
BUSY, LOOPING, IDLE, NEW = "Busy", "Looping", "Idle", "New"
"""Kinds of activity, in this order: collectives begin or end; it waits for a collective; it waits
for the rendezvous or for an answer of torch's store; it works, though not at collectives; it runs
in a loop that changes nothing; it does nothing; there are too few samples."""
STUCK = (WAITING, MEETING, LOOPING, IDLE)
"""Kinds in which a rank makes no progress."""

WINDOW_SECONDS = 8.0
FEWEST_SAMPLES = 4
BUSY_CPU = 0.25
"""CPU seconds a second from which a process works."""
QUIET_CPU = 0.15
"""Below it, frames of a collective or store mean that it waits there."""
IDLE_CPU = 0.1
READ_BYTES, WRITTEN_BYTES = 65536, 4096
"""A second, and in the whole window: more of it means that it works."""
MANY_VALUES = 2
"""More different sets of local variables than these mean that it works."""
LEAST_JUMPS = 0.25
"""Share of the samples of a loop that finds it between its calls, not in one of them."""
MOST_PLACES, LEAST_LOOP_CPU = 0.67, 0.02
"""Of a loop, at most so many places to a sample; and CPU seconds a second, with less of which what
is found is where it was not let go on."""
_JUMPS = ("JUMP_", "POP_JUMP", "RESUME")
_COLLECTIVE_FRAMES, _STORE_FRAMES = 6, 8
"""How many of the innermost frames are looked at."""
_MEETINGS = (
    "init_process_group",
    "_store_based_barrier",
    "rendezvous",
    "monitored_barrier",
    "_create_c10d_store",
)

if TYPE_CHECKING:
    Frame = tuple[str, int, str]
    """File, line and function."""
    Counts = tuple[tuple[str, int, int], ...]
    """Of each process group: its name, and the last collective begun and completed."""


class Sample(NamedTuple):
    """A process at one moment; times in seconds, amounts since its start."""

    at: float
    cpu: float
    """Of the process and all below it, without the observer's own."""
    wrote: int
    read: int
    runs: bool
    """Whether its main thread or any process below it is running or runnable: starved of CPU, one
    that works looks idle but for this."""
    children: int
    position: int
    """Stands for the frames of the main thread and the instruction at which it is."""
    values: int
    """Stands for the local variables of the user's frames."""
    inner: int
    """Stands for those of the innermost frames, whoever's they are."""
    opcode: str
    wait: str
    """What the main thread waits for in the kernel; "" where that cannot be told."""
    counts: Counts
    frames: tuple[Frame, ...]
    """Of the main thread, innermost first."""
    is_device_pending: bool = False
    """Whether collectives of a device are under way; what waits for it spins, as in `item()`."""


def pending(counts: Counts) -> tuple[tuple[str, int], ...]:
    """The groups in which a collective was begun and has not ended, each with its number."""
    return tuple((group, begun) for group, begun, completed in counts if begun > completed)


def is_in_collective(frames: tuple[Frame, ...]) -> bool:
    """Whether the innermost frames are torch's distributed ones."""
    return any("torch/distributed" in frame[0] for frame in frames[:_COLLECTIVE_FRAMES])


def is_meeting(frames: tuple[Frame, ...]) -> bool:
    """Whether the innermost frames are of a rendezvous or a store of torch's: a user's own
    function may well be called `restore`."""
    return any(
        frame[2] in _MEETINGS or "store" in frame[2].lower()
        for frame in frames[:_STORE_FRAMES]
        if "torch/distributed" in frame[0]
    )


def classify(window: list[Sample]) -> str:
    """What the process did in the window, which ends now; the order of samples is that of time."""
    first, last = window[0], window[-1]
    if any(sample.counts != last.counts for sample in window):
        return COLLECTING
    seconds = last.at - first.at or 1.0
    cpu = (last.cpu - first.cpu) / seconds
    moved = len({sample.position for sample in window}) > 1
    values = len({sample.values for sample in window})
    is_ready = sum(sample.runs for sample in window) > len(window) / 2
    is_starved = is_ready and cpu < QUIET_CPU
    if not moved and values == 1:
        spins = sum(sample.is_device_pending and not sample.wait for sample in window)
        if spins > len(window) / 2:
            return WAITING
        if not is_starved and (awaited := _what_is_awaited(last, cpu)):
            return awaited
    wrote = last.wrote - first.wrote > WRITTEN_BYTES
    has_io = wrote or last.read - first.read > READ_BYTES * seconds
    if cpu > BUSY_CPU or is_ready:
        if values == 1 and not has_io and not last.children and _is_loop(window, cpu):
            return LOOPING
        return BUSY
    return BUSY if has_io or values > MANY_VALUES else IDLE


def _what_is_awaited(last: Sample, cpu: float) -> str:
    """Whether one that stands still waits for others; "" if it does not."""
    if is_meeting(last.frames):
        return MEETING if cpu < QUIET_CPU else ""
    if is_in_collective(last.frames):
        return WAITING if pending(last.counts) or cpu < QUIET_CPU else ""
    # A call of the C++ side, as of a handle's wait(), has no frame of torch.
    is_call = last.opcode.startswith(("CALL", "PRECALL"))
    in_futex = not last.wait or last.wait.startswith("futex")
    is_handle = pending(last.counts) and cpu < IDLE_CPU and is_call and in_futex
    return WAITING if is_handle else ""


def _is_loop(window: list[Sample], cpu: float) -> bool:
    """Whether one that works comes to the same few places, where it always finds the same."""
    # One that is always within a call works: what that changes is not to be seen from here.
    jumps = sum(sample.opcode.startswith(_JUMPS) for sample in window)
    places = {sample.position for sample in window}
    found = {(sample.position, sample.inner) for sample in window}
    return (
        jumps >= len(window) * LEAST_JUMPS
        and len(places) <= len(window) * MOST_PLACES
        and len(found) == len(places)
        and cpu >= LEAST_LOOP_CPU
    )


class Activity:
    """What one process is doing, and since when."""

    def __init__(self, window_seconds: float = WINDOW_SECONDS) -> None:
        self.window_seconds = window_seconds
        self.kind = NEW
        self.since = 0.0
        """When it began, by the clock of the samples."""
        self._window: deque[Sample] = deque()

    def note_collective(self, at: float) -> None:
        """Collectives have begun or ended since the last sample."""
        self._window.clear()
        self.kind, self.since = COLLECTING, at

    def add_sample(self, sample: Sample) -> None:
        """One more sample, during which no collective began or ended."""
        window = self._window
        window.append(sample)
        # One sample from before the window stays: it is what amounts are compared with.
        while len(window) > 1 and window[1].at <= sample.at - self.window_seconds:
            window.popleft()
        is_full = window[0].at <= sample.at - self.window_seconds
        if not is_full or len(window) < FEWEST_SAMPLES:
            return
        kind = classify(list(window))
        if kind != self.kind:
            self.kind, self.since = kind, window[0].at
