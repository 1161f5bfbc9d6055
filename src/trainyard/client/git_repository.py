"""The git repository that a job's code lies in: its commit at once, its changes when git is ready.

A submission waits for nothing: the commit is read from git's files, and a process of its own has
git write what was changed into the record (decision 150). In a large repository that takes long.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from trainyard.machine.secret_redaction import without_credentials
from trainyard.schema.dataclass import dataclass

STATUS = "status"
"""The file with git's status; there once git has written it in full."""
DIFF = "diff.patch"
"""The file with what was not committed; absent where nothing was, or where it is too long."""
_SECONDS = 30.0
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?\Z")
_REMOTE = re.compile(
    r'^\[remote "origin"\]\s*\n(?:[ \t]+.*\n)*?[ \t]+url\s*=\s*(\S+)', re.MULTILINE
)
WITHOUT_PROGRAMS = {
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "false",
    "GIT_CONFIG_KEY_1": "core.hooksPath",
    "GIT_CONFIG_VALUE_1": os.devnull,
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",  # locks are for the user's own git
}
"""Variables with which git runs no program that a folder's own configuration names, but filters."""
# In units of 512 bytes, as POSIX has it: 16 MiB of a diff. Filters of the folder's own
# configuration are programs too, those of the user's are wanted (git-lfs). What is dirty in a
# submodule is told by a git that reads the submodule's configuration.
_WATCH = """\
cd "$1" && ulimit -f 32768 && export LC_ALL=C || exit
keys=$(git config --show-scope --name-only --get-regexp '^filter[.].*[.](clean|process)$' |
  sed -n 's/^\\(local\\|worktree\\)\t//p')
IFS='
'
set -f
for key in $keys; do for each in "$key=" "${key%.*}.required=false"; do
  export "GIT_CONFIG_KEY_$GIT_CONFIG_COUNT=${each%=*}"
  export "GIT_CONFIG_VALUE_$GIT_CONFIG_COUNT=${each##*=}"
  export GIT_CONFIG_COUNT=$((GIT_CONFIG_COUNT + 1))
done; done
no=--ignore-submodules=dirty
timeout 60 git status --porcelain=v2 --branch $no . > "$2/status.part" || exit
timeout 60 git diff $no --no-ext-diff --no-textconv --no-color --binary HEAD . > "$2/diff.part" &&
  [ -s "$2/diff.part" ] && mv "$2/diff.part" "$2/diff.patch" || rm -f "$2/diff.part"
mv "$2/status.part" "$2/status"
"""


@dataclass(frozen=True, slots=True)
class Commit:
    """Where a folder's repository stands; fields are empty where that is not known."""

    root: str
    commit: str = ""
    branch: str = ""
    remote: str = ""


@dataclass(frozen=True, slots=True)
class Changes:
    """What was not committed in a folder."""

    changed: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    diff: str | None = None
    """What was changed; None where nothing was, or where it is too long."""

    @property
    def is_dirty(self) -> bool:
        """Whether what is under version control was changed."""
        return bool(self.changed)


def commit_of(folder: Path) -> Commit | None:
    """What git's own files say of the repository that a folder lies in; None if in none."""
    for root in (folder, *folder.parents):
        if (found := _git_folder(root / ".git")) is not None:
            break
    else:
        return None
    shared = found / _text(found / "commondir")  # of a second work tree
    head = _text(found / "HEAD")
    branch = head.removeprefix("ref: ") if head.startswith("ref: ") else ""
    commit = _resolved(branch, found, shared) if branch else head
    remote = _REMOTE.search(_text(shared / "config"))
    return Commit(
        root=str(root),
        commit=commit if _COMMIT.match(commit) else "",
        branch=branch.removeprefix("refs/heads/"),
        remote=without_credentials(remote[1]) if remote else "",
    )


def _git_folder(path: Path) -> Path | None:
    with suppress(OSError):  # somebody else's, and closed
        if path.is_dir():
            return path if (path / "HEAD").exists() else None
    text = _text(path)
    return path.parent / text.removeprefix("gitdir: ") if text.startswith("gitdir: ") else None


def _resolved(branch: str, own: Path, shared: Path) -> str:
    for folder in (own, shared):
        if found := _text(folder / branch):
            return found
    packed = re.search(rf"^(\w+) {re.escape(branch)}$", _text(shared / "packed-refs"), re.MULTILINE)
    return packed[1] if packed else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def watch_changes(folder: Path, record: Path) -> None:
    """Have git write status and diff of a folder into a record, while everything else goes on."""
    nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
    words = ["/bin/sh", "-c", _WATCH, "sh", str(folder), str(record)]
    with suppress(OSError):
        pid = os.posix_spawn(
            words[0], words, os.environ | WITHOUT_PROGRAMS, file_actions=nowhere, setsid=True
        )
        threading.Thread(target=os.waitpid, args=(pid, 0), daemon=True).start()


def changes_in(record: Path) -> Changes | None:
    """What git has written into a record; None while, or where, it is not known."""
    try:
        lines = (record / STATUS).read_text(errors="replace").splitlines()
    except OSError:
        return None
    diff = None
    with suppress(OSError):
        diff = (record / DIFF).read_text(errors="replace")
    # https://git-scm.com/docs/git-status#_porcelain_format_version_2
    changed = [_path(line) for line in lines if line[:2] in ("1 ", "2 ", "u ")]
    return Changes(tuple(changed), tuple(line[2:] for line in lines if line.startswith("? ")), diff)


def changes_now(folder: Path) -> Changes | None:
    """What is not committed in a folder now; None where git does not tell in time."""
    with tempfile.TemporaryDirectory() as record:
        words = ["/bin/sh", "-c", _WATCH, "sh", str(folder), record]
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                words,
                env=os.environ | WITHOUT_PROGRAMS,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
        return changes_in(Path(record))


def _path(line: str) -> str:
    fields = {"1": 8, "2": 9, "u": 10}[line[0]]
    return line.split(" ", fields)[fields].partition("\t")[0]
