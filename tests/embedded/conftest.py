"""Fixtures of the embedded tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.embedded.command_line import CommandLine
from tests.embedded.kubectl import Cluster, running_cluster
from tests.tools import kubectl_path, oldest_and_newest_kubectl


@pytest.fixture(params=oldest_and_newest_kubectl())
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster with each kubectl: the oldest and the newest that is installed."""
    async with running_cluster(kubectl_path(request.param), tmp_path) as made:
        yield made


@pytest.fixture
def trainyard(tmp_path: Path) -> Iterator[CommandLine]:
    """The command line in a folder of its own; at the end nothing of it is left."""
    line = CommandLine(tmp_path)
    yield line
    if (line.state / "cluster.json").exists():
        line.run("down", code=None)
    line.kill_everything()
