"""What Kubernetes' end-to-end tests expect of a cluster (`e2e`), seen of the embedded one.

What fails is listed in `expected/e2e.toml`, with a reason; one that is listed and passes fails the
test as well.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded.command_line import CommandLine
from tests.embedded.lifecycle_yard import Api
from tests.foreign.e2e.cases import BY_NAME_SERVER, CASES
from tests.foreign.e2e.world import judge
from trainyard.machine.state_folder import Paths

EXPECTED = Path(__file__).parent / "expected/e2e.toml"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="pods of several users need root")


@pytest.fixture(scope="module")
def cluster() -> Iterator[CommandLine]:
    """Of a folder that every user may enter, as pods start in it."""
    folder = Path(tempfile.mkdtemp(prefix="trainyard-e2e-", dir="/tmp"))
    folder.chmod(0o755)
    line = CommandLine(folder)
    try:
        line.run("up")
        yield line
    finally:
        line.run("down", code=None)
        line.kill_everything()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("group", CASES)
async def test_only_what_is_listed_fails(cluster: CommandLine, group: str) -> None:
    listed = {case["name"] for case in tomllib.loads(EXPECTED.read_text())["case"]}
    socket, cases = Paths(cluster.state).api_socket, CASES[group]
    _, facts = Api(socket).request("GET", "/debug/findings")
    if facts["network"] != "open":
        cases = {name: play for name, play in cases.items() if name not in BY_NAME_SERVER}
    told = await judge(socket, cases, f"{group}-{os.urandom(3).hex()}")
    news = [f"{name}\n{why}" for name, why in told.items() if why and name not in listed]
    assert not news, "\n\n".join(["not on the list:", *news])
    stale = [name for name, why in told.items() if not why and name in listed]
    assert not stale, "\n".join(["passed: take it off the list", *stale])


def test_only_what_is_tried_is_listed() -> None:
    names = {name for cases in CASES.values() for name in cases}
    listed = [case["name"] for case in tomllib.loads(EXPECTED.read_text())["case"]]
    assert sorted(listed) == sorted(names & set(listed))
