"""A copy of the code that a job runs, made when it is submitted: later edits do not reach it.

In a git repository it holds what git tracks, as it is now, and what is neither tracked nor ignored;
elsewhere everything but what nobody edits.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from trainyard.client.cluster_target import CommandError
from trainyard.client.git_repository import WITHOUT_PROGRAMS
from trainyard.schema.dataclass import dataclass

MOST_BYTES = 256 << 20
MOST_FILES = 20_000
_NOT_EDITED = """
.git .hg .svn .venv venv __pycache__ node_modules .tox .nox .mypy_cache .pytest_cache .ruff_cache
.ipynb_checkpoints .eggs *.egg-info *.pyc wandb mlruns lightning_logs
"""
_LEFT_OUT = _NOT_EDITED.split()
_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")
"""Marks of the folder of a Python environment."""
_GIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy of a folder."""

    folder: Path
    files: tuple[str, ...]
    """From that folder."""
    size: int
    """Bytes."""

    def __str__(self) -> str:
        kib = max(self.size >> 10, 1)
        size = f"{kib} KiB" if kib < 1024 else f"{kib / 1024:.1f} MiB"
        return f"{len(self.files)} file{'s' if len(self.files) != 1 else ''}, {size}"


def copy_code(
    source: Path, target: Path, *, without: Path | None = None, files: Sequence[str] = ()
) -> Copied:
    """Copy the code in `source` to the new folder `target`, or of it these files; `without` is
    a folder that is not copied.

    Raises CommandError where it is too much, or cannot be read.
    """
    wanted, has_git = (list(files), True) if files else _code(source, without)
    size = _check(source, wanted, has_git=has_git)
    try:
        target.mkdir(mode=0o700)
        for name in wanted:
            _copy(source / name, target / name, source)
    except OSError as error:
        raise CommandError(
            f"cannot copy {error.filename or source}: {(error.strerror or '').lower()}"
        ) from error
    return Copied(target, tuple(wanted), size)


def _code(folder: Path, without: Path | None) -> tuple[list[str], bool]:
    """The names of files of code, and whether git told them."""
    tracked = _tracked(folder)
    names = sorted(_walked(folder) if tracked is None else tracked)
    hidden = f"{os.path.realpath(without)}/" if without else "//"
    wanted = [n for n in names if not os.path.realpath(folder / n).startswith(hidden)]
    return wanted, tracked is not None


def _tracked(folder: Path) -> list[str] | None:
    """What git has there, or would add; None where there is no repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | WITHOUT_PROGRAMS,
            capture_output=True,
            timeout=_GIT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    names = dict.fromkeys(os.fsdecode(done.stdout).split("\0"))
    found = [name for name in names if name and os.path.lexists(folder / name)]
    submodules = [n for n in found if (folder / n).is_dir() and not (folder / n).is_symlink()]
    inside = [f"{name}/{each}" for name in submodules for each in _tracked(folder / name) or ()]
    return [name for name in found if name not in submodules] + inside


def _walked(folder: Path) -> Iterator[str]:
    for here, folders, files in os.walk(folder):
        place = os.path.relpath(here, folder)
        folders[:] = [f for f in folders if not _is_left_out(os.path.join(here, f), f)]
        links = [f for f in folders if os.path.islink(os.path.join(here, f))]
        for name in (*links, *files):
            if not any(fnmatchcase(name, pattern) for pattern in _LEFT_OUT):
                yield os.path.normpath(os.path.join(place, name))


def _is_left_out(path: str, name: str) -> bool:
    if any(fnmatchcase(name, pattern) for pattern in _LEFT_OUT):
        return True
    return any(os.path.exists(os.path.join(path, mark)) for mark in _ENVIRONMENTS)


def _check(folder: Path, names: list[str], *, has_git: bool) -> int:
    """The size of these files; raises CommandError where they are no code any more."""
    sizes: Counter[str] = Counter()
    for name in names:
        with suppress(OSError):
            sizes[name.split("/")[0]] += (folder / name).lstat().st_size
    total = sizes.total()
    if total <= MOST_BYTES and len(names) <= MOST_FILES:
        return total
    largest = ", ".join(f"{name} ({size >> 20} MiB)" for name, size in sizes.most_common(3))
    how = "name them in .gitignore" if has_git else "make it a git repository with a .gitignore"
    raise CommandError(
        f"--snapshot: {folder} holds {len(names)} files of {total >> 20} MiB, which is more than "
        f"code ({MOST_FILES} files, {MOST_BYTES >> 20} MiB): {how}, or move data elsewhere; the "
        f"largest are {largest}"
    )


def _copy(source: Path, target: Path, root: Path) -> None:
    """A link that leads out of the folder goes on leading there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        link = os.readlink(source)
        leads_to = os.path.normpath(source.parent / link)
        is_inside = f"{leads_to}/".startswith(f"{root}/")
        os.symlink(link if is_inside and not os.path.isabs(link) else leads_to, target)
    elif source.is_file():
        shutil.copy2(source, target)
