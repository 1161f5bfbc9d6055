"""Samples the process that this runs in: CPU time, frames, what it waits for.

Sampling must import nothing: a child forked meanwhile would find a module's lock held for ever.
What cannot be known (no ``/proc``) is empty. Mounted into the
user's image: standard library, Python 3.8.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from opcode import opname
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from trainyard.payloads.observer import ranks_met
from trainyard.payloads.observer.rank_state import Sample

if TYPE_CHECKING:
    from trainyard.payloads.observer.rank_state import Counts, Frame

MOST_FRAMES, INNERMOST = 40, 3
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_OPTIMIZED = 0x1  # inspect.CO_OPTIMIZED: of a function
_KEEPS_LOCALS = sys.version_info < (3, 13)
_DESCRIPTOR_CALLS = ("0", "1", "45", "47")
"""Of x86-64: read, write, recvfrom, recvmsg, whose first argument is a descriptor."""
_COLLECTIONS = (bytearray, deque, dict, list, set)
_PACKAGES = ("/site-packages/", "/dist-packages/", "/torchinductor_")


def read_text(path: str) -> str:
    """A file of the kernel; empty if it is gone or not to be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def resident_mebibytes() -> int:
    """How much memory this process has; 0 where that cannot be known."""
    fields = read_text("/proc/self/statm").split()
    return int(fields[1]) * _PAGE >> 20 if len(fields) > 1 else 0


def fields_after_name(stat: str) -> list[str]:
    """The fields of a ``stat`` file from the state on; empty if there is no such process."""
    # https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html: the name may hold anything.
    return stat.rpartition(")")[2].split()


def cpu_seconds(fields: list[str]) -> float:
    """Seconds of user and system time."""
    return (int(fields[11]) + int(fields[12])) / _TICKS if len(fields) > 12 else 0.0


def descendants(pid: int) -> list[int]:
    """The processes below one."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        folder = f"/proc/{waiting.pop()}/task"
        try:
            threads = os.listdir(folder)
        except OSError:
            continue
        for thread in threads:
            below = read_text(f"{folder}/{thread}/children").split()
            found += map(int, below)
            waiting += map(int, below)
    return found


def io_bytes(path: str) -> tuple[int, int]:
    """Bytes read and written by way of system calls, of a process or thread."""
    fields = dict(line.split(": ", 1) for line in read_text(path).splitlines())
    return int(fields.get("rchar", 0)), int(fields.get("wchar", 0))


def default_group() -> Any:
    """torch's default process group; None while, or if, there is none."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    world = getattr(module, "_world", None)
    return getattr(world, "default_pg", None)


def _object_fingerprint(value: object) -> int:
    """Stands for an object and, if it is one of Python's collections, for how long that is."""
    if type(value) in _COLLECTIONS:
        return hash((id(value), len(value)))  # type: ignore[arg-type]
    return id(value)


