"""Ranks of a job on devices that there are not: their programs, their devices, their observers.

Time is virtual. What the observer of a rank is given is what it looks at in a real one: torch's
module, and samples of the process. All that follows from it is the real thing: the observer, its
report, the controller's pass, and the judges of its texts.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.nccl.recorder import Entry, NcclRecorder
from tests.unit.lifecycle.world import World, pytorch
from trainyard.lifecycle import Observed
from trainyard.lifecycle.hang.rank_reports import RankReport
from trainyard.lifecycle.pod_reports import PodReports
from trainyard.payloads.observer.rank_observer import Observer, Settings
from trainyard.payloads.observer.rank_state import Sample

AFTER_SECONDS = 30
TICK, PASS_SECONDS = 0.5, 5.0
EPOCH_NS = 1_790_000_000_000_000_000
LIBRARY = "/opt/venv/lib/python3.11/site-packages/torch"


@dataclass(frozen=True)
class Activity:
    """What the main thread of a rank is seen to do."""

    cpu: float = 0.0
    wait: str = ""
    runs: bool = False
    moves: bool = False
    """Whether each sample finds it elsewhere, with other variables."""
    children: int = 0
    opcode: str = "CALL"
    wrote: int = 0
    """Bytes a second."""
    inner: tuple[tuple[str, int, str], ...] = ()
    """Frames of libraries below the user's line."""


SPIN = Activity(cpu=1.0, runs=True)
SPIN_IN_TEST = replace(SPIN, opcode="TO_BOOL")
SPIN_BESIDE_WORKERS = replace(SPIN, cpu=2.4, children=4)
SPINS = (
    SPIN,
    SPIN_IN_TEST,
    SPIN_BESIDE_WORKERS,
    replace(SPIN, opcode="BINARY_SUBSCR"),
    replace(SPIN, inner=((f"{LIBRARY}/cuda/__init__.py", 1040, "synchronize"),)),
    # Starved, as on a core that others want too.
    replace(SPIN, cpu=0.1),
)
PYTHON = Activity(cpu=1.0, runs=True, moves=True, opcode="LOAD_FAST")
ONE_CALL = Activity(cpu=1.0, runs=True)
LOCK = Activity(wait="futex_do_wait")
SLEEP = Activity(wait="hrtimer_nanosleep")
PIPE = Activity(wait="pipe_read")
SOCKET = Activity(wait="wait_woken")
QUEUE = (
    ("/usr/lib/python3.11/threading.py", 331, "wait"),
    ("/usr/lib/python3.11/queue.py", 180, "get"),
)
LOADER_DEAD = Activity(wait="futex_do_wait", children=2, inner=QUEUE)
LOADER = Activity(cpu=1.6, wait="futex_do_wait", runs=True, children=2, inner=QUEUE)
COMPILERS = Activity(cpu=3.0, wait="do_wait", runs=True, children=6)
DISK = Activity(cpu=0.2, wait="folio_wait_bit_common", wrote=40_000_000)
LOOP = Activity(cpu=1.0, runs=True, opcode="JUMP_BACKWARD")


@dataclass(frozen=True)
class Host:
    """The program does something for so long; for ever by default."""

    line: int
    doing: Activity
    seconds: float = float("inf")


@dataclass(frozen=True)
class Kernel:
    """The device computes for so long, once it has come to that."""

    seconds: float


@dataclass(frozen=True)
class Operation:
    """A collective, or a send to or receive from `peer`; `seconds` is what it takes on devices."""

    group: str
    name: str
    sizes: tuple[int, ...] = (1024,)
    seconds: float = 0.01
    peer: int = -1
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sync:
    """The program waits for its device, as `loss.item()` does."""

    line: int
    doing: Activity = SPIN


@dataclass(frozen=True)
class Exit:
    """The process group is destroyed, or the process ends."""


Step = Host | Kernel | Operation | Sync | Exit
Program = Iterator[Step]


@dataclass(eq=False)
class Task:
    """What a device has to do."""

    left: float
    entry: Entry | None = None
    members: tuple[int, ...] = ()
    key: tuple[Any, ...] = ()
    signature: tuple[Any, ...] = ()


