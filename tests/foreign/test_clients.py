"""What each client of Kubernetes' does against the embedded cluster, from its own environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.embedded.command_line import CommandLine
from tests.foreign.programs import CLIENTS, PROMISES, Client, told


def test_every_step_shows_what_is_promised() -> None:
    assert {step for client in CLIENTS for step in client.steps()} == PROMISES.keys()


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_every_step_of_its_play_is_served(
    cluster: CommandLine, client: Client, tmp_path: Path
) -> None:
    namespace = f"{tmp_path.parent.name}-{tmp_path.name}".replace("_", "-").lower()[-60:]
    steps = told(cluster, client, f"a{namespace}")
    failed = {step: error for step, error in steps.items() if error}
    assert not failed, "\n".join(f"{step}:\n{error}" for step, error in failed.items())
    assert list(steps) == client.steps()
