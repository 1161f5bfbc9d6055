"""`trainyard` as macOS or Windows would run it, as far as Linux can tell: without the modules and
calls that are missing there. `python -m tests.other_system darwin|win32 ARGUMENTS…`
"""

from __future__ import annotations

import asyncio
import importlib.abc
import os
import signal
import socket
import ssl
import sys
import sysconfig
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

import aiohttp  # noqa: F401
import click  # noqa: F401
import pydantic  # noqa: F401  (libraries that decide by the platform while they are imported)

_MODULES = {
    "darwin": (),
    "win32": ["fcntl", "grp", "pty", "pwd", "readline", "resource", "termios", "tty", "uvloop"],
}
_CALLS: dict[str, dict[ModuleType, str]] = {
    "darwin": {
        os: "pidfd_open sched_getaffinity unshare",
        signal: "pidfd_send_signal",
        socket: "SO_PEERCRED",
    },
    "win32": {
        os: "fork geteuid getegid getgid getpgid getuid killpg pidfd_open sched_getaffinity setsid "
        "statvfs unshare",
        signal: "SIGHUP SIGKILL SIGWINCH pidfd_send_signal",
        socket: "SO_PEERCRED",
    },
}


class _Missing(importlib.abc.MetaPathFinder):
    """Says of some modules that they are not there."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module is; raises ModuleNotFoundError for these."""
        if name in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def become(platform: str) -> None:
    """Take from this process what the platform has not."""
    sysconfig.get_config_vars()  # found by the platform's name
    asyncio.new_event_loop().close()
    names = _MODULES[platform]
    for name in names:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Missing(names))
    for module, calls in _CALLS[platform].items():
        for call in calls.split():
            if hasattr(module, call):
                delattr(module, call)
    if platform == "win32":
        ssl.enum_certificates = lambda store: []  # type: ignore[attr-defined]
    sys.platform = platform


if __name__ == "__main__":
    become(sys.argv[1])
    sys.argv[:2] = ["trainyard"]
    from trainyard.cli.main import main

    main()