class Sampler:
    """Of a played process."""

    def __init__(self) -> None:
        self.line, self.doing = 1, PYTHON
        self.cpu = self.wrote = 0.0
        self.looks = 0
        self.has_updated = False

    def frames(self) -> tuple[Any, int, int, int, str]:
        moved = self.looks if self.doing.moves else 0
        found = (*self.doing.inner, ("/w/train.py", self.line + moved % 3, "main"))
        return found, hash((found, moved)), moved, moved, self.doing.opcode

    def sample(self, at: float, known: Any, is_device_pending: bool) -> Sample:
        self.looks += 1
        frames, position, values, inner, opcode = self.frames()
        doing = self.doing
        return Sample(
            at,
            self.cpu,
            int(self.wrote),
            0,
            doing.runs,
            doing.children,
            position,
            values,
            inner,
            opcode,
            doing.wait,
            known,
            frames,
            is_device_pending,
        )

    def waits_for(self) -> str:
        return self.doing.wait

    def is_user_file(self, file: str) -> bool:
        return file.startswith("/w/")


@dataclass
class Torch:
    """The modules of torch in one rank, of a version that has what `flavour` says: NCCL's recorder
    for pickle, as JSON, or as JSON beside gloo's."""

    rank: int
    size: int
    recorder: NcclRecorder
    flavour: str

    def __post_init__(self) -> None:
        self.c10d = ModuleType("torch._C._distributed_c10d")
        if self.flavour == "pickle":
            self.c10d._dump_nccl_trace = self.recorder.dump_pickle  # type: ignore[attr-defined]
        else:
            self.c10d._dump_nccl_trace_json = self.recorder.dump_json  # type: ignore[attr-defined]
        if self.flavour == "both":
            empty = NcclRecorder()
            self.c10d._dump_fr_trace_json = empty.dump_json  # type: ignore[attr-defined]
        self.world = SimpleNamespace(default_pg=Pg(self.rank, self.size))
        self.world.pg_backend_config = {self.world.default_pg: "cpu:gloo,cuda:nccl"}

    def modules(self) -> dict[str, Any]:
        return {
            "torch": SimpleNamespace(__version__="2.13.0"),
            "torch._C._distributed_c10d": self.c10d,
            "torch.distributed.distributed_c10d": SimpleNamespace(
                _world=self.world, _backend="nccl"
            ),
        }


class Pg:
    """torch's default process group."""

    def __init__(self, rank: int, size: int) -> None:
        self.numbers = rank, size

    def rank(self) -> int:
        return self.numbers[0]

    def size(self) -> int:
        return self.numbers[1]


class Rank:
    """A process and its device."""

    def __init__(self, number: int, fleet: Fleet, program: Program) -> None:
        self.number, self.program = number, program
        self.recorder = NcclRecorder(fleet.ring, fleet.has_timing)
        for name, ranks in fleet.groups.items():
            if number in ranks:
                self.recorder.join(name, ranks)
        self.device: deque[Task] = deque()
        self.torch = Torch(number, fleet.size, self.recorder, fleet.flavour)
        self.pairs: dict[tuple[Any, ...], int] = {}
        self.step: Step | None = None
        self.left = 0.0
        self.has_exited = False
        self.report: RankReport | None = None
        self.observer = Observer(Settings(f"after={AFTER_SECONDS}"), Told(self, fleet))  # type: ignore[arg-type]
        self.observer.stack_server._end.close()  # one process has but one
        self.sampler = self.observer.sampler = Sampler()  # type: ignore[assignment]

    def live(self, seconds: float, at: int) -> None:
        """Let the program go on for so long."""
        self.sampler.cpu += self.sampler.doing.cpu * seconds
        self.sampler.wrote += self.sampler.doing.wrote * seconds
        for _ in range(10_000):
            if isinstance(self.step, Host) and self.left > 0:
                spent = min(self.left, seconds)
                self.left -= spent
                seconds -= spent
                if self.left > 0:
                    return
            if isinstance(self.step, Sync) and self.device:
                return
            if isinstance(self.step, Exit):
                return
            self.step = next(self.program)
            self._begin(self.step, at)

    def _begin(self, step: Step, at: int) -> None:
        if isinstance(step, Host | Sync):
            self.sampler.line, self.sampler.doing = step.line, step.doing
            self.left = step.seconds if isinstance(step, Host) else 0.0
        elif isinstance(step, Kernel):
            self.device.append(Task(step.seconds))
        elif isinstance(step, Operation):
            self._enqueue(step, at)
        else:
            self.has_exited = True
            self.torch.world.default_pg = None

    def _enqueue(self, step: Operation, at: int) -> None:
        group = self.recorder.groups[step.group]
        is_p2p = step.peer >= 0
        sizes = [list(step.sizes)]
        entry = self.recorder.enqueue(
            step.group, step.name, sizes, at, is_p2p=is_p2p or bool(step.parts), parts=step.parts
        )
        members, place = group.ranks, (step.group, bool(step.parts), entry.number)
        signature: tuple[Any, ...] = (step.name, step.sizes)
        if is_p2p:
            members = tuple(sorted((self.number, step.peer)))
            count = self.pairs[members] = self.pairs.get(members, 0) + 1
            place, signature = (step.group, members, count), (step.sizes,)
        self.device.append(Task(step.seconds, entry, members, place, signature))


