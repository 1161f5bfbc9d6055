"""Has a Python import modules and stand by before its program begins (decision 307).

The observer's hook calls this in a Python that has `TRAINYARD_STANDBY`. The running command of a
job that restarts in place has nothing to import; it only confirms that it has the hook. A process
that is started for the next attempt imports the modules and waits. None of the program has been
read by then, so once released it begins as any other Python. Without the release the hook ends it.
Standard library, Python 3.8.
"""

from __future__ import annotations

import contextlib
import os
import sys
from importlib import import_module, invalidate_caches
from importlib.machinery import all_suffixes

VARIABLE = "TRAINYARD_STANDBY"
"""`12:torch+numpy`: the descriptor of a socket to what holds the pod, and the modules."""
GO = b"go"


def stand_by(setting: str) -> None:
    """Say that this process is here; import, and wait for the word, if there is anything to.

    Raises OSError or EOFError where the word cannot come any more.
    """
    number, _, names = setting.partition(":")
    descriptor = int(number)
    os.write(descriptor, b"%d\n" % os.getpid())
    if names:
        for name in names.split("+"):
            with contextlib.suppress(Exception):  # the program will say so, if it needs it
                import_module(name)
        if os.read(descriptor, len(GO)) != GO:
            raise EOFError("nobody will give the word")
    os.close(descriptor)
    if names:
        invalidate_caches()  # folders of the path may have come meanwhile
        if _is_shadowed(_script_folder()):
            restart_interpreter()


def restart_interpreter() -> None:
    """Become the command without us; what was imported is not what it would have found."""
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read().split(b"\0")[:-1]
    os.execv(sys.executable, words)


def _script_folder() -> str:
    """What Python puts before all else in the path, once its program begins."""
    script = getattr(sys, "argv", [""])[0]
    is_file = os.path.isfile(script)
    return os.path.dirname(os.path.realpath(script)) if is_file else os.getcwd()


def _is_shadowed(folder: str) -> bool:
    """Whether a module that was imported would have been found there first."""
    loaded = {name.partition(".")[0] for name in sys.modules}
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_dir():
                is_module = any(
                    os.path.exists(f"{entry.path}/__init__{end}") for end in all_suffixes()
                )
                name = entry.name if is_module else ""
            else:
                ends = (end for end in all_suffixes() if entry.name.endswith(end))
                name = next((entry.name[: -len(end)] for end in ends), "")
            if name in loaded and not _is_in(name, folder):
                return True
    return False


def _is_in(name: str, folder: str) -> bool:
    """Whether a module that was imported lies there."""
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return os.path.realpath(file).startswith(folder + os.sep)
