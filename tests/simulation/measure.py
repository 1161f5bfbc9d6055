"""How much of the planner the simulated runs reach: `python -m tests.simulation.measure [RUNS]`.

A process of its own, so that the modules are measured from their import on.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import coverage


def measure(runs: int) -> dict[str, Any]:
    """Percent of lines and branches per file of `lifecycle/`, and the tally of the runs."""
    measured = coverage.Coverage(
        data_file=None,
        branch=True,
        source_pkgs=["trainyard.lifecycle"],
        # Words for what a viewer's own containers go through, which the model does not play.
        omit=["*/viewer_states.py"],
        config_file=False,
    )
    measured.start()
    from tests.simulation.run import simulate
    from tests.simulation.tally import Tally

    tally = Tally()
    for seed in range(runs):
        tally.add(simulate(seed))
    measured.stop()
    files: dict[str, float] = {}
    with open(os.devnull, "w") as nowhere:
        total = measured.report(file=nowhere)
        for file in measured.get_data().measured_files():
            files[os.path.basename(file)] = measured.report(include=[file], file=nowhere)
    return {"percent": total, "files": files, "tally": tally.dump()}


def main() -> None:
    """Print the figures as JSON on the last line."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 150
    print(json.dumps(measure(runs)))


if __name__ == "__main__":
    main()
