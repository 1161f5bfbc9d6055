"""Decides which folders of the host a pod may see, and which names may become part of a path."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable

from trainyard.machine.state_folder import state_folder
from trainyard.schema.errors import TrainyardError

_SYSTEM = "/ /bin /boot /dev /etc /lib /lib64 /opt /proc /run /sbin /sys /usr /usr/local /var"
SYSTEM_FOLDERS = _SYSTEM.split()
"""Never opened to a pod's writes as a whole."""
_MAX_LINKS = 40  # as many as the kernel follows


class PodRefused(TrainyardError):
    """Something in a pod's spec is impossible on this machine; the text says why."""


def path_component(name: str) -> str:
    """``name``, which becomes one component of a path; raises Refused if it is more than that.

    Admission has seen to it already; an object stored by an earlier version has not been admitted.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise PodRefused(f"{name[:80]!r} cannot be the name of a file")
    return name


def relative_path(path: str, what: str) -> str:
    """A path within a volume, without needless parts; raises Refused if it leaves the volume."""
    clean = os.path.normpath(path)
    if os.path.isabs(path) or clean.split("/")[0] == ".." or "\0" in path:
        raise PodRefused(f"{what}: path {path!r} leaves the volume")
    return "" if clean == "." else clean


def ensure_folder(path: str) -> bool:
    """Make a folder of our own with its parents; returns whether it was missing."""
    try:
        os.mkdir(path)  # in half the time of `makedirs`, which looks first
    except FileExistsError:
        return False
    except FileNotFoundError:
        os.makedirs(path, exist_ok=True)
    return True


def real_folder(path: str) -> str | None:
    """The folder behind ``path``; None if a link that a pod may have made leads there.

    Decision 77.

    A link is as good as a folder only in one of the system's own folders, which no pod writes.
    """
    todo, done = path.split("/")[::-1], "/"
    links = 0
    while todo:
        part = todo.pop()
        if part == "..":
            done = os.path.dirname(done)
        elif part not in ("", "."):
            step = os.path.join(done, part)
            if not os.path.islink(step):
                done = step
                continue
            links += 1
            if done not in SYSTEM_FOLDERS or links > _MAX_LINKS:
                return None
            target = os.readlink(step)
            done = "/" if target.startswith("/") else done
            todo += target.split("/")[::-1]
    return done


def containing_folder(path: str, folders: Iterable[str]) -> str:
    """The one of ``folders`` that ``path`` is or lies in; "" if it is none of them."""
    return next((f for f in folders if f"{path}/".startswith(f"{f.rstrip('/')}/")), "")


_CODE = re.compile(r"/(runs/[^/]+/)?submissions/[^/]+/code(/|\Z)")


def is_submitted_code(path: str, folder: str) -> bool:
    """Whether a path in a cluster's ``folder`` is submitted code, which pods see (decision 152)."""
    return _CODE.match(path.removeprefix(folder.rstrip("/"))) is not None


def cluster_folders() -> tuple[str, ...]:
    """State folders of clusters, which pods do not see: this user's; for root every user's.

    Decision 78.
    """
    found = {os.path.realpath(state_folder())}
    if os.geteuid() == 0:
        homes = {entry.pw_dir for entry in pwd.getpwall() if entry.pw_dir not in ("", "/")}
        usual = (os.path.join(home, ".local/state/trainyard") for home in homes)
        found |= {os.path.realpath(path) for path in usual}
    return tuple(sorted(found))