class Told:
    """The way of a rank's reports to the controller."""

    def __init__(self, rank: Rank, fleet: Fleet) -> None:
        self.rank, self.fleet = rank, fleet

    def send(self, message: dict[str, Any]) -> bool:
        world = self.fleet.world
        pod = world.name(str(self.rank.number))
        self.rank.report = RankReport.decode(message["observation"], pod, world.now)
        return True


class Reported(World):
    """Of a job whose ranks have said this."""

    ranks: list[Rank]

    def observed(self) -> Observed:
        told = tuple(rank.report for rank in self.ranks if rank.report is not None)
        return replace(super().observed(), reports=PodReports(ranks=told))


class Fleet:
    """All ranks of a job. `programs`: of each rank; `groups`: process groups and their ranks."""

    def __init__(
        self,
        programs: list[Callable[[], Program]],
        groups: dict[str, tuple[int, ...]],
        *,
        flavour: str = "json",
        ring: int = 2000,
        has_timing: bool = False,
    ) -> None:
        self.size, self.groups = len(programs), groups
        self.flavour, self.ring, self.has_timing = flavour, ring, has_timing
        hang = {"afterSeconds": AFTER_SECONDS}
        self.world = Reported(pytorch(workers=self.size, run_policy={"hang": hang}))
        self.world.ranks = []
        self.world.running()
        self.ranks = [Rank(n, self, make()) for n, make in enumerate(programs)]
        self.world.ranks = self.ranks
        self.seconds = 0.0

    def play(self, seconds: float) -> Iterator[None]:
        """Let all live for so long; yields after each pass of the controller."""
        until = self.seconds + seconds
        while self.seconds < until:
            self.seconds += TICK
            at = EPOCH_NS + int(self.seconds * 1e9)
            for rank in self.ranks:
                rank.live(TICK, at)
            self._compute(TICK, at)
            for rank in self.ranks:
                rank.recorder.watch()
            self.world.now += timedelta(seconds=TICK)
            if self.seconds % 1.0 == 0:
                self._observe()
            if self.seconds % PASS_SECONDS == 0:
                self.world.settle()
                yield

    def _observe(self) -> None:
        for rank in self.ranks:
            with patch.dict(sys.modules, rank.torch.modules()):
                rank.observer.observe_once(self.seconds)

    def _compute(self, seconds: float, at: int) -> None:
        """Let the devices work: a collective goes on while all its members have come to it."""
        spare = dict.fromkeys(range(self.size), seconds)
        is_moving = True
        while is_moving:
            is_moving = False
            for rank in self.ranks:
                if not rank.device or spare[rank.number] <= 0:
                    continue
                task = rank.device[0]
                if task.entry is not None:
                    rank.recorder.start(task.entry, at)
                together = [rank] if task.entry is None else self._together(task)
                if not together:
                    continue
                spent = min(task.left, *(spare[each.number] for each in together), seconds)
                is_moving = is_moving or spent > 0 or task.left <= 0
                for each in together:
                    spare[each.number] -= spent
                    each.device[0].left -= spent
                    if each.device[0].left <= 0:
                        done = each.device.popleft()
                        if done.entry is not None:
                            each.recorder.complete(done.entry, at)

    def _together(self, task: Task) -> list[Rank]:
        """All members, if they have come to the same operation."""
        found = []
        for number in task.members:
            rank = self.ranks[number]
            head = rank.device[0] if rank.device else None
            if head is None or (head.key, head.signature) != (task.key, task.signature):
                return []
            found.append(rank)
        return found
