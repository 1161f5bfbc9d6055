"""Tests with every Python that trainyard promises and this machine has: `make matrix`.

Looked for are python3.11 to python3.14 in the PATH, and pyenv's. Each gets an environment of its
own with the locked versions, in .cache/matrix. What is not found is said, and is no failure: CI
runs what can be had. `--all` runs all unit tests instead of a selection.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_LOCK = _ROOT / "requirements" / "dev.lock"
_OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
_QUICK = (
    "tests/unit/schema",
    "tests/unit/kube",
    "tests/unit/api/test_capture.py::test_a_function_takes_what_it_names_along",
    "tests/embedded/test_scripts.py::test_any_program_runs_with_folders_variables_and_restarts",
    "tests/embedded/test_scripts.py::test_a_module_that_is_missing_is_said_before_anything_starts",
)
_ALL = ("tests/unit",)


def interpreter(version: str) -> str | None:
    """Where this Python is, if it is here and runs."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser() / "versions"
    candidates = [
        shutil.which(f"python{version}") or "",
        *map(str, sorted(pyenv.glob(f"{version}.*/bin/python"))),
    ]
    question = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, candidates):
        done = subprocess.run(
            [candidate, "-c", question], capture_output=True, text=True, check=False
        )
        if done.stdout.strip() == version:
            return candidate
    return None


def environment(version: str, python: str) -> Path:
    """An environment with the locked versions, made unless it is there."""
    key = hashlib.sha256(_LOCK.read_bytes()).hexdigest()[:16]
    folder = _ROOT / ".cache" / "matrix" / f"{version}-{key}"
    if not (folder / "complete").exists():
        uv = str(Path(sys.executable).with_name("uv"))
        subprocess.run([uv, "venv", "-q", "--clear", "--python", python, str(folder)], check=True)
        install = [uv, "pip", "install", "-q", "--require-hashes"]
        into = ["--python", str(folder / "bin" / "python"), "-r", str(_LOCK)]
        subprocess.run([*install, *into], check=True)
        (folder / "complete").touch()
    return folder


def test(folder: Path, tests: tuple[str, ...]) -> int:
    """The exit code of the tests in this environment."""
    variables = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(_ROOT / "src"),
        "VIRTUAL_ENV": str(folder),
    }
    command = [
        str(folder / "bin" / "python"),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    return subprocess.run(command, env=variables, cwd=_ROOT, check=False).returncode


def main(arguments: list[str]) -> int:
    """Run the tests with each; 1 where some failed."""
    tests, failed = (_ALL if "--all" in arguments else _QUICK), []
    for version in VERSIONS:
        if version == _OWN and "--all" not in arguments:
            print(f"Python {version}: runs all other tests", flush=True)
            continue
        python = interpreter(version)
        if python is None:
            print(f"Python {version}: not found on this machine, not judged", flush=True)
            continue
        print(f"Python {version}: {python}", flush=True)
        if test(environment(version, python), tests):
            failed.append(version)
    print(f"failed with Python {', '.join(failed)}" if failed else "all that were found passed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
