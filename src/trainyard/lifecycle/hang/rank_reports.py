"""What the observers in a job's pods tell of their ranks (`payloads/observer`), and reading it.

It comes from inside users' containers, and may be anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from trainyard.schema.dataclass import dataclass

COLLECTING, WAITING, MEETING = "Collecting", "Waiting", "Meeting"
BUSY, LOOPING, IDLE, LEFT, NEW = "Busy", "Looping", "Idle", "Left", "New"
APART, ALONE = "Apart", "Alone"
NEVER_MET = (APART, ALONE)
KINDS = frozenset((COLLECTING, WAITING, MEETING, BUSY, LOOPING, IDLE, LEFT, NEW, *NEVER_MET))
"""As `rank_state` and `rank_observer` of `payloads/observer` have them, which are not imported:
other Pythons read them."""
STOPPED = "Stopped"
"""No report says that: the node does, of a rank that is stopped by a signal."""
STUCK = (WAITING, MEETING, LOOPING, IDLE, LEFT)
"""Kinds in which one does not get on."""
MOST_FRAMES, MOST_ENTRIES, MOST_GROUPS, MOST_TEXT = 40, 12, 64, 512
MOST_ARRIVALS, MOST_MEMORY = 64, 6
_MOST_RANK, _MOST_SECONDS, _MOST_TIME = 1 << 20, 1e9, 1e11


@dataclass(frozen=True, slots=True)
class Frame:
    """A place in a program."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.function}, {self.short}"

    @property
    def short(self) -> str:
        """`train.py:5`."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"


@dataclass(frozen=True, slots=True)
class Collective:
    """An entry of a rank's flight recorder."""

    group: str
    number: int
    operation: str
    sizes: str
    done: bool
    started: bool = False
    """Whether its device has begun it, where torch takes the time of that."""
    is_p2p: bool = False
    """Whether it is a send or a receive, which each rank counts for itself."""

    @property
    def place(self) -> tuple[str, int]:
        """What stands for it in all ranks."""
        return self.group, self.number

    @property
    def is_of_device(self) -> bool:
        """Whether a device carries it out: its group is named by the backend too."""
        return ":" in self.group

    def __str__(self) -> str:
        return f"{self.operation} #{self.number}"


class Arrival(NamedTuple):
    """At a collective: Unix time by the rank's own clock, and seconds since the one before."""

    number: int
    at: float
    gap: float


