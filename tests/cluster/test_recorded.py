"""What is recorded of a version is what a server of that version answers."""

from __future__ import annotations

import json

import pytest

from tests.cluster.plane import RunningControlPlane
from tests.differential.record import RECORDED, answers, of_plane


def test_the_recording_is_what_the_server_answers(plane: RunningControlPlane) -> None:
    version = ".".join(map(str, plane.version))
    path = RECORDED / f"{version}.json"
    if not path.exists():
        pytest.skip(f"nothing is recorded of {version}: python -m tests.differential.record")
    recorded = json.loads(path.read_text())
    with of_plane(plane) as ask:
        found = answers(ask, "recorded")
    assert {name for name in recorded if found.get(name) != recorded[name]} == set()
