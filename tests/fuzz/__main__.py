"""`python -m tests.fuzz --seed N`: one batch of requests again, its findings made small."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter

from tests.fuzz import asks, machine
from tests.fuzz.seeds import BATCH


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batches", type=int, default=1, help="of seeds from --seed on")
    parser.add_argument("--shrink", action="store_true")
    options = parser.parse_args()
    kinds: dict[str, machine.Finding] = {}
    counts: Counter[str] = Counter()
    statuses: dict[int, int] = {}
    started = time.monotonic()
    for seed in range(options.seed, options.seed + options.batches):
        batch = asks.batch(random.Random(seed), BATCH)
        for finding in asyncio.run(machine.findings(batch, statuses)):
            name = machine.class_of(finding.what)
            kinds.setdefault(name, finding)
            counts[name] += 1
    print(f"{sum(statuses.values())} requests in {time.monotonic() - started:.1f} s: {statuses}")
    for name, finding in kinds.items():
        shown = asyncio.run(machine.shrunk(finding)) if options.shrink else finding
        print(f"{counts[name]} x {name}\n{shown if options.shrink else finding.what}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