class ProcessSampler:
    """Takes samples of this process, from a thread of its own."""

    def __init__(self) -> None:
        main = threading.main_thread()
        self._ident, self._thread = main.ident, main.native_id
        self._library = (str(Path(os.__file__).parent), str(Path(__file__).parent))
        self.has_updated = False
        """Whether parameters were other ones at the last sample than at the one before."""
        self._versions: list[int] = []

    def is_user_file(self, file: str) -> bool:
        """Whether a file is of the user's program, rather than of a library."""
        if file.startswith(("<", *self._library)):
            return False
        return not any(part in file for part in _PACKAGES)

    def frames(self) -> tuple[tuple[Frame, ...], int, int, int, str]:
        """The main thread's frames, innermost first; what stands for its position, for the
        variables of the user's frames and for those of the innermost ones; its instruction."""
        frame = sys._current_frames().get(self._ident or 0)
        if frame is None:
            return (), 0, 0, 0, ""
        place = frame.f_lasti
        code = frame.f_code.co_code
        opcode = opname[code[place]] if 0 <= place < len(code) else ""
        found: list[Frame] = []
        values: list[int] = []
        inner: list[int] = []
        each: FrameType | None = frame
        while each is not None:
            file = each.f_code.co_filename
            is_user_file, is_inner = self.is_user_file(file), len(found) < INNERMOST
            # What runs but once has its place; a class's variables may be kept in anything.
            is_inner &= is_user_file or bool(each.f_code.co_flags & _OPTIMIZED)
            mark = self._fingerprint(each, is_user_file) if is_user_file or is_inner else 0
            values += [mark] * is_user_file
            inner += [mark] * is_inner
            seen = file, each.f_lineno or 0, each.f_code.co_name
            if len(found) < MOST_FRAMES:
                found.append(seen)
            elif is_user_file and len(values) == 1:  # the line that is named, however deep it is
                found[-1] = seen
            each = each.f_back
        position = hash((tuple(found), place))
        return tuple(found), position, hash(tuple(values)), hash(tuple(inner)), opcode

    def _fingerprint(self, frame: FrameType, is_user_file: bool) -> int:
        """Stands for what the variables of a frame are, at the cost of no reference to any."""
        mark = self._variable_fingerprint if is_user_file else _object_fingerprint
        try:
            variables = frame.f_locals
            found = hash(tuple(map(mark, variables.values())))
        except RuntimeError:  # they change meanwhile
            return 0
        # Before 3.13 the frame keeps what was just made for us, and with it tensors that the
        # program deletes. It is emptied unless somebody else has it, who has called locals() (3:
        # the frame, `variables` and the argument).
        if _KEEPS_LOCALS and frame.f_code.co_flags & _OPTIMIZED and sys.getrefcount(variables) <= 3:
            variables.clear()
        return found

    def _variable_fingerprint(self, value: object) -> int:
        """Stands for a variable: which object it is, and what it holds if its class is the user's
        or it is one of Python's collections."""
        kind = type(value)
        if kind in _COLLECTIONS:
            return _object_fingerprint(value)
        if (version := ranks_met.parameter_version(value)) is not None:
            self._versions.append(version)
            return hash((id(value), version))
        module = sys.modules.get(str(type.__getattribute__(kind, "__module__")))
        file = getattr(module, "__dict__", {}).get("__file__")  # runs nothing of a lazy module
        if not isinstance(file, str) or not self.is_user_file(file):
            return id(value)
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except AttributeError:  # it has slots
            return id(value)
        return hash((id(value), *map(id, attributes.values())))

    def sample(self, at: float, known: Counts, is_device_pending: bool) -> Sample:
        """One look; `known` are the counts of collectives, and `is_device_pending` says whether
        some of a device are under way."""
        pid = os.getpid()
        children = descendants(pid)
        below = [fields_after_name(read_text(f"/proc/{child}/stat")) for child in children]
        own = cpu_seconds(fields_after_name(read_text("/proc/self/stat"))) - time.thread_time()
        states = [fields[0] for fields in below if fields]
        states += fields_after_name(read_text(f"/proc/self/task/{self._thread}/stat"))[:1]
        (read, wrote), (our_read, our_wrote) = map(
            io_bytes, ("/proc/self/io", "/proc/thread-self/io")
        )
        before, self._versions = self._versions, []
        frames, position, values, inner, opcode = self.frames()
        self.has_updated = len(self._versions) == len(before) and self._versions > before
        return Sample(
            at=at,
            cpu=own + sum(map(cpu_seconds, below)),
            wrote=wrote - our_wrote,
            read=read - our_read,
            runs="R" in states,
            children=len(children),
            position=position,
            values=values,
            inner=inner,
            opcode=opcode,
            wait=read_text(f"/proc/self/task/{self._thread}/wchan").strip("0"),
            counts=known,
            frames=frames,
            is_device_pending=is_device_pending,
        )

    def waits_for(self) -> str:
        """What the main thread waits for: a file, pipe or socket, or the kernel's word for it."""
        call = read_text(f"/proc/self/task/{self._thread}/syscall").split()
        if len(call) > 1 and call[0] in _DESCRIPTOR_CALLS:
            try:
                return os.readlink(f"/proc/self/fd/{int(call[1], 16)}")
            except (OSError, ValueError):
                pass
        return read_text(f"/proc/self/task/{self._thread}/wchan").strip("0")
