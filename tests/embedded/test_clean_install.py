"""From nothing but torch to a training on four replicas: how many commands it takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.tools import require, soak

_ROOT = Path(__file__).parents[2]
_TRAINING = (
    "torch",
    "torchgen",
    "functorch",
    "sklearn",
    "scipy",
    "joblib",
    "cloudpickle",
    "narwhals",
)
_OF_TORCH = ("numpy", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "filelock", "fsspec")


@pytest.mark.skipif(not soak(0, 1), reason="takes minutes, and an index of packages")
def test_two_commands_train_on_four_replicas(tmp_path: Path) -> None:
    require("torchrun")
    wheel = _wheel(tmp_path)
    env = tmp_path / "env"
    venv.create(env, with_pip=True)
    _lend(env)
    folder = tmp_path / "work"
    folder.mkdir()
    shutil.copy(_ROOT / "examples" / "ddp-torchrun" / "train.py", folder)
    commands = (
        ["pip", "install", "-q", str(wheel)],
        ["trainyard", "run", "--replicas", "4", "train.py", "--epochs", "5"],
    )
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    path = f"{env}/bin:/usr/local/bin:/usr/bin:/bin"
    for command in commands:
        done = subprocess.run(
            command,
            executable=env / "bin" / command[0],
            env={**kept, **pip, "PATH": path, "TRAINYARD_STATE_DIR": str(tmp_path / "state")},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert f"({env}/bin/python)" in done.stdout.splitlines()[0]
    assert "[worker-0] test accuracy 0." in done.stdout
    assert "PyTorchTrainingJob train: Succeeded" in done.stdout
    assert [path.name for path in folder.iterdir()] == ["train.py"], "no file written by hand"


@pytest.mark.skipif(not soak(0, 1), reason="takes minutes, and an index of packages")
def test_a_tool_of_its_own_trains_with_the_python_of_the_shell(tmp_path: Path) -> None:
    """`uv tool install`, `uvx` and `pipx` as people use them; `python -m trainyard`."""
    wheel = _wheel(tmp_path)
    uv = [str(Path(sys.executable).with_name("uv")), "tool"]
    mine, tools, pipx = tmp_path / "mine", tmp_path / "bin", tmp_path / "pipx"
    venv.create(mine, with_pip=True)
    venv.create(pipx, with_pip=True)
    subprocess.run([pipx / "bin" / "pip", "install", "-q", "pipx"], check=True)
    (tmp_path / "tell.py").write_text("import sys\nprint('runs', sys.executable)\n")
    environment = {
        **os.environ,
        "PATH": f"{mine}/bin:/usr/local/bin:/usr/bin:/bin",
        "TRAINYARD_STATE_DIR": str(tmp_path / "state"),
        "UV_TOOL_DIR": str(tmp_path / "uv-tools"),
        "UV_TOOL_BIN_DIR": str(tools),
        "PIPX_HOME": str(tmp_path / "pipx-home"),
        "PIPX_BIN_DIR": str(tmp_path / "pipx-bin"),
    }
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX"):
        environment.pop(name, None)
    python = ["--python", sys.executable]
    in_pipx = [str(pipx / "bin" / "pipx"), "install", "-q", *python, str(wheel)]
    for install, trainyard in (
        ([*uv, "install", "-q", *python, str(wheel)], [str(tools / "trainyard")]),
        ([], [*uv, "run", "-q", *python, "--from", str(wheel), "trainyard"]),
        (in_pipx, [str(tmp_path / "pipx-bin" / "trainyard")]),
        (["pip", "install", "-q", str(wheel)], ["python", "-m", "trainyard"]),
    ):
        for command in filter(None, (install, [*trainyard, "run", "tell.py"])):
            done = subprocess.run(
                command,
                executable=mine / "bin" / command[0] if "/" not in command[0] else None,
                env=environment,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=900,
            )
            assert done.returncode == 0, (command, done.stdout + done.stderr)
        assert f"[worker-0] runs {mine}/bin/python\n" in done.stdout, trainyard


def _wheel(folder: Path) -> Path:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=_ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _lend(env: Path) -> None:
    """torch, and what the example's script needs beside it, of the environment of the tests."""
    theirs = Path(sysconfig.get_path("purelib"))
    (packages,) = env.glob("lib/python*/site-packages")
    for name in (*_TRAINING, *_OF_TORCH):
        for found in (theirs / name, *theirs.glob(f"{name}-*.dist-info"), theirs / f"{name}.libs"):
            if found.exists():
                (packages / found.name).symlink_to(found)
    for name in ("typing_extensions.py", "threadpoolctl.py"):
        (packages / name).symlink_to(theirs / name)
