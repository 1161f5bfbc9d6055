"""Names of files that are no UTF-8: they work where no manifest has them, else it is one error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.embedded.command_line import CommandLine, job, until

NAME = os.fsdecode(b"d\xff")
PRINTS = "import os; print('in', sorted(map(os.fsencode, os.listdir())))\n"


@pytest.fixture
def trainyard(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    (tmp_path / NAME).mkdir()
    for path in (tmp_path / "t.py", tmp_path / NAME / "t.py", tmp_path / f"{NAME}.py"):
        path.write_text(PRINTS)
    (tmp_path / f"{NAME}.yaml").write_text(yaml.safe_dump(job("a", ["true"])))
    yield line
    line.run("down", code=None)
    line.kill_everything()


def test_files_beside_the_script_are_copied_and_manifests_read(trainyard: CommandLine) -> None:
    copied = trainyard.run("run", "--snapshot", "t.py")
    assert f"{os.fsencode(NAME) + b'.py'!r}" in copied
    trainyard.run("run", "-f", f"{NAME}.yaml")
    trainyard.run("run", "--volume", f"data={NAME}", "t.py")
    trainyard.run("up", "--volume", f"data={NAME}")
    trainyard.run("submit", "--snapshot", "-f", f"{NAME}.yaml")
    trainyard.run("wait", "a")
    assert "a-2 created" in trainyard.run("rerun", "a")
    trainyard.run("restart")


def test_what_a_manifest_cannot_have_is_one_error(trainyard: CommandLine) -> None:
    for words in (
        ["run", f"{NAME}.py"],
        ["run", f"{NAME}/t.py"],
        ["run", "t.py", NAME],
        ["run", "--env", f"A={NAME}", "t.py"],
        ["init", f"{NAME}.py"],
        ["run", "--save", f"{NAME}/x.yaml", "t.py"],
    ):
        assert "is not UTF-8 text" in trainyard.run(*words, code=1)
    assert not (trainyard.folder / NAME / "x.yaml").exists()
    trainyard.run("up")
    trainyard.run("submit", "-f", trainyard.manifest("m.yaml", job("long", ["sleep", "600"])))
    until(lambda: trainyard.processes("sleep 600"), "the replica runs")
    for words in (
        *([name, NAME] for name in ("show", "logs", "explain", "events", "wait", "pause", "top")),
        *([name, NAME] for name in ("delete", "rerun", "stacks")),
        ["list", "-n", NAME],
        ["diff", NAME, "long"],
        ["exec", "long", "--", "ls", NAME],
        ["scale", NAME, "--replicas", "2"],
    ):
        assert "is not UTF-8 text" in trainyard.run(*words, code=1)


def test_a_working_or_state_folder_of_such_a_name_is_one_error(trainyard: CommandLine) -> None:
    inside = CommandLine(trainyard.folder, start_in=trainyard.folder / NAME)
    assert f"{NAME!r}"[1:-1] in inside.run("run", "t.py", code=1)
    assert "in [b't.py']" in inside.run("run", "--snapshot", "t.py")
    inside.environment["TRAINYARD_STATE_DIR"] = str(trainyard.folder / NAME / "state")
    for words in (["up"], ["list"], ["status"], ["run", "t.py"], ["doctor"], ["down"]):
        said = inside.run(*words, code=1)
        assert "has a name that is not UTF-8 text: set TRAINYARD_STATE_DIR to another one" in said
