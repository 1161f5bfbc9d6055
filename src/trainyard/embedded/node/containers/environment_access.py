"""Lets users that are not root reach a Python that lies in a folder which they may not enter.

On a cluster of root's, whose Python lies below `/root` (pyenv, conda), a pod with `runAsUser` finds
it as it would find that of an image: in the pod an empty folder covers the closed one, and of it
the environment alone is mounted there, read-only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from trainyard.embedded.node.containers.container_environment import Warn
from trainyard.embedded.node.volumes import host_folders
from trainyard.machine import interpreters
from trainyard.podruntime.filesystem import safe_paths
from trainyard.podruntime.protocol import Bind, Program

_PATHS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")


def environment_binds(program: Program, pod_folder: str, warn: Warn) -> list[Bind]:
    """Mounts by which the program's user reaches its Python, its programs and its libraries; none
    for root, where nothing is closed, and where the working folder itself is what is closed."""
    if not program.user:
        return []
    needed = dict.fromkeys(
        each for each in _needed(program.env) if os.path.isdir(each) and _closed(each, program)
    )
    inside = {each: _closed(each, program) for each in needed}
    covered = sorted({closed for closed in inside.values() if closed != program.cwd})
    if not covered:
        return []
    shown = [each for each, closed in inside.items() if closed in covered]
    shown = [each for each in shown if not any(_is_within(each, other) for other in shown)]
    binds = []
    for number, closed in enumerate(covered):
        empty = os.path.join(pod_folder, f"closed-{number}")
        host_folders.ensure_folder(empty)
        binds.append(Bind(closed, empty, private=True))
    warn(
        "EnvironmentShown",
        f"user {program.user} may not enter {', '.join(covered)}: of it the pod sees "
        f"{', '.join(shown)} alone, read-only",
    )
    return [*binds, *(Bind(each, each, read_only=True) for each in shown)]


def _needed(env: dict[str, str]) -> Iterator[str]:
    """The folders of the Python and of the search paths, without links."""
    python = interpreters.find_interpreter(env)
    for path in _links(python) if python else ():
        prefix = os.path.dirname(os.path.dirname(path))
        yield prefix
        if home := _home(prefix):
            yield os.path.dirname(safe_paths.real_path(home))
    for variable in _PATHS:
        for folder in env.get(variable, "").split(":"):
            if folder.startswith("/"):
                yield safe_paths.real_path(folder)


def _home(prefix: str) -> str:
    """Where the Python lies of which this is a virtual environment; "" if it is none."""
    with contextlib.suppress(OSError), open(f"{prefix}/pyvenv.cfg", encoding="utf-8") as file:
        for line in file:
            name, _, value = line.partition("=")
            if name.strip() == "home":
                return value.strip()
    return ""


def _links(path: str) -> Iterator[str]:
    """A file and what its links lead to, one after another, each in a folder without links."""
    for _ in range(40):  # as the kernel follows
        path = os.path.join(safe_paths.real_path(os.path.dirname(path)), os.path.basename(path))
        yield path
        if not os.path.islink(path):
            return
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))


def _closed(path: str, program: Program) -> str:
    """The first folder above a path that the program's user may not enter; "" if there is none."""
    ends = (at for at, letter in enumerate(path) if letter == "/" and at)
    return next((path[:at] for at in ends if not _may_enter(path[:at], program)), "")


def _may_enter(folder: str, program: Program) -> bool:
    found = os.stat(folder)
    if found.st_uid == program.user:
        return bool(found.st_mode & 0o100)
    groups: Iterable[int | None] = (program.group, *program.groups)
    return bool(found.st_mode & (0o010 if found.st_gid in groups else 0o001))


def _is_within(path: str, other: str) -> bool:
    return path.startswith(f"{other}/")
