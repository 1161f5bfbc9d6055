"""What a state folder says of its cluster is believed only where a cluster can have written it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainyard.machine.state_folder import Paths, find_cluster, record_problem, why_cluster_is_down

WHOLE = {"pid": 1, "socket": "/none", "port": 0, "started": 1.5, "isolation": "root"}


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ([], "not a JSON object"),
        ("x", "not a JSON object"),
        ({**WHOLE, "pid": "x"}, "pid is 'x', not a whole number"),
        ({**WHOLE, "pid": True}, "pid"),
        ({**WHOLE, "pid": -1}, "pid is -1"),
        ({**WHOLE, "socket": 5}, "socket is 5, not a text"),
        ({**WHOLE, "port": []}, "port"),
        ({**WHOLE, "started": None}, "started"),
        ({"pid": 1}, "socket is missing"),
    ],
)
def test_a_record_of_wrong_types_is_as_good_as_none_and_is_told_of(
    tmp_path: Path, told: Any, problem: str
) -> None:
    paths = Paths(tmp_path)
    paths.record.write_text(json.dumps(told))
    assert find_cluster(tmp_path) is None
    assert problem in record_problem(paths)
    assert problem in why_cluster_is_down(paths)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000])
def test_a_record_that_is_no_json_is_as_good_as_none(tmp_path: Path, text: bytes) -> None:
    Paths(tmp_path).record.write_bytes(text)
    assert find_cluster(tmp_path) is None
    assert record_problem(Paths(tmp_path))


def test_fields_of_a_newer_cluster_are_passed_over(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    paths.record.write_text(json.dumps({**WHOLE, "mood": "good"}))
    assert record_problem(paths) == ""
    assert find_cluster(tmp_path) is None  # nobody listens there
