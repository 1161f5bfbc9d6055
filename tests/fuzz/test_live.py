"""The same against a whole cluster: scheduler, controllers, node agent and real processes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.embedded.command_line import CommandLine
from tests.fuzz import asks, live
from tests.fuzz.seeds import BATCH

MOST_GROWTH = 1.2
"""Nothing is kept of requests; what grows are the objects that their finalizers hold for good."""
WARM_BATCHES = 20
"""By then everything has been imported that only some requests need (25 MB, a third of it all), and
what is bounded is full: the journals of changes (8 MiB), Events that were said before."""


@pytest.fixture
def trainyard(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.run("down", code=None)
    line.kill_everything()


def test_a_cluster_answers_and_lives_whatever_it_is_sent(
    trainyard: CommandLine, live_seeds: Sequence[int]
) -> None:
    trainyard.run("up")
    cluster = live.Cluster.of(trainyard.state)
    warm = 0.0
    for number, seed in enumerate(live_seeds):
        asyncio.run(_batch(cluster, seed))
        if number + 1 == WARM_BATCHES:
            warm = cluster.resident_mb()
    if len(live_seeds) >= 2 * WARM_BATCHES:
        grown = cluster.resident_mb() / warm
        assert grown <= MOST_GROWTH, f"{warm:.0f} MB became {grown * warm:.0f}"
    assert "the cluster is already up" in trainyard.run("up")


async def _batch(cluster: live.Cluster, seed: int) -> None:
    rng = random.Random(seed)
    await cluster.prepare()
    wanted = [live.bearable(ask) for ask in asks.batch(rng, BATCH)]
    found = await cluster.findings([ask for ask in wanted if ask is not None], rng)
    assert not found, f"seed {seed}: {found[0]}"
    await cluster.check()
    await cluster.clean()
