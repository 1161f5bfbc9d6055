"""Mounted as ``sitecustomize.py``: starts the observer with the library that ranks meet by.

A crash (SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL) leaves its Python stack where the container's end
is told from. Then the user's own ``sitecustomize`` is imported, if there is one. Until that comes
nothing else is loaded, which keeps the start of every Python in the pod quick. Standard library,
Python 3.8.
"""

from __future__ import annotations

import os
import sys
from _frozen_importlib import module_from_spec
from _frozen_importlib_external import PathFinder

TYPE_CHECKING = False  # that of typing takes 8 ms to import, which no Python does by itself
if TYPE_CHECKING:
    from typing import Any

OBSERVE = os.environ.get("TRAINYARD_OBSERVE")
"""See `rank_observer.VARIABLE`; its `message` is the file that a container's end is told from."""
MESSAGE_FILE = "/dev/termination-log"
HIGH_DESCRIPTOR = 200
"""Programs that close descriptors, and open files in their place, use low ones."""
CRASH_DESCRIPTOR = -1
"""Where a crash of this process writes its stack; -1: not to a file of ours."""
HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARIES = ("torch.distributed", "mpi4py", "jax")
"""With the first of these the observer starts."""
WAITING = os.environ.pop("TRAINYARD_STANDBY", "")
"""See `in_place_standby`. Pythons that this one starts must not wait, so it is removed."""


def program(name: str) -> Any:
    """One of the observer's, from the archive beside this file."""
    from importlib import import_module
    from zipimport import zipimporter

    class Archive(zipimporter):
        """Says where a program is without compiling it for that, and then once more."""

        def get_filename(self, fullname: str) -> str:
            last = fullname.rpartition(".")[2] + ("/__init__" if self.is_package(fullname) else "")
            return os.path.join(self.archive, self.prefix + last + ".py")

    archive = os.path.join(HERE, "trainyard_observer.zip")
    for each in (archive, os.path.join(archive, "trainyard_observer")):
        sys.path_importer_cache[each] = Archive(each)
    sys.path.insert(0, archive)
    try:
        return import_module("trainyard_observer." + name)
    finally:
        sys.path.remove(archive)


def keep_crashes(settings: str) -> None:
    """Have a crash write the stack of its thread; a file of the user's choice goes before."""
    global CRASH_DESCRIPTOR
    import faulthandler
    from fcntl import F_DUPFD_CLOEXEC, fcntl

    if faulthandler.is_enabled():
        return
    given = dict(part.split("=", 1) for part in settings.split(",") if "=" in part)
    # 3.14 adds C's stack, and of the message a kubelet keeps the last 4 KiB only.
    options: Any = {"c_stack": False} if sys.version_info >= (3, 14) else {}
    try:
        opened = os.open(given.get("message") or MESSAGE_FILE, os.O_WRONLY | os.O_APPEND)
        try:
            kept = fcntl(opened, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR)
        finally:
            os.close(opened)
        faulthandler.enable(kept, all_threads=False, **options)
        CRASH_DESCRIPTOR = kept
    except (OSError, ValueError):  # no such file, or it may not be written: crashes are as ever
        return


def observe() -> None:
    """Load and start the observer; its failure must not be the program's."""
    if WAITING:
        return
    try:
        program("rank_observer").start_observing(crashes=CRASH_DESCRIPTOR)
    except Exception:
        return


def stand_by(setting: str) -> None:
    """Wait for the word, where this Python is to; without it nothing of the program may begin."""
    try:
        program("in_place_standby").stand_by(setting)
    except BaseException:
        if not setting.endswith(":"):
            os._exit(1)


class Finder:
    """Finds a library's module as usual, and hears when it has been imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in LIBRARIES:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def run(module: Any) -> None:
            execute(module)
            observe()

        spec.loader.exec_module = run  # type: ignore[method-assign]
        return spec


def chain() -> None:
    """Import the user's own ``sitecustomize``, which this one hides, in its own name."""
    path = [each for each in sys.path if os.path.abspath(each or ".") != HERE]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    if OBSERVE:
        keep_crashes(OBSERVE)
        sys.meta_path.insert(0, Finder())
    try:
        chain()
    finally:  # whatever becomes of the user's own: a program that is to wait must not begin
        if WAITING:
            stand_by(WAITING)
            WAITING = ""  # from here on it is observed
            if any(name in sys.modules for name in LIBRARIES):
                observe()
