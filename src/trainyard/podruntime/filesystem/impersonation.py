"""Files as another user: what the kernel lets that user reach, and what it makes is theirs.

By the file system's user and groups of this thread alone (setfsuid(2)); the C library would change
a whole process. While they are in force root's own privileges over files are not.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator, Sequence

# setgroups(2), of this thread only, by architecture.
_NUMBERS = {"x86_64": 116, "aarch64": 159}
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def acting_as(user: int, group: int, groups: Sequence[int]) -> Iterator[None]:
    """Reach files as this user for the block, which must not wait for anything. Needs root."""
    before = os.getgroups()
    _set_groups(groups)
    _libc.setfsgid(group)
    _libc.setfsuid(user)
    try:
        # There is no other way to know whether it worked; an impossible id changes nothing.
        if _libc.setfsuid(-1) != user or _libc.setfsgid(-1) != group:
            raise PermissionError(1, "cannot act as another user")
        yield
    finally:
        _libc.setfsuid(os.geteuid())
        _libc.setfsgid(os.getegid())
        _set_groups(before)


def _set_groups(groups: Sequence[int]) -> None:
    number = _NUMBERS.get(os.uname().machine)
    if number is None:
        os.setgroups(groups)  # of the whole process, where we know no better
        return
    listed = (ctypes.c_uint32 * len(groups))(*groups)
    if _libc.syscall(number, len(groups), listed):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
