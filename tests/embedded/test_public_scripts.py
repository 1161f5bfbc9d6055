"""Thirty scripts in the styles of public repositories, which fetch nothing: run from the command
line, from the manifest that this saves, killed and resumed, and with mistakes in them.

On one cluster, a few at a time. All of it under soak; else every script once, and some of them in
each other way.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.embedded.command_line import PATIENCE_SECONDS, CommandLine, until
from tests.tools import require, soak

_HERE = Path(__file__).parent
SCRIPTS: dict[str, dict[str, Any]] = {
    each["name"]: each
    for each in yaml.safe_load((_HERE / "public_scripts.yaml").read_text(encoding="utf-8"))
}
AT_ONCE = 6
"""More would want more memory than a small machine has."""
_FINAL = re.compile(r"^(?:\[\S+\] )?(final .+)$", re.MULTILINE)


class Mistake(NamedTuple):
    """Something that is wrong, and what the run has to say of it."""

    change: Callable[[str], str]
    told: str
    has_line: bool = False


def _at_the_end(line: str) -> Callable[[str], str]:
    return lambda text: f"{text}\n{line}\n"


MISTAKES = {
    "syntax": Mistake(_at_the_end("def broken(:"), "SyntaxError"),
    "module": Mistake(lambda text: f"import no_such_module\n{text}", "no_such_module"),
    "name": Mistake(
        _at_the_end("undefined_name"), "NameError: name 'undefined_name'", has_line=True
    ),
    "file": Mistake(_at_the_end("open('/nowhere/data.csv')"), "/nowhere/data.csv", has_line=True),
    "exit": Mistake(_at_the_end("raise SystemExit('no data')"), "no data"),
}


def chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """So many at once."""
    for start in range(0, len(names), AT_ONCE):
        yield names[start : start + AT_ONCE]


def options(name: str) -> list[str]:
    """How `run` starts it."""
    script = SCRIPTS[name]
    words = ["--name", name, "--volume", "out:/out"]
    words += ["--replicas", str(script["replicas"])] if "replicas" in script else []
    words += ["--launcher", script["launcher"]] if "launcher" in script else []
    for variable, value in script.get("env", {}).items():
        words += ["--env", f"{variable}={value}"]
    return words


def command(name: str) -> list[str]:
    """What it is started with, and its arguments."""
    return [*options(name), f"{name}.py", *SCRIPTS[name].get("arguments", ())]


def ended(trainyard: CommandLine, names: Sequence[str], *how: str) -> dict[str, str]:
    """The last word of each job, all of which have succeeded."""
    trainyard.run("wait", *names)
    found = {}
    for name in names:
        output = trainyard.run("logs", name, *how)
        said = _FINAL.findall(output)
        assert said, f"{name}: {output}"
        found[name] = said[-1]
    return found


@pytest.fixture(scope="module")
def trainyard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """A cluster with the scripts in its folder."""
    require("torchrun")
    line = CommandLine(tmp_path_factory.mktemp("scripts"))
    (line.folder / "out").mkdir()
    for name, script in SCRIPTS.items():
        (line.folder / f"{name}.py").write_text(script["text"])
    line.run("up")
    yield line
    line.run("down", code=None)
    line.kill_everything()


def empty(folder: Path) -> None:
    """No checkpoint is left of the runs before."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


@pytest.fixture(scope="module")
def finals(trainyard: CommandLine) -> dict[str, str]:
    """What each says last, from the command line."""
    found: dict[str, str] = {}
    for names in chunks([*SCRIPTS]):
        for name in names:
            said = trainyard.run("run", "-d", "--save", f"{name}.yaml", *command(name))
            assert "note:" not in said
        found |= ended(trainyard, names)
        assert "RanksApart" not in trainyard.run("list", "-o", "json")
        trainyard.run("delete", *names)
    empty(trainyard.folder / "out")
    return found


def test_each_runs_from_the_command_line_without_a_word_too_many(
    trainyard: CommandLine, finals: dict[str, str]
) -> None:
    assert finals.keys() == SCRIPTS.keys()


def test_a_saved_manifest_is_the_same_job(trainyard: CommandLine, finals: dict[str, str]) -> None:
    for names in chunks([*SCRIPTS][:: soak(6, 1)]):
        for name in names:
            trainyard.run("run", "-d", "-f", f"{name}.yaml")
        assert ended(trainyard, names) == {name: finals[name] for name in names}
        trainyard.run("delete", *names)
    empty(trainyard.folder / "out")


SAVING = [name for name, script in SCRIPTS.items() if script.get("saves")]
OTHERS = [name for name in SCRIPTS if name not in SAVING]


@pytest.mark.parametrize("name", [*SAVING, *OTHERS[:: soak(20, 1)]])
def test_one_that_is_killed_comes_to_the_same_end(
    trainyard: CommandLine, finals: dict[str, str], name: str
) -> None:
    hold = trainyard.folder / "hold"
    hold.touch()
    trainyard.run("run", "-d", "--restart", "2", *command(name))
    try:
        if SCRIPTS[name].get("saves"):
            out = trainyard.folder / "out"
            until(lambda: any(p.is_file() for p in out.rglob(f"*{name}*")) or kept(out), "a save")
        killed = kill(trainyard, name)
    finally:
        hold.unlink()
    assert ended(trainyard, [name]) == {name: finals[name]}
    if SCRIPTS[name].get("saves"):
        assert killed
        assert re.search(r"Restarts: +1 of 2", trainyard.run("show", name))
        output = trainyard.run("logs", name)
        assert re.search(r"resuming from /out|loaded checkpoint|going on from [1-9]", output)
    trainyard.run("delete", name)
    empty(trainyard.folder / "out")


def kept(folder: Path) -> bool:
    """Whether there is a checkpoint in a folder of its own."""
    return any(folder.rglob("ckpt-*.pt"))


def kill(trainyard: CommandLine, name: str) -> bool:
    """Kill its processes once they are there, unless it ends before; whether there were any."""
    until(
        lambda: trainyard.processes(f"{name}.py") or "Succeeded" in trainyard.run("list"),
        "its process runs",
    )
    pids = trainyard.processes(f"{name}.py")
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return bool(pids)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_place(trainyard: CommandLine, mistake: str) -> None:
    planted = MISTAKES[mistake]
    chosen = [name for name in SCRIPTS if SCRIPTS[name].get("replicas", 1) == 1]
    first = [*MISTAKES].index(mistake)
    for name in chosen[first :: soak(len(chosen), 1)]:
        text = planted.change(SCRIPTS[name]["text"])
        (trainyard.folder / f"{name}.py").write_text(text)
        try:
            process = trainyard.start("run", "--keep", *command(name))
            said = process.communicate(timeout=PATIENCE_SECONDS)[0]
        finally:
            (trainyard.folder / f"{name}.py").write_text(SCRIPTS[name]["text"])
        card = said[max(said.rfind("\nPyTorchTrainingJob"), 0) :]
        assert process.returncode == 1, said
        assert planted.told in card, said
        if planted.has_line:
            assert f"{name}.py:{len(text.splitlines())}:" in card
        trainyard.run("delete", name, code=None)
    empty(trainyard.folder / "out")
