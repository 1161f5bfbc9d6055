"""Finds the Python that a container runs: the one that the caller's shell finds (decision 120).

trainyard may be installed in an environment of its own (by ``uv tool`` or ``pipx``, or any other),
which must not hide the caller's.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

_FALLBACK_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TOOL_MARKS = ("uv-receipt.toml", "pipx_metadata.json")
_TOOL_CACHES = ("archive-v0", "pipx")
"""Folders in which `uvx` and `pipx run` keep the environments of the tools that they run."""


def find_interpreter(environment: Mapping[str, str]) -> str | None:
    """Return the path of ``python``, else ``python3``, on the PATH; None if there is neither."""
    path = environment.get("PATH", _FALLBACK_PATH)
    return shutil.which("python", path=path) or shutil.which("python3", path=path)


def environment_of_image(
    environment: Mapping[str, str],
    image: str,
    images: Iterable[tuple[str, str]],
    own: str = sys.prefix,
    program: str | None = None,
    python: str = "",
) -> dict[str, str]:
    """Return the environment variables of a container with this image.

    The first pattern (``fnmatch``) of ``images``, pairs of pattern and prefix, that matches the
    image decides; else the interpreter ``python``, if given; else the caller's environment.
    """
    for pattern, prefix in images:
        if fnmatch.fnmatchcase(image, pattern):
            return with_prefix(environment, prefix)
    called = caller_environment(environment, own, sys.argv[0] if program is None else program)
    return with_interpreter(called, python)


def active_interpreter(environment: Mapping[str, str]) -> str:
    """Return the interpreter of the environment that the caller has activated or put first on the
    PATH; "" where the caller's shell finds the system's Python."""
    python = find_interpreter(caller_environment(environment, sys.prefix, sys.argv[0]))
    return python if python is not None and is_environment(python) else ""


def foreign_package(python: str, place: str) -> tuple[str, str]:
    """What to say of a package of our import name, in `place`, that is not ours, and how to remove
    it from the environment of the interpreter `python`."""
    text = f"the trainyard in {place} is another project's package, which scripts import there"
    return text, f"{python} -m pip uninstall trainyard; this project's is trainyard-jobs"


def with_interpreter(environment: Mapping[str, str], python: str) -> dict[str, str]:
    """Put the interpreter's folder first on the PATH, if it exists and is not first yet."""
    if not python or python == find_interpreter(environment) or not os.access(python, os.X_OK):
        return dict(environment)
    return with_prefix(environment, os.path.dirname(os.path.dirname(python)))


def caller_environment(environment: Mapping[str, str], own: str, program: str) -> dict[str, str]:
    """Return the caller's environment, in which Python is found as in the caller's shell.

    ``own`` is the prefix of the environment that trainyard runs in, ``program`` how it was called
    (``sys.argv[0]``). That environment comes last on the PATH, for callers without any Python. It
    comes first only if trainyard was called by its path, has a torch beside it, and the caller's
    shell finds no other environment.
    """
    env = dict(environment)
    active = env.get("VIRTUAL_ENV") or env.get("CONDA_PREFIX") or ""
    folders = env.get("PATH", _FALLBACK_PATH).split(":")
    mine = f"{own}/bin"
    if _is_tool(own) and env.get("VIRTUAL_ENV") != own:  # uvx puts it into the PATH
        folders = [folder for folder in folders if folder.rstrip("/") != mine]
    env["PATH"] = ":".join(folders)
    if active and f"{active}/bin" not in folders and os.access(f"{active}/bin/python", os.X_OK):
        return with_prefix(env, active)
    if mine in folders:
        return env
    if not active and _is_meant(own, program) and not is_environment(find_interpreter(env)):
        return with_prefix(env, own)
    return env | {"PATH": ":".join([*folders, mine])}


def with_prefix(environment: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the environment with the Python of ``prefix`` activated."""
    prefix = os.path.abspath(prefix)
    env = dict(environment)
    env["PATH"] = f"{prefix}/bin:{env.get('PATH', _FALLBACK_PATH)}"
    for variable, mark in (("VIRTUAL_ENV", "pyvenv.cfg"), ("CONDA_PREFIX", "conda-meta")):
        env.pop(variable, None)
        if os.path.exists(f"{prefix}/{mark}"):
            env[variable] = prefix
    env.pop("PYTHONHOME", None)
    return env


@functools.cache
def _is_tool(prefix: str) -> bool:
    folder = Path(prefix)
    return any((folder / mark).exists() for mark in _TOOL_MARKS) or any(
        cache in folder.parts for cache in _TOOL_CACHES
    )


def _is_meant(own: str, program: str) -> bool:
    """Whether trainyard was called by its path in an environment for training."""
    if os.path.dirname(os.path.abspath(program)) != f"{own}/bin":
        return False
    return _has_torch(own) and not _is_tool(own)


@functools.cache
def _has_torch(own: str) -> bool:
    return any(Path(own).glob("lib*/python*/site-packages/torch/version.py"))


def is_environment(python: str | None) -> bool:
    """Whether an interpreter belongs to a virtual environment or to conda."""
    if python is None:
        return False
    prefix = Path(python).parent.parent
    return (prefix / "pyvenv.cfg").exists() or (prefix / "conda-meta").exists()
