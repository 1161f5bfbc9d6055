"""Mutation testing of the lifecycle: changes its code bit by bit and counts what the tests notice.

Usage: python tools/mutation.py [--at-least PERCENT]. About half an hour on two cores; the mutants
stay in ``mutants/``, where ``mutmut show`` and a second run find them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

STATS = Path("mutants/mutmut-cicd-stats.json")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-least", type=float, default=90.0, metavar="PERCENT")
    wanted = parser.parse_args().at_least
    mutmut = str(Path(sys.executable).with_name("mutmut"))
    subprocess.run([mutmut, "run"], check=True)
    subprocess.run([mutmut, "export-cicd-stats"], check=True)
    stats = json.loads(STATS.read_text())
    noticed = stats["killed"] + stats["timeout"]
    percent = 100 * noticed / stats["total"]
    print(f"{noticed} of {stats['total']} mutants noticed: {percent:.1f} %, wanted {wanted:g} %")
    return 0 if percent >= wanted else 1


if __name__ == "__main__":
    sys.exit(main())
