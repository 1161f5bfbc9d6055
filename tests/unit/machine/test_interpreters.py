"""Which Python containers run: the one that the caller's shell would."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.embedded.node.containers.container_environment import image_environment
from trainyard.embedded.node.node_settings import NodeSettings
from trainyard.machine.interpreters import (
    caller_environment,
    find_interpreter,
    with_interpreter,
    with_prefix,
)


def prefix(folder: Path, *marks: str, torch: bool = False, names: tuple[str, ...] = ()) -> str:
    """A folder that looks like the prefix of a Python; `marks` are files in it."""
    (folder / "bin").mkdir(parents=True)
    for name in names or ("python", "python3"):
        (folder / "bin" / name).touch(0o755)
    for mark in marks:
        (folder / mark).touch()
    if torch:
        version = folder / "lib/python3.12/site-packages/torch/version.py"
        version.parent.mkdir(parents=True)
        version.touch()
    return str(folder)


def test_what_comes_first_in_the_callers_path_stays_first(tmp_path: Path) -> None:
    own, chosen = prefix(tmp_path / "own", "pyvenv.cfg", torch=True), prefix(tmp_path / "chosen")
    env = caller_environment({"PATH": f"{chosen}/bin:{own}/bin:/bin"}, own, f"{own}/bin/trainyard")
    assert env["PATH"] == f"{chosen}/bin:{own}/bin:/bin"
    assert find_interpreter(env) == f"{chosen}/bin/python"


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta"])
def test_no_environment_of_trainyards_own_comes_before_one_in_the_path(
    tmp_path: Path, mark: str
) -> None:
    own, chosen = prefix(tmp_path / "own", torch=True), prefix(tmp_path / "chosen", mark)
    env = caller_environment({"PATH": f"{chosen}/bin:/bin"}, own, f"{own}/bin/trainyard")
    assert env["PATH"] == f"{chosen}/bin:/bin:{own}/bin"


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_active_environment_that_is_not_in_the_path_comes_first(
    tmp_path: Path, variable: str
) -> None:
    own, active = prefix(tmp_path / "own", torch=True), prefix(tmp_path / "active", "pyvenv.cfg")
    env = caller_environment({"PATH": "/bin", variable: active}, own, f"{own}/bin/trainyard")
    assert find_interpreter(env) == f"{active}/bin/python"
    assert env["VIRTUAL_ENV"] == active


def test_an_environment_with_torch_that_is_called_by_its_path_is_meant(tmp_path: Path) -> None:
    own = prefix(tmp_path / "own", "pyvenv.cfg", torch=True)
    env = caller_environment({"PATH": "/bin"}, own, f"{own}/bin/trainyard")
    assert env["PATH"] == f"{own}/bin:/bin"
    assert env["VIRTUAL_ENV"] == own


@pytest.mark.parametrize(
    ("marks", "torch", "program"),
    [
        (["pyvenv.cfg"], False, "own/bin/trainyard"),
        (["pyvenv.cfg"], True, "elsewhere/trainyard"),
        (["pyvenv.cfg", "uv-receipt.toml"], True, "own/bin/trainyard"),
        (["pyvenv.cfg", "pipx_metadata.json"], True, "own/bin/trainyard"),
    ],
    ids=["no torch", "found by the PATH", "uv tool", "pipx"],
)
def test_an_environment_for_trainyard_alone_comes_last(
    tmp_path: Path, marks: list[str], torch: bool, program: str
) -> None:
    own, system = prefix(tmp_path / "own", *marks, torch=torch), prefix(tmp_path / "system")
    env = caller_environment({"PATH": f"{system}/bin"}, own, str(tmp_path / program))
    assert env["PATH"] == f"{system}/bin:{own}/bin"
    assert "VIRTUAL_ENV" not in env


def test_what_uvx_puts_into_the_path_is_taken_out(tmp_path: Path) -> None:
    own = prefix(tmp_path / "uv" / "archive-v0" / "abc", "pyvenv.cfg", torch=True)
    system = prefix(tmp_path / "system")
    env = caller_environment({"PATH": f"{own}/bin:{system}/bin"}, own, f"{own}/bin/trainyard")
    assert find_interpreter(env) == f"{system}/bin/python"
    activated = {"PATH": f"{own}/bin:/bin", "VIRTUAL_ENV": own}
    env = caller_environment(activated, own, f"{own}/bin/trainyard")
    assert find_interpreter(env) == f"{own}/bin/python", "uv run --with"


def test_a_machine_that_calls_it_python3_has_one_too(tmp_path: Path) -> None:
    system = prefix(tmp_path / "system", names=("python3",))
    assert find_interpreter({"PATH": f"{system}/bin"}) == f"{system}/bin/python3"
    assert find_interpreter({"PATH": str(tmp_path)}) is None


def test_an_images_environment_comes_before_an_active_one(tmp_path: Path) -> None:
    image = prefix(tmp_path / "image", "conda-meta")
    caller = {"PATH": "/bin", "VIRTUAL_ENV": "/venv", "PYTHONHOME": "/home"}
    images = (("other/*", "/other"), ("torch*", image))
    settings = NodeSettings("n", str(tmp_path), environment=caller, images=images, gpus=())
    env = image_environment("torch:2", settings)
    assert env == {"PATH": f"{image}/bin:/bin", "CONDA_PREFIX": image}
    assert with_prefix(caller, image) == env


def test_the_environment_of_who_submits_comes_before_that_of_the_cluster(tmp_path: Path) -> None:
    own, theirs = prefix(tmp_path / "own"), prefix(tmp_path / "theirs", "pyvenv.cfg")
    env = with_interpreter({"PATH": f"{own}/bin"}, f"{theirs}/bin/python")
    assert find_interpreter(env) == f"{theirs}/bin/python"
    assert env["VIRTUAL_ENV"] == theirs
    for same in ("", f"{own}/bin/python", str(tmp_path / "nowhere")):
        assert with_interpreter({"PATH": f"{own}/bin"}, same) == {"PATH": f"{own}/bin"}
