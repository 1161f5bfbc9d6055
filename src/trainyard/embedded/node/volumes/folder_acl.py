"""Access control lists by which one user may read a folder of root's that others may not.

Written as the kernel keeps them (acl(5), linux/posix_acl_xattr.h), for want of a tool that is
everywhere. Where the file system has none, only root can look.
"""

from __future__ import annotations

import contextlib
import os
import struct

_NAME = "system.posix_acl_access"
_VERSION = struct.Struct("<I")
_ENTRY = struct.Struct("<HHI")
"""Tag, permissions, and the user or group id."""
_OWNER, _USER, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
_NO_ID = 0xFFFFFFFF
_READ_AND_ENTER = 5  # read and enter


def grant_read(folder: str, uid: int) -> None:
    """Let one user more read a folder that is root's; everybody who is not named loses access."""
    entries = {(_OWNER, _NO_ID): 7, (_GROUP, _NO_ID): 0, (_OTHERS, _NO_ID): 0}
    with contextlib.suppress(OSError):  # none yet
        raw = os.getxattr(folder, _NAME)
        for kind, may, whose in _ENTRY.iter_unpack(raw[_VERSION.size :]):
            entries[kind, whose] = may
    wanted = {(_USER, uid): _READ_AND_ENTER, (_MASK, _NO_ID): _READ_AND_ENTER}
    if wanted.items() <= entries.items():
        return
    entries |= wanted
    listed = [_ENTRY.pack(kind, may, whose) for (kind, whose), may in sorted(entries.items())]
    os.chmod(folder, 0o700)
    with contextlib.suppress(OSError):
        os.setxattr(folder, _NAME, _VERSION.pack(2) + b"".join(listed))
