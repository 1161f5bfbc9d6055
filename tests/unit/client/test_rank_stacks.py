"""What is said of a rank that does not answer for itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainyard.client.rank_stacks import Stack

IMPORTS = "may still import its libraries; ask again in a moment"
SPY = "only py-spy can tell where: pip install 'trainyard-jobs[stacks]'"


@pytest.mark.parametrize(
    ("report", "doing"),
    [
        ({"observed": False, "seconds": 4.0}, IMPORTS),
        ({"observed": False, "seconds": 400.0}, f"is not observed; {SPY}"),
        ({"observed": False}, f"is not observed; {SPY}"),
        (
            {"observed": False, "seconds": 4.0, "state": "T"},
            f"is not observed, and is stopped (SIGSTOP); {SPY}",
        ),
        ({"state": "D"}, f"does not answer, and waits for a disk or a device; {SPY}"),
    ],
)
def test_a_process_that_does_not_answer_is_told_by_what_is_known_of_it(
    report: dict[str, Any], doing: str
) -> None:
    line = {"pid": 7, "rank": 1, "state": "S", "problem": "missing", **report}
    assert Stack.decode("worker-1", json.dumps(line)).doing == doing
