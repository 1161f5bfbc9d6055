"""The cluster that clients of others are played against."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.embedded.command_line import CommandLine


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path_factory.mktemp("foreign"))
    try:
        line.run("up")
        yield line
        line.run("down")
    finally:
        line.run("down", code=None)
        line.kill_everything()
