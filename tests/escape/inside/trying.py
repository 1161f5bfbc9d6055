"""How an attempt is made: its surroundings, system calls, and its outcome.

``SITUATION`` holds, as JSON, what an attacker could know or guess of the machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import json
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Iterable
from typing import Any

HERE: dict[str, Any] = json.loads(os.environ.get("SITUATION", "{}"))
ATTEMPTS: dict[str, Callable[[], object]] = {}
LEFT_OPEN = sorted(int(name) for name in os.listdir("/proc/self/fd"))[3:-1]  # the last lists them
libc = ctypes.CDLL(None, use_errno=True)
_SECONDS = 20
_X86 = os.uname().machine == "x86_64"

NEW_NS, NEW_USER, NEW_PID, NEW_NET = 0x20000, 0x10000000, 0x20000000, 0x40000000
MS_REMOUNT, MS_BIND, MNT_DETACH = 32, 4096, 2


def attempt(function: Callable[[], object]) -> Callable[[], object]:
    """True: it got what it should not. An OSError is a refusal."""
    ATTEMPTS[function.__name__] = function
    return function


def _checked(result: int) -> bool:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return True


def call(name: str, *arguments: Any) -> bool:
    """A function of the C library that answers with less than 0 when it fails."""
    return _checked(getattr(libc, name)(*arguments))


def raw(x86: int, arm: int, *arguments: Any) -> bool:
    """A system call by its number on x86_64 and aarch64."""
    number = ctypes.c_long(x86 if _X86 else arm)
    longs = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _checked(libc.syscall(number, *longs))


def is_other_root(path: str) -> bool:
    own, found = os.stat("/"), os.stat(path)
    return (own.st_dev, own.st_ino) != (found.st_dev, found.st_ino)


def write(path: str, text: str) -> bool:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
    return True


def write_any(pattern: str, text: str) -> bool:
    """Into whichever file lets itself be written; the last refusal where none does."""
    refusal: OSError = FileNotFoundError(2, pattern)
    for path in glob.glob(pattern):
        try:
            return write(path, text)
        except OSError as error:
            refusal = error
    raise refusal


def one_of(paths: Iterable[str], mode: int) -> bool:
    """Whether one of these files can be read (O_RDONLY) or written; told which on standard error.

    Nothing is written: a file of the kernel's that cannot be is asked with no bytes at all.
    """
    for path in paths:
        with contextlib.suppress(OSError):
            fd = os.open(path, mode | os.O_NONBLOCK | os.O_NOCTTY)
            try:
                if stat.S_ISCHR(os.fstat(fd).st_mode):  # lies over what is to be hidden
                    continue
                if mode == os.O_RDONLY:
                    os.read(fd, 1)
                else:
                    os.write(fd, b"")
            finally:
                os.close(fd)
            print(f"{path} can be opened", file=sys.stderr)
            return True
    return False


def connects(family: int, address: Any) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as ours:
        ours.settimeout(2)
        ours.connect(address)
    return True


def outcome(function: Callable[[], object]) -> object:
    """In a process of its own, with an end in sight."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        signal.alarm(_SECONDS)
        try:
            answer: object = bool(function())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writer, json.dumps(answer).encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else "ended by a signal"
