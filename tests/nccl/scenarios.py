"""A hundred hangs and a hundred healthy runs over NCCL, each drawn by its number.

Trainings are data parallel, sharded, in tensor-parallel pairs, or in stages that send to others.
In the healthy ones one rank, or all, take long: kernels, compilation, graphs, loading, checkpoints.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.nccl.fleet import (
    AFTER_SECONDS,
    COMPILERS,
    DISK,
    LOADER,
    LOADER_DEAD,
    LOCK,
    LOOP,
    ONE_CALL,
    PIPE,
    PYTHON,
    SLEEP,
    SOCKET,
    SPINS,
    Activity,
    Exit,
    Fleet,
    Host,
    Kernel,
    Operation,
    Program,
    Step,
    Sync,
)

COUNT = 100
LOAD, FORWARD, BACKWARD, LOSS, ODD_LINE = 11, 20, 24, 31, 77
"""Lines of the program; the last is where a rank does what others do not."""
ENTRIES = ("json", "json", "both", "pickle")
LONG = 2.0 * AFTER_SECONDS
SHORT = 0.6 * AFTER_SECONDS
"""For what cannot be told from a hang but by its length."""
Extra = Callable[[], Iterator[Step]]
"""What the odd rank does in addition, or in place, at one step."""


@dataclass(frozen=True)
class Layout:
    """Process groups of a training, and what one step of a rank does."""

    groups: dict[str, tuple[int, ...]]
    step: Callable[[int], Iterator[Step]]


@dataclass(frozen=True)
class Scenario:
    """One run. `odd`: the rank that is to be named, if any may be; `line`: the one with it."""

    name: str
    fleet: Fleet
    odd: int | None = None
    line: int = 0


def data_parallel(size: int, buckets: int, spin: Activity) -> Layout:
    def step(_: int) -> Iterator[Step]:
        yield Kernel(0.3)
        for bucket in range(buckets):
            yield Operation("0", "all_reduce", (1000 + bucket,))
        yield Kernel(0.05)
        yield Sync(LOSS, spin)

    return Layout({"0": tuple(range(size))}, step)


def sharded(size: int, layers: int, spin: Activity) -> Layout:
    """As FSDP: parts are gathered, and gradients scattered, in a group beside the default one."""

    def step(_: int) -> Iterator[Step]:
        for layer in range(layers):
            yield Operation("1", "_all_gather_base", (512 + layer,))
            yield Kernel(0.02)
        for layer in range(layers):
            yield Operation("1", "_reduce_scatter_base", (512 + layer,))
        yield Operation("0", "all_reduce", (1,))
        yield Sync(LOSS, spin)

    ranks = tuple(range(size))
    return Layout({"0": ranks, "1": ranks}, step)


def tensor_parallel(size: int, layers: int, spin: Activity) -> Layout:
    """Pairs that share layers, and groups of those with the same part of them."""
    groups = {"0": tuple(range(size))}
    groups |= {f"tp{n}": (2 * n, 2 * n + 1) for n in range(size // 2)}
    groups |= {f"dp{n}": tuple(range(n, size, 2)) for n in range(2)}

    def step(rank: int) -> Iterator[Step]:
        for layer in range(layers):
            yield Kernel(0.02)
            yield Operation(f"tp{rank // 2}", "all_reduce", (256 + layer,))
        yield Operation(f"dp{rank % 2}", "all_reduce", (9999,))
        yield Sync(LOSS, spin)

    return Layout(groups, step)


def staged(size: int, batches: int, spin: Activity) -> Layout:
    """A pipeline: each receives from the one before, and sends to the one after."""

    def step(rank: int) -> Iterator[Step]:
        for _ in range(batches):
            if rank:
                yield Operation("0", f"recv {rank}<-{rank - 1}", (64, 64), peer=rank - 1)
            yield Kernel(0.05)
            if rank + 1 < size:
                yield Operation("0", f"send {rank}->{rank + 1}", (64, 64), peer=rank + 1)
        yield Operation("0", "all_reduce", (1,))
        yield Sync(LOSS, spin)

    return Layout({"0": tuple(range(size))}, step)


def coalesced(size: int, _: int, spin: Activity) -> Layout:
    """A ring of sends and receives at once, as of attention over a long context."""

    def step(rank: int) -> Iterator[Step]:
        yield Kernel(0.1)
        after, before = (rank + 1) % size, (rank - 1) % size
        parts = (f"send {rank}->{after}", f"recv {rank}<-{before}")
        yield Operation("0", "coalesced", (128,), parts=parts)
        yield Operation("0", "all_reduce", (1,))
        yield Sync(LOSS, spin)

    return Layout({"0": tuple(range(size))}, step)


LAYOUTS = (data_parallel, sharded, tensor_parallel, staged, coalesced)


def training(
    layout: Layout,
    rank: int,
    at: int = -1,
    extra: Extra | None = None,
    *,
    instead: bool = False,
    load: float = 0.1,
) -> Program:
    """Steps without end; at one of them something else comes first, or in its place."""
    for number in range(1_000_000):
        yield Host(LOAD, PYTHON, load)
        if number == at and extra is not None:
            yield from extra()
            if instead:
                continue
        yield from layout.step(rank)


def _drawn(number: int, kind: str) -> tuple[random.Random, Layout, int]:
    drawn = random.Random(f"{kind} {number}")
    make = LAYOUTS[number % len(LAYOUTS)]
    size = drawn.choice((4, 4, 8)) if make is tensor_parallel else drawn.choice((2, 3, 4, 4))
    return drawn, make(size, drawn.randint(2, 6), drawn.choice(SPINS)), size


def _fleet(
    drawn: random.Random,
    layout: Layout,
    size: int,
    odd: int | None,
    at: int,
    extra: Extra,
    **options: bool,
) -> Fleet:
    """Of a job in which one rank, or all (`odd` is None), do that at that step."""

    def program(rank: int) -> Callable[[], Program]:
        mine = extra if odd in (None, rank) else None
        return lambda: training(layout, rank, at, mine, instead=options.get("instead", False))

    return Fleet(
        [program(rank) for rank in range(size)],
        layout.groups,
        flavour=drawn.choice(ENTRIES),
        ring=drawn.choice((2000, 2000, 16)),
        has_timing=options.get("has_timing", drawn.random() < 0.2),
    )


STUCK = (LOCK, SLEEP, PIPE, SOCKET, LOADER_DEAD, LOOP)


def hang(number: int) -> Scenario:
    """One of a hundred; the ways in which they hang come in turn."""
    drawn, layout, size = _drawn(number, "hang")
    odd, at = drawn.randrange(size), drawn.randint(1, 12)
    kind = ("stuck", "stuck", "stuck", "halfway", "ahead", "other", "sizes", "device", "ended")[
        number // len(LAYOUTS) % 9
    ]
    # What one of two does otherwise is as right as what the other does; the first is the measure.
    if kind in ("other", "sizes"):
        odd = max(1, odd)
    doing = drawn.choice(STUCK)
    first = next(each for each in layout.step(odd) if isinstance(each, Operation))
    options = {"instead": kind in ("halfway", "other", "sizes"), "has_timing": kind == "device"}
    if kind != "device":
        del options["has_timing"]

    def extra() -> Iterator[Step]:
        if kind == "stuck":
            yield Host(ODD_LINE, doing)
        elif kind == "halfway":
            steps = list(layout.step(odd))
            last = max(n for n, each in enumerate(steps) if isinstance(each, Operation))
            yield from steps[:last]
            yield Host(ODD_LINE, doing)
        elif kind == "ahead":  # it has waited for all that it began
            yield Sync(LOSS)
            yield Host(ODD_LINE, doing)
        elif kind in ("other", "sizes"):
            name = "broadcast" if kind == "other" else first.name
            sizes = first.sizes if kind == "other" else (7, 7)
            yield Operation(first.group, name, sizes)
            yield Sync(ODD_LINE)
        elif kind == "device":
            yield Kernel(float("inf"))
        else:
            yield Host(ODD_LINE, PYTHON, 1.0)
            yield Exit()

    line = {"device": LOSS, "ended": 0}.get(kind, ODD_LINE)
    fleet = _fleet(drawn, layout, size, odd, at, extra, **options)
    return Scenario(f"{kind} {number}", fleet, odd, line)


def healthy(number: int) -> Scenario:
    """One of a hundred; what takes long comes in turn."""
    drawn, layout, size = _drawn(number, "healthy")
    odd, at = drawn.randrange(size), drawn.randint(1, 6)
    kinds = {
        "kernel": [Kernel(SHORT), Sync(FORWARD, drawn.choice(SPINS))],
        "long kernel": [Kernel(LONG), Sync(FORWARD, drawn.choice(SPINS))],
        "timed kernel": [Kernel(LONG)],
        "compiles": [Host(FORWARD, COMPILERS, LONG)],
        "traces": [Host(FORWARD, PYTHON, LONG)],
        "graph": [Host(FORWARD, PYTHON, 5.0), Host(FORWARD, ONE_CALL, SHORT)],
        "replays": [Kernel(LONG), Sync(FORWARD)],
        "loads": [Host(LOAD, LOADER, LONG)],
        "saves": [Host(ODD_LINE, DISK, LONG)],
        "saves in one call": [Host(ODD_LINE, ONE_CALL, LONG)],
        "steps": [],
    }
    kind = [*kinds][number // len(LAYOUTS) % len(kinds)]
    odd = 0 if kind.startswith("saves") else odd
    is_all = kind in ("compiles", "graph", "replays") and drawn.random() < 0.5
    options = {"has_timing": True} if kind == "timed kernel" else {}
    fleet = _fleet(
        drawn, layout, size, None if is_all else odd, at, lambda: iter(kinds[kind]), **options
    )
    return Scenario(f"{kind} {number}", fleet)
