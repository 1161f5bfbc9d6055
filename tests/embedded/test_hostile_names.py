"""Folders, scripts, PYTHONPATH and Pythons of names that a shell would change, by each launcher.

A job runs, or is refused before anything of it starts, with the name and what to do.
"""

from __future__ import annotations

import venv
from pathlib import Path

import pytest
import yaml

from tests.embedded.command_line import CommandLine
from tests.embedded.launching import require_programs
from tests.tools import require

NAMES = {
    "blanks": "a  b",
    "quotes": 'it\'s "so"',
    "dollars": "$HOME `id` $(id) \\x",
    "letters": "übung-データ",
    "lines": "one\ntwo",
    "all": 'it\'s "a"  $HOME`id`;&|<>*?[x]{a,b}~#!%d\\n é\nend',
}
SCRIPT = """\
import os, sys
import beside, found
words = os.getcwd(), sys.argv[-1], beside.WHERE, found.WHERE
print("ran", *map(ascii, words), flush=True)
"""
SOME = ("all", "letters")
"""For launches over ssh, which take their time."""


def commands(tmp_path: Path, name: str) -> CommandLine:
    """In a folder of this name, with a script and a module of this name's, and one elsewhere."""
    folder, elsewhere = tmp_path / name, tmp_path / f"lib {name}"
    for each, module in ((folder, "beside"), (elsewhere, "found")):
        each.mkdir()
        (each / f"{module}.py").write_text("import os\nWHERE = os.path.dirname(__file__)\n")
    (folder / f"{name}.py").write_text(SCRIPT)
    (folder / "pack").mkdir()
    (folder / "pack" / "__main__.py").write_text(SCRIPT)
    return CommandLine(tmp_path, start_in=folder)


def expected(tmp_path: Path, name: str) -> str:
    """What each process of it prints."""
    folder, elsewhere = str(tmp_path / name), str(tmp_path / f"lib {name}")
    words = (folder, f"argument {name}", folder, elsewhere)
    return f"ran {' '.join(map(ascii, words))}"


def run(line: CommandLine, launcher: str, name: str, *words: str, code: int = 0) -> str:
    """The output of a run with this argument, and with the folder elsewhere in PYTHONPATH."""
    if launcher == "torchrun":
        require(launcher)
    options = ("--launcher", launcher, "--no-check", "--name", "odd")
    path = ("--env", f"PYTHONPATH={line.folder / f'lib {name}'}")
    return line.run("run", *options, *path, *words, f"argument {name}", code=code)


@pytest.mark.parametrize(
    ("launcher", "which"),
    [
        *((launcher, which) for launcher in ("plain", "none") for which in NAMES),
        *(("torchrun", which) for which in SOME),
    ],
)
def test_a_script_with_an_odd_name_in_an_odd_folder_runs(
    tmp_path: Path, launcher: str, which: str
) -> None:
    name = NAMES[which]
    line = commands(tmp_path, name)
    said = expected(tmp_path, name)
    assert said in run(line, launcher, name, f"{name}.py")
    assert said in run(line, launcher, name, "-m", "pack")


def test_a_python_in_an_odd_folder_runs_it(tmp_path: Path) -> None:
    name = NAMES["all"].replace("*", "").replace("[x]", "")  # which patterns of images have
    line = commands(tmp_path, name)
    venv.create(tmp_path / f"env {name}", with_pip=False)
    image = f"*={tmp_path}/env {name}"
    assert expected(tmp_path, name) in run(line, "plain", name, "--image", image, f"{name}.py")


@pytest.mark.parametrize("which", SOME)
def test_deepspeed_runs_it_too(tmp_path: Path, which: str) -> None:
    require_programs("deepspeed", "pdsh", "sshd", "ssh")
    name = NAMES[which]
    line = commands(tmp_path, name)
    output = run(line, "deepspeed", name, "--replicas", "2", f"{name}.py")
    assert output.count(expected(tmp_path, name)) == 2, output


def test_colossalai_runs_it_or_it_is_refused_before_it_starts(tmp_path: Path) -> None:
    require_programs("colossalai", "sshd", "ssh")
    name = NAMES["letters"]
    line = commands(tmp_path, name)
    output = run(line, "colossalai", name, "--replicas", "2", f"{name}.py")
    assert output.count(expected(tmp_path, name)) == 2, output
    for each in set(NAMES) - {"letters"}:
        name = NAMES[each]
        line = commands(tmp_path, name)
        for words in ((f"{name}.py",), ("-m", "pack")):
            output = run(line, "colossalai", name, *words, code=1)
            assert "`colossalai run` hands the " in output
            assert "to a shell, which would change it: rename it" in output
            assert "Running" not in output


def test_a_manifest_for_colossalai_in_an_odd_folder_is_never_tried_again(tmp_path: Path) -> None:
    require_programs("colossalai", "sshd", "ssh")
    line = commands(tmp_path, NAMES["blanks"])
    worker = {"containers": [{"name": "worker", "image": "x"}]}
    manifest = {
        "apiVersion": "batch.tensorstack.dev/v1beta1",
        "kind": "ColossalAIJob",
        "metadata": {"name": "odd"},
        "spec": {
            "torchConfig": {"script": ["train.py"]},
            "replicaSpecs": [
                {
                    "type": kind,
                    "replicas": 1,
                    "restartPolicy": {"policy": "OnFailure", "limit": 3},
                    "template": {"spec": spec},
                }
                for kind, spec in (("launcher", {}), ("worker", worker))
            ],
        },
    }
    (tmp_path / NAMES["blanks"] / "job.yaml").write_text(yaml.safe_dump(manifest))
    output = line.run("run", "-f", "job.yaml", code=1)
    assert "ColossalAIJob odd: Failed" in output
    assert "colossalai run hands the working folder" in output
    assert "restarts: " not in output
