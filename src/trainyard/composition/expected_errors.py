"""Which errors are meant for the user, and which are defects. Imports nothing heavy."""

from __future__ import annotations

import errno
import os

from trainyard.schema.errors import TrainyardError

_NOT_IN_THE_IMAGE = ("trainyard.embedded", "trainyard.podruntime")


_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room there"),
    errno.EROFS: "mount it for writing",
    errno.EACCES: "name one that you may use, or have its owner let you",
    **dict.fromkeys((errno.EIO, errno.ENOTCONN, errno.ESTALE), "mend its disk, or mount it again"),
}
"""What to do about faults of a file system, which any access may meet; `Path.is_file` meets EACCES
in a folder that one may not enter."""


_AROUND = 60
"""Letters that are shown before and after what is no UTF-8, of the string in JSON that has it."""


class FileSystemFault(TrainyardError):
    """A file cannot be used, whatever this program does with it."""


class NotUtf8(TrainyardError):
    """A name of a file, or another text of the system's, that no manifest can have."""


class NotInTheImage(TrainyardError):
    """A command was called in the operator's image, which lacks what it needs."""


def expected_error(error: BaseException) -> TrainyardError | None:
    """Return the error that is meant for the user, also from within a task group; None: a defect.

    With several errors in a group the first one counts. An error that a limit of the system, or a
    fault of a file system, caused is replaced by one that names it.
    """
    if (fault := _system_error(error)) is not None:
        return fault
    if isinstance(error, ModuleNotFoundError) and error.name in _NOT_IN_THE_IMAGE:
        return NotInTheImage(
            "this installation is the operator's image, which is without the embedded cluster and "
            "the commands on jobs; install trainyard-jobs where you work"
        )
    if not isinstance(error, BaseExceptionGroup):
        return error if isinstance(error, TrainyardError) else None
    expected, rest = error.split(TrainyardError)
    found: BaseException | None = expected
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found if rest is None and isinstance(found, TrainyardError) else None


def _system_error(error: BaseException) -> TrainyardError | None:
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_system_error, error.exceptions)), None)
    if isinstance(error, UnicodeEncodeError) and error.encoding == "utf-8":
        before = error.object[: error.start].rpartition('"')[2][-_AROUND:]
        after = error.object[error.start :].partition('"')[0][:_AROUND]
        return NotUtf8(
            f"{before + after!r} is not UTF-8 text, as names and manifests have to be: rename it"
        )
    if not isinstance(error, OSError):
        return None
    if error.errno in _REMEDIES and error.filename is not None:
        path = os.fsdecode(error.filename)
        return FileSystemFault(f"cannot use {path}: {error.strerror}; {_REMEDIES[error.errno]}")
    from trainyard.machine import rlimits

    return rlimits.explain_limit_error(error)
