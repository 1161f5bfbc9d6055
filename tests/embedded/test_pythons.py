"""A replica runs the Python that the caller's shell would run, wherever trainyard itself lives."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainyard as package
from tests.embedded.command_line import CommandLine, job, shell

_TELL = shell('echo "python: $(command -v python) $(python -c "import sys; print(sys.prefix)")"')
_EXECUTABLE = "import sys; print(sys.executable, sys.prefix)"


@pytest.fixture
def trainyard(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        line.environment.pop(name, None)
    yield line
    line.kill_everything()


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """trainyard in an environment of its own, as `uv tool install` leaves it: the script."""
    folder = tmp_path / "tools" / "trainyard"
    venv.create(folder, with_pip=False)
    (folder / "uv-receipt.toml").touch()
    (packages,) = folder.glob("lib/python*/site-packages")
    paths = [Path(package.__file__).parents[1], sysconfig.get_path("purelib")]
    (packages / "all.pth").write_text("\n".join(map(str, paths)))
    script = folder / "bin" / "trainyard"
    script.write_text(
        f"#!{folder}/bin/python\nfrom trainyard.cli.main import main\nif __name__ == '__main__':\n"
        "    main()\n"
    )
    script.chmod(0o755)
    link = tmp_path / "local" / "trainyard"
    link.parent.mkdir()
    link.symlink_to(script)
    return script


def conda_style(folder: Path) -> Path:
    """A prefix as conda makes it: an interpreter, no pyvenv.cfg."""
    (folder / "bin").mkdir(parents=True)
    (folder / "conda-meta").mkdir()
    base = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
    python = folder / "bin" / "python"
    library = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    library.parent.mkdir()
    library.symlink_to(sysconfig.get_path("stdlib"))
    python.write_text(f'#!/bin/sh\nexport PYTHONHOME={folder}\nexec {base} "$@"\n')
    python.chmod(0o755)
    return folder


def pyenv_style(root: Path) -> tuple[Path, Path]:
    """Shims as pyenv makes them, which choose by a variable, and the version that `mine` names."""
    shims, version = root / "shims", root / "versions" / "mine"
    shims.mkdir(parents=True)
    venv.create(version, with_pip=False)
    shim = shims / "python"
    shim.write_text(
        '#!/bin/sh\nexec "$PYENV_ROOT/versions/${PYENV_VERSION:-none chosen}/bin/python" "$@"\n'
    )
    shim.chmod(0o755)
    return shims, version


def test_replicas_run_the_python_of_the_callers_shell(
    trainyard: CommandLine, tool: Path, tmp_path: Path
) -> None:
    command = ["python", "-c", _EXECUTABLE]
    file = trainyard.manifest("m.yaml", job("tell", command))
    shims, version = pyenv_style(tmp_path / "pyenv")
    pyenv = {"PYENV_ROOT": str(tmp_path / "pyenv"), "PYENV_VERSION": "mine"}
    plain, uv, conda = tmp_path / "plain", tmp_path / "uv", conda_style(tmp_path / "conda")
    venv.create(plain, with_pip=False)
    subprocess.run(
        [sys.executable, "-m", "uv", "venv", "-q", "--python", sys.executable, str(uv)], check=True
    )
    rest = os.environ["PATH"]
    linked = str(tmp_path / "local" / "trainyard")
    for called, prefix, variables in (
        (linked, plain, {"PATH": f"{plain}/bin:{rest}", "VIRTUAL_ENV": str(plain)}),
        (linked, uv, {"PATH": rest, "VIRTUAL_ENV": str(uv)}),
        (str(tool), conda, {"PATH": f"{conda}/bin:{rest}", "CONDA_PREFIX": str(conda)}),
        (str(tool), plain, {"PATH": f"{plain}/bin:{conda}/bin:{rest}"}),
        (linked, version, {"PATH": f"{shims}:{rest}", **pyenv}),
    ):
        environment = trainyard.environment | variables
        own = f"{variables.get('VIRTUAL_ENV', '/nowhere')}/bin:{variables['PATH']}"
        shells = subprocess.run(
            command, env=environment | {"PATH": own}, capture_output=True, text=True, check=True
        ).stdout
        assert shells.endswith(f" {prefix}\n")
        done = subprocess.run(
            [called, "run", "-f", file],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"[worker-0] {shells}" in done.stdout, "what the caller's own shell runs"


@pytest.mark.parametrize("name", ["trainyard.py", "trainyard/__init__.py"])
def test_another_projects_package_of_our_name_is_found_before_anything_runs(
    trainyard: CommandLine, tool: Path, tmp_path: Path, name: str
) -> None:
    theirs = tmp_path / "theirs"
    venv.create(theirs, with_pip=False)
    (packages,) = theirs.glob("lib/python*/site-packages")
    (packages / name).parent.mkdir(exist_ok=True)
    (packages / name).write_text("raise SystemExit('another project')\n")
    file = trainyard.manifest("m.yaml", job("tell", ["python", "-c", "import trainyard"]))
    environment = trainyard.environment | {"PATH": f"{theirs}/bin:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    outputs = {}
    for command in (("run", "-f", file), ("doctor",)):
        done = subprocess.run(
            [str(tool), *command], env=environment, cwd=tmp_path, capture_output=True, text=True
        )
        outputs[command[0]] = " ".join((done.stdout + done.stderr).split())
    assert str(packages / name) in outputs["run"].partition("another project's package")[0]
    assert str(packages / name) in outputs["doctor"].replace(" ", "").replace("problem", "")
    assert "this project's is trainyard-jobs" in outputs["doctor"]


def test_an_environment_for_an_image_brings_its_python(
    trainyard: CommandLine, tmp_path: Path
) -> None:
    folder = tmp_path / "image"
    venv.create(folder, with_pip=False)
    file = trainyard.manifest("m.yaml", job("tell", _TELL))
    output = trainyard.run("run", "-f", file, "--image", f"busy*={folder}")
    assert f"python: {folder}/bin/python {folder}\n" in output


def test_a_job_for_the_cluster_that_is_up_runs_in_the_environment_of_who_submits_it(
    trainyard: CommandLine, tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    venv.create(folder, with_pip=False)
    (tmp_path / "tell.py").write_text("import sys\nprint('in', sys.prefix)\n")
    trainyard.run("up")
    try:
        inside = f"{trainyard.environment['PATH']}"
        assert f"in {sys.prefix}\n" in trainyard.run("run", "tell.py")
        trainyard.environment["PATH"] = f"{folder}/bin:{inside}"
        output = trainyard.run("run", "tell.py")
        assert f"in {folder}\n" in output
        assert f"({folder}/bin/python)" in output.splitlines()[0]
        trainyard.environment["PATH"] = "/usr/bin:/bin"
        output = trainyard.run("run", "tell.py")
        assert f"in {sys.prefix}\n" in output, "a shell without an environment has no say"
        assert sys.prefix in output.splitlines()[0]
    finally:
        trainyard.run("down")


def test_a_job_finds_programs_and_libraries_as_the_shell_that_submits_it(
    trainyard: CommandLine,
) -> None:
    """And not as the shell did that started the cluster."""
    for place in ("theirs", "ours"):
        folder = trainyard.folder / place
        folder.mkdir()
        (folder / "place.py").write_text(f"name = {place!r}\n")
        (folder / "tell-place").write_text(f"#!/bin/sh\necho program {place}\n")
        (folder / "tell-place").chmod(0o755)
    path = trainyard.environment["PATH"]
    for place in ("theirs", "ours"):
        trainyard.environment |= {
            "PATH": f"{trainyard.folder / place}:{path}",
            "PYTHONPATH": str(trainyard.folder / place),
            "LD_LIBRARY_PATH": f"/{place}",
        }
        if place == "theirs":
            trainyard.run("up")
    script = trainyard.folder / "x.py"
    script.write_text(
        "import os, place, subprocess\n"
        "subprocess.run(['tell-place'])\n"
        "print('module', place.name, os.environ['LD_LIBRARY_PATH'])\n"
    )
    output = trainyard.run("run", "x.py")
    assert "program ours" in output
    assert "module ours /ours" in output
    del trainyard.environment["PYTHONPATH"], trainyard.environment["LD_LIBRARY_PATH"]
    script.write_text(
        "import os, sys\nprint('left', os.environ.get('LD_LIBRARY_PATH'), sys.path)\n"
    )
    output = trainyard.run("run", "x.py")
    assert "left None" in output
    assert "theirs" not in output
    trainyard.run("down")
