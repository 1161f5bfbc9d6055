"""Mutation testing of the lifecycle: changes its code bit by bit and counts what the tests notice.

Usage: python -m tools.mutation [--sample N] [--at-least PERCENT] [MODULE ...]

All mutants take about an hour on two cores; a sample of 600 tells the share to within 2.5 points
in a few minutes. What nobody noticed is printed as a diff, and is in ``mutants/survivors.txt``.
Mutants that behave like the original are listed, with the reason, in `tools/equivalent_mutants.py`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.equivalent_mutants import is_equivalent
from tools.mutants import FOLDER, Mutant

from tools import mutants

_ANY = "trainyard.lifecycle.restart.restart_backoff.x_exponential_delay__mutmut_1"
"""mutmut generates nothing unless it has something to run."""
TESTS = (
    "tests/unit/lifecycle",
    "tests/unit/operator/test_kueue.py",
    "--ignore=tests/unit/lifecycle/test_random.py",
)
"""As in pyproject.toml, for mutmut."""
_DIGEST = FOLDER / "sources.digest"
_SURVIVORS = FOLDER / "survivors.txt"
_EXPOSED = 1.96
"""Standard deviations to either side of an estimate that hold 95 % of all samples."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What was found in one module."""

    noticed: int
    judged: int
    total: int
    """Mutants that there are, but for equivalent ones."""

    @property
    def share(self) -> float:
        """Of those judged; 1 where there are none."""
        return self.noticed / self.judged if self.judged else 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "modules", nargs="*", metavar="MODULE", help="of lifecycle, such as internal_status"
    )
    parser.add_argument("--at-least", type=float, default=90.0, metavar="PERCENT")
    parser.add_argument("--sample", type=int, metavar="N", help="judge only N mutants, by chance")
    parser.add_argument("--seed", type=int, default=1, help="of the sample; 1 unless given")
    parser.add_argument("--again", action="store_true", help="those that survived the last run")
    options = parser.parse_args()
    last = _survivors_of_last() if options.again else None
    generate()
    by_module = defaultdict(list)
    for mutant in mutants.generated():
        module = mutant.module.rpartition(".")[2]
        if (not options.modules or module in options.modules) and not is_equivalent(mutant):
            by_module[module].append(mutant)
    chosen = dict(by_module)
    if last is not None:
        chosen = {m: [x for x in those if x.name in last] for m, those in by_module.items()}
    elif options.sample:
        chosen = sample(by_module, options.sample, random.Random(options.seed))
    judged = judge([mutant for those in chosen.values() for mutant in those])
    tell_survivors(mutant for mutant, noticed in judged.items() if not noticed)
    return report(by_module, judged, options.at_least)


def generate() -> None:
    """Have mutmut write all mutants, and find which test calls which function.

    Nothing is done where the code has not changed since. Tests may have: new ones are run for every
    mutant.
    """
    sources = sorted(Path("src/trainyard/lifecycle").rglob("*.py"))
    digest = hashlib.blake2s(b"".join(path.read_bytes() for path in sources)).hexdigest()
    if _DIGEST.exists() and _DIGEST.read_text() == digest:
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    mutmut = str(Path(sys.executable).with_name("mutmut"))
    subprocess.run([mutmut, "run", _ANY], check=True, stdout=subprocess.DEVNULL)
    _DIGEST.write_text(digest)


def sample(
    by_module: Mapping[str, Sequence[Mutant]], wanted: int, chance: random.Random
) -> dict[str, list[Mutant]]:
    """So many mutants in all, of each module its share of them, at least one."""
    total = sum(map(len, by_module.values()))
    return {
        module: chance.sample(those, min(len(those), max(1, round(wanted * len(those) / total))))
        for module, those in by_module.items()
    }


def judge(chosen: Sequence[Mutant]) -> dict[Mutant, bool]:
    """Whether a test noticed each of them."""
    command = [sys.executable, "-m", "pytest", "-p", "tools.mutants", "-p", "no:cacheprovider"]
    command += ["-q", "--assert=plain", "--capture=no", *TESTS]
    mutants.ORDERS.write_text(json.dumps([mutant.name for mutant in chosen]))
    try:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    finally:
        mutants.ORDERS.unlink()
    return dict(mutants.verdicts())


def tell_survivors(survivors: Iterable[Mutant]) -> None:
    with _SURVIVORS.open("w") as file:
        for mutant in survivors:
            print(f"{mutant.title} ({mutant.name})", *mutant.change(), "", sep="\n", file=file)


def report(
    by_module: Mapping[str, Sequence[Mutant]], judged: Mapping[Mutant, bool], wanted: float
) -> int:
    """Print what was found; the exit code."""
    tallies = {}
    for module, those in by_module.items():
        noticed = [judged[mutant] for mutant in those if mutant in judged]
        tallies[module] = Tally(sum(noticed), len(noticed), len(those))
        found = tallies[module]
        print(f"{module:20} {found.noticed:5} of {found.judged:5} {100 * found.share:6.1f} %")
    share, margin = estimate(tallies.values())
    counted = f"{sum(judged.values())} of {len(judged)} mutants noticed"
    within = f" ± {100 * margin:.1f} (95 %)" if margin else ""
    print(f"{counted}: {100 * share:.1f} %{within}, wanted {wanted:g} %")
    return 0 if 100 * share >= wanted else 1


def estimate(tallies: Iterable[Tally]) -> tuple[float, float]:
    """The share of all mutants that is noticed, and its margin at 95 %, of a stratified sample.

    https://en.wikipedia.org/wiki/Stratified_sampling; a module of which all that were judged were
    noticed is not taken for certain (one success and one failure are added to each).
    """
    seen = [tally for tally in tallies if tally.judged]
    total = sum(tally.total for tally in seen) or 1
    share = variance = 0.0
    for tally in seen:
        weight, left = tally.total / total, 1 - tally.judged / tally.total
        likely = (tally.noticed + 1) / (tally.judged + 2)
        share += weight * tally.share
        variance += weight**2 * likely * (1 - likely) / tally.judged * left
    return share, _EXPOSED * variance**0.5


def _survivors_of_last() -> set[str]:
    names = (line.rpartition("(")[2].rstrip(")") for line in _SURVIVORS.read_text().splitlines())
    return {name for name in names if "__mutmut_" in name}


if __name__ == "__main__":
    sys.exit(main())
