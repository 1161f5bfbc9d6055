"""Reaching files as another user: the kernel checks that user's rights, and what is made is theirs.

It sets the file system user and groups of this thread alone (setfsuid(2)); the C library would
change the whole process. Meanwhile root's own privileges over files are off.
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
    """Reach files as this user within the block, which must not await anything. Needs root."""
    before = os.getgroups()
    _set_groups(groups)
    _libc.setfsgid(group)
    _libc.setfsuid(user)
    try:
        # setfsuid reports no errors; calling it with an impossible id only returns the present one.
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
        os.setgroups(groups)  # for the whole process, on architectures without a known number
        return
    listed = (ctypes.c_uint32 * len(groups))(*groups)
    if _libc.syscall(number, len(groups), listed):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
