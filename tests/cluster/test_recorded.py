"""What is recorded of a version is what a server of that version answers."""

from __future__ import annotations

import json

import pytest

from tests.cluster.plane import RunningControlPlane
from tests.differential.record import answers, of_plane, recording, subjects


@pytest.mark.parametrize("subject", ["core", "jobs"])
def test_the_recording_is_what_the_server_answers(
    subject: str, plane: RunningControlPlane, definitions: None
) -> None:
    path = recording(subject, plane.version)
    if subject not in subjects(plane) or not path.exists():
        pytest.skip(f"nothing is recorded there ({path.name}): python -m tests.differential.record")
    recorded = json.loads(path.read_text())
    with of_plane(plane) as ask:
        found = answers(ask, subject, f"recorded-{subject}")
    assert {name for name in recorded if found.get(name) != recorded[name]} == set()
