"""Fixtures of the embedded tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.embedded.kubectl import Cluster, running_cluster
from tests.tools import kubectl_path, oldest_and_newest_kubectl


@pytest.fixture(params=oldest_and_newest_kubectl())
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster with each kubectl: the oldest and the newest that is installed."""
    async with running_cluster(kubectl_path(request.param), tmp_path) as made:
        yield made
