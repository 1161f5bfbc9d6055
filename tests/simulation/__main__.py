"""The simulator as a command: replays a seed, makes a failing one small, judges a record anew.

python -m tests.simulation                     new seeds, each printed
python -m tests.simulation --seed N            one run, the same each time
python -m tests.simulation --seed N --shrink --trace FILE
python -m tests.simulation --replay FILE       of `trainyard operator --record FILE`
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from tests.new_seeds import drawn
from tests.simulation.invariants import Violation
from tests.simulation.replay import Difference, UnknownRecord, replay
from tests.simulation.run import Report, simulate
from tests.simulation.shrink import shrink
from tests.simulation.tally import Tally


class Trace:
    """The reconcile log of one run, in an open file."""

    def __init__(self, file: BinaryIO) -> None:
        self.write = file.write
        self.begin = file.write  # a controller begins again after each crash


def main(arguments: list[str]) -> int:
    """0: nothing is wrong; 1: something is."""
    parser = argparse.ArgumentParser("python -m tests.simulation", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seed", type=int, metavar="N", help="play this run")
    parser.add_argument("--runs", type=int, default=100, metavar="N", help="play N new ones")
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="write the reconcile log of the run"
    )
    parser.add_argument("--shrink", action="store_true", help="if it fails, find out what it takes")
    parser.add_argument("--without", default="", metavar="ELEMENTS", help="leave these out of it")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="decide recorded passes anew")
    options = parser.parse_args(arguments)
    if options.replay:
        return _replay(options.replay)
    if options.seed is None:
        return _play_new(options.runs)
    without = tuple(filter(None, options.without.split(",")))
    failed = _play(options.seed, without, options.trace)
    if failed and options.shrink:
        small = shrink(options.seed, without)
        assert small is not None
        if options.trace:  # the log of the small run is the one to read
            with suppress(Violation):
                _simulate(options.seed, small.without, options.trace)
        print(small)
    return int(failed)


def _play(seed: int, without: tuple[str, ...], trace: Path | None) -> bool:
    """Whether the run fails; says how it ends."""
    try:
        report = _simulate(seed, without, trace)
    except Violation as violation:
        print(violation)
        return True
    print(f"seed {seed}: every invariant holds; {report}")
    return False


def _simulate(seed: int, without: tuple[str, ...], trace: Path | None) -> Report:
    if trace is None:
        return simulate(seed, without=without)
    with trace.open("wb") as file:
        return simulate(seed, without=without, sink=Trace(file))


def _play_new(runs: int) -> int:
    tally = Tally()
    first = drawn()
    seeds = range(first, first + runs)
    print(f"seeds {seeds[0]} to {seeds[-1]}")
    for seed in seeds:
        try:
            tally.add(simulate(seed))
        except Violation as violation:
            print(violation)
            print(shrink(seed))
            return 1
    print("\n".join(tally.lines()))
    return 0


def _replay(path: Path) -> int:
    try:
        with path.open("rb") as lines:
            outcome = replay(lines)
    except UnknownRecord as unknown:
        print(
            f"{path} cannot be replayed: {unknown}; replay it with the version that wrote it",
            file=sys.stderr,
        )
        return 2
    except (OSError, ValueError, KeyError) as error:
        print(f"{path} is no record of `trainyard operator --record`: {error}", file=sys.stderr)
        return 2
    if isinstance(outcome, Difference):
        print(outcome)
        return 1
    if not outcome:
        print(f"{path} holds no pass with what it saw; diaries of --trace do not", file=sys.stderr)
        return 2
    print(f"{outcome} passes are decided as they were")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