@dataclass(frozen=True, slots=True)
class RankReport:
    """The last report of one rank, from the pod of that name. `since`: when it began what it does;
    `received_at`: when it said so; `every`: seconds until it says so again."""

    pod: str
    attempt: int
    rank: int
    size: int
    pid: int
    kind: str
    since: datetime
    received_at: datetime
    every: float
    line: Frame | None = None
    frames: tuple[Frame, ...] = ()
    waits_for: str = ""
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By group: the last collective begun, and the last completed."""
    ring: tuple[Collective, ...] = ()
    machine: str = ""
    """Whose clock it has."""
    now: float = 0.0
    """What that showed when it said so."""
    arrivals: Mapping[str, tuple[Arrival, ...]] = field(default_factory=dict)
    """By group: the last collectives, oldest first, or some of them."""
    cadence: tuple[int, float] | None = None
    """How many collectives come again and again, and the seconds from one time to the next."""
    memory: tuple[tuple[float, int], ...] = ()
    """How many seconds ago it had so many MiB, the newest first."""
    library: str = ""
    """That by which one is alone: see `observer/ranks_met`."""
    unobserved: str = ""
    """Why its collectives are not observed; "" where they are."""

    @property
    def begun(self) -> int:
        """How many collectives it has begun, in the groups that it has."""
        return sum(begun for begun, _ in self.counts.values())

    @property
    def pending(self) -> Collective | None:
        """What it waits in, as far as it is recorded."""
        return next((each for each in self.ring if not each.done), None)

    @classmethod
    def decode(cls, obj: Any, pod: str, received_at: datetime) -> RankReport:
        """From a report; raises ValueError, with the field, for anything else."""
        if not isinstance(obj, Mapping):
            raise ValueError("observation: must be an object")
        kind = _text(obj, "kind")
        if kind not in KINDS:
            raise ValueError(f"observation.kind: unknown kind {kind[:40]!r}")
        frames = [_decode_frame(each) for each in _list(obj, "frames")[:MOST_FRAMES]]
        line = _list(obj, "line")
        entries = _list(obj, "ring")[-MOST_ENTRIES:]
        now = _number(obj, "now", _MOST_TIME)
        return cls(
            pod=pod,
            attempt=int(_number(obj, "attempt", _MOST_RANK)),
            rank=int(_number(obj, "rank", _MOST_RANK)),
            size=int(_number(obj, "size", _MOST_RANK)),
            pid=int(_number(obj, "pid", _MOST_SECONDS)),
            kind=kind,
            since=received_at - timedelta(seconds=_number(obj, "seconds", _MOST_SECONDS)),
            received_at=received_at,
            every=_number(obj, "every", 3600),
            line=_decode_frame(line) if line else None,
            frames=tuple(frames),
            waits_for=_text(obj, "waitsFor"),
            counts=dict(map(_decode_counts, _list(obj, "counts")[:MOST_GROUPS])),
            ring=tuple(map(_decode_collective, entries)),
            machine=_text(obj, "machine"),
            now=now,
            arrivals=dict(
                _decode_arrivals(each, now) for each in _list(obj, "arrivals")[:MOST_GROUPS]
            ),
            cadence=_decode_cadence(_list(obj, "cadence")),
            memory=tuple(map(_decode_memory, _list(obj, "memory")[:MOST_MEMORY])),
            library=_text(obj, "library"),
            unobserved=_text(obj, "unobserved"),
        )


def _text(obj: Mapping[str, Any], name: str) -> str:
    found = obj.get(name, "")
    if not isinstance(found, str):
        raise ValueError(f"observation.{name}: must be text")
    return found[:MOST_TEXT]


def bounded_number(obj: Mapping[str, Any], place: str, name: str, most: float) -> float:
    """A number of a report; raises ValueError, with the field, for anything else."""
    found = obj.get(name, 0)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= most:
        raise ValueError(f"{place}.{name}: must be a number from 0 to {most:g}")
    return found


def _number(obj: Mapping[str, Any], name: str, most: float) -> float:
    return bounded_number(obj, "observation", name, most)


def _list(obj: Mapping[str, Any], name: str) -> list[Any]:
    found = obj.get(name, [])
    if not isinstance(found, list):
        raise ValueError(f"observation.{name}: must be a list")
    return found


def _decode_frame(obj: Any) -> Frame:
    if not isinstance(obj, list) or len(obj) != 3:
        raise ValueError("observation.frames: a frame has a file, a line and a function")
    file, line, function = obj
    number = int(_number({"frames": line}, "frames", _MOST_SECONDS))
    return Frame(_text({"frames": file}, "frames"), number, _text({"frames": function}, "frames"))


def _decode_counts(obj: Any) -> tuple[str, tuple[int, int]]:
    if not isinstance(obj, list) or len(obj) != 3:
        raise ValueError("observation.counts: a group has a name and two numbers")
    begun, completed = (int(_number({"counts": each}, "counts", _MOST_SECONDS)) for each in obj[1:])
    return str(obj[0])[:MOST_TEXT], (begun, completed)


def _decode_collective(obj: Any) -> Collective:
    if not isinstance(obj, Mapping):
        raise ValueError("observation.ring: an entry must be an object")
    group, operation = (_text({"ring": obj.get(name)}, "ring") for name in ("group", "operation"))
    return Collective(
        group=group,
        number=int(_number({"ring": obj.get("number")}, "ring", _MOST_SECONDS)),
        operation=operation,
        sizes=str(obj.get("sizes", ""))[:MOST_TEXT],
        done=bool(obj.get("done")),
        started=bool(obj.get("started")),
        is_p2p=bool(obj.get("p2p")),
    )


def _decode_arrivals(obj: Any, now: float) -> tuple[str, tuple[Arrival, ...]]:
    if not isinstance(obj, list) or len(obj) != 2 or not isinstance(obj[1], list):
        raise ValueError("observation.arrivals: a group has a name and a list")
    found = []
    for each in obj[1][-MOST_ARRIVALS:]:
        if not isinstance(each, list) or len(each) != 3:
            raise ValueError("observation.arrivals: an arrival has a number and two times")
        number, ago, gap = (_number({"arrivals": p}, "arrivals", _MOST_TIME) for p in each)
        found.append(Arrival(int(number), now - ago / 1e3, gap / 1e3))
    return str(obj[0])[:MOST_TEXT], tuple(found)


def _decode_memory(obj: Any) -> tuple[float, int]:
    if not isinstance(obj, list) or len(obj) != 2:
        raise ValueError("observation.memory: has pairs of numbers")
    seconds, amount = (_number({"memory": each}, "memory", _MOST_SECONDS) for each in obj)
    return seconds, int(amount)


def _decode_cadence(obj: list[Any]) -> tuple[int, float] | None:
    if not obj:
        return None
    if len(obj) != 2:
        raise ValueError("observation.cadence: has two numbers")
    length, seconds = (_number({"cadence": each}, "cadence", _MOST_SECONDS) for each in obj)
    return (int(length), seconds) if length >= 1 and seconds > 0 else None
