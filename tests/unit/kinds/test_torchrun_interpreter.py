"""Which interpreter the launch by torchrun takes, by the PATH of the container."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from trainyard.kinds.pytorch.torchrun_launch import command

_PYTHON = """\
#!/bin/sh
case $2 in
*'find_spec("torch")'*) exit {code} ;;
esac
echo "{name} $3"
"""


def python(folder: Path, *, torch: bool = True, name: str = "python3") -> None:
    """A Python that tells its folder and its first argument instead of running a program."""
    folder.mkdir(exist_ok=True)
    text = _PYTHON.format(code=0 if torch else 1, name=folder.name)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def torchrun(folder: Path, first_line: str) -> None:
    """torchrun as pip installs it."""
    folder.mkdir(exist_ok=True)
    (folder / "torchrun").write_text(f"{first_line}\nimport sys\n")
    (folder / "torchrun").chmod(0o755)


def taken(*folders: Path) -> str:
    """What the launch runs with this PATH."""
    done = subprocess.run(
        [*command(elastic=False), "train.py"],
        env={"PATH": ":".join(map(str, folders)), "python": "inherited"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout.strip() or done.stderr.strip()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A folder with torchrun and its Python."""
    folder = tmp_path / "with space"
    python(folder)
    torchrun(folder, "#!/bin/sh")
    return folder


def test_torchruns_own_interpreter_is_taken(tmp_path: Path, image: Path) -> None:
    python(tmp_path / "other")
    torchrun(tmp_path / "bin", f"#!{tmp_path}/other/python3")
    assert taken(tmp_path / "bin", image) == "other train.py"
    assert taken(image, tmp_path / "bin") == "with space train.py", "its first line is no Python"


def test_a_python_with_torch_that_comes_first_is_taken(tmp_path: Path, image: Path) -> None:
    python(tmp_path / "env", name="python")
    assert taken(tmp_path / "env", image) == "env train.py"


def test_a_python_without_torch_is_passed_over(tmp_path: Path, image: Path) -> None:
    python(tmp_path / "system", torch=False)
    assert taken(tmp_path / "system", image) == "with space train.py"


def test_without_any_torchrun_the_first_python_runs_its_module(tmp_path: Path) -> None:
    python(tmp_path / "env")
    assert taken(tmp_path / "nowhere", tmp_path / "env") == "env train.py"
    assert "neither torchrun nor python in its PATH" in taken(tmp_path / "nowhere")
