"""Reads torch's flight recorders: gloo's, NCCL's (and so RCCL's), and those that later torch adds.

torch has no public way to them. They are found by what its module offers: `_dump_fr_trace_json`,
`_dump_nccl_trace_json`; torch 2.4 writes NCCL's by `_dump_nccl_trace` for pickle only, and counts
nothing. What cannot be read is told by `unobserved`. Mounted into the user's image: standard
library, Python 3.8.
"""

from __future__ import annotations

import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, MutableMapping  # noqa: UP035 (Python 3.8)

if TYPE_CHECKING:
    from trainyard.payloads.observer.rank_state import Counts

MOST_ENTRIES, ENTRIES_BEFORE = 12, 3
"""Collectives in a report, and how many of them may be older than the first unfinished one."""
CPU_SHARE = 0.0005
"""Of a core: what it may take to read a recorder, all of which is written out for it, 20 ms for the
2,000 entries that it has by default."""
MOST_BYTES = 1 << 18
"""Of the last entries: to read all of them takes as long as to have them written."""
_MODULE = "torch._C._distributed_c10d"
_DUMP = re.compile(r"_dump_(\w+?)_trace(_json)?$")
_PLAIN = "fr"
"""The recorder of gloo, whose groups have their plain names; others are called by their backend."""
_OF_CPU = ("", "c10d", "gloo", "mpi", "ucc")
"""Backends whose collectives are done once they are retired. Those of others are done when their
device says so: one that a watchdog gave up is retired too."""
_FIRST = b'{"collective_seq_id"'
"""How an entry begins: keys are in order."""
_SIZE_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""How many entries a recorder has room for, by its name now and the older one."""
_OLDER_NAME_UNTIL = (2, 7)
_SIZE = "2000"
"""torch's own default in 2.12; in 2.10 it was 0, and so nothing was recorded."""


def turn_on(variables: MutableMapping[str, str]) -> None:
    """Have torch record, as not all do by default, unless the user has said what it is to do. What
    has read the variable does not read it again."""
    if not any(name in variables for name in _SIZE_VARIABLES):
        has_older = (0, 0) < torch_version() <= _OLDER_NAME_UNTIL
        variables[_SIZE_VARIABLES[has_older]] = _SIZE


def torch_version() -> tuple[int, ...]:
    """`(2, 13)`; `(0, 0)` where that cannot be told."""
    text = str(getattr(sys.modules.get("torch"), "__version__", ""))
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def recorders() -> dict[str, str]:
    """The functions that write out the recorders of this torch, by the recorder's name; gloo's is
    the first."""
    found = {}
    module = sys.modules.get(_MODULE)
    for name in sorted(vars(module)) if module is not None else ():  # each before its _json
        match = _DUMP.match(name)
        if match:
            found[match[1]] = name
    return dict(sorted(found.items(), key=lambda each: each[0] != _PLAIN))


def _dumps(entries: bool) -> dict[str, bytes]:
    """What the recorders write; without one that writes the very same as another, as two names of
    one recorder do."""
    found: dict[str, bytes] = {}
    for name, function in recorders().items():
        text = _dump(function, entries)
        if text and text not in found.values():
            found[name] = text
    return found


def _dump(function: str, entries: bool) -> bytes:
    try:
        dump: Callable[..., bytes] = getattr(sys.modules.get(_MODULE), function)
        # Without JSON there are no counts either. The stacks, which it leaves out, take long.
        return dump(entries, False) if function.endswith("_json") else dump(True, False, False)
    except (AttributeError, RuntimeError, TypeError):
        return b""


def _read(text: bytes) -> dict[str, Any]:
    """The whole of a dump."""
    try:
        found = json.loads(text) if text[:1] == b"{" else sys.modules["pickle"].loads(text)
    except Exception:  # a torch that writes it otherwise
        return {}
    return found if isinstance(found, dict) else {}


def counts() -> Counts:
    """The last collective begun and completed of each group; empty where that is not recorded."""
    found = []
    for recorder, text in _dumps(entries=False).items():
        dump = _read(text)
        status = dump.get("pg_status")
        told = _counts_of_entries(dump) if status is None else _counts_of_status(status)
        prefix = "" if recorder == _PLAIN else recorder + ":"
        found += [(prefix + group, *numbers) for group, numbers in sorted(told.items())]
    return tuple(found)


def _counts_of_status(status: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {
        name: (_last(each, "enqueued"), _last(each, "completed")) for name, each in status.items()
    }


def _last(status: dict[str, Any], what: str) -> int:
    """A group's last collective; 0 for none, which torch calls -1."""
    return max(0, int(status[f"last_{what}_collective"]))


def _counts_of_entries(dump: dict[str, Any]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for each in dump.get("entries") or ():
        group = str(each.get("pg_id", "")) + " p2p" * bool(each.get("is_p2p"))
        number = number_of(each)
        begun, completed = found.get(group, (0, 0))
        found[group] = max(begun, number), max(completed, number * is_done(each))
    return found


def last_entries(most_bytes: int = 0) -> list[dict[str, Any]]:
    """The entries of all recorders, the oldest first; at most so many bytes of each."""
    found: list[dict[str, Any]] = []
    for text in _dumps(entries=True).values():
        found += _tail(text, most_bytes) if most_bytes and text[:1] == b"{" else _entries(text)
    return sorted(found, key=lambda each: int(each.get("time_created_ns") or 0))


def _entries(text: bytes) -> list[dict[str, Any]]:
    found = _read(text).get("entries")
    return found if isinstance(found, list) else []


def _tail(text: bytes, most_bytes: int) -> list[dict[str, Any]]:
    end = text.rfind(b'"time_created_ns"')
    start = text.find(_FIRST, max(0, end - most_bytes))
    if not 0 <= start < end:
        return []
    try:
        found, _ = json.JSONDecoder().raw_decode("[" + text[start:].decode())
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def backend_of(entry: dict[str, Any]) -> str:
    """`nccl` of `nccl:all_reduce`."""
    return str(entry.get("profiling_name", "")).rpartition(":")[0]


def group_of(entry: dict[str, Any]) -> str:
    """The name of its process group, which is the same in all ranks. A group of several backends
    counts the collectives of each by itself."""
    name = str((entry.get("process_group") or [""])[0])
    return f"{backend_of(entry)}:{name}" if is_of_device(entry) else name


def number_of(entry: dict[str, Any]) -> int:
    """Which of its group it is; sends and receives are counted by themselves."""
    return int(entry.get("p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id") or 0)


def is_of_device(entry: dict[str, Any]) -> bool:
    """Whether a device carries it out, for which no thread of the program need wait."""
    return backend_of(entry) not in _OF_CPU


def is_done(entry: dict[str, Any]) -> bool:
    """Whether it has completed."""
    if entry.get("state") == "completed":
        return True
    return bool(entry.get("retired")) and not is_of_device(entry)


def _place(entry: dict[str, Any]) -> tuple[Any, ...]:
    """What the parts of a coalesced operation share with the whole. No event is ever theirs: they
    begin and complete with it."""
    is_p2p = bool(entry.get("is_p2p"))
    return group_of(entry), entry.get("pg_id"), is_p2p, number_of(entry)


def unfinished(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that have not completed."""
    done = {_place(each) for each in entries if is_done(each)}
    return [each for each in entries if not is_done(each) and _place(each) not in done]


def last_collectives() -> list[dict[str, Any]]:
    """The last collectives, the oldest first, from shortly before the first that has not completed;
    takes milliseconds, so only of one that is stuck."""
    found = last_entries()
    left = unfinished(found)
    first = next((n for n, each in enumerate(found) if left and each is left[0]), len(found))
    start = max(0, min(first - ENTRIES_BEFORE, len(found) - MOST_ENTRIES))
    waits = {id(each) for each in left}
    started = {_place(each) for each in left if each.get("state") == "started"}
    return [
        {
            "group": group_of(each),
            "number": number_of(each),
            "operation": str(each.get("profiling_name", "")).rpartition(":")[2],
            "sizes": each.get("input_sizes") or [],
            "done": id(each) not in waits,
            "started": _place(each) in started,
            "p2p": bool(each.get("is_p2p")),
        }
        for each in found[start : start + MOST_ENTRIES]
    ]


class DeviceCollectives:
    """Whether collectives of a device are under way, which no thread needs to be seen waiting for.

    By the entries: the count of a group is that of its last collective or of its last send,
    whichever was the last (`ProcessGroupNCCL::workEnqueue`).
    """

    def __init__(self) -> None:
        self._known: Counts = ()
        self._is_pending = False
        self._again_at = 0.0

    def is_pending(self, known: Counts, at: float) -> bool:
        """Now, at a time of the monotonic clock, of a rank with these counts."""
        device = tuple(each for each in known if ":" in each[0])
        if device == self._known and at < self._again_at:
            return self._is_pending
        if at >= self._again_at:
            began = time.thread_time()
            self._is_pending = bool(device) and any(map(is_of_device, unfinished(last_entries())))
            self._again_at = at + (time.thread_time() - began) / CPU_SHARE
            self._known = device
            return self._is_pending
        return any(begun > completed for _, begun, completed in device)


def unobserved(variables: MutableMapping[str, str]) -> str:
    """Why collectives are not observed here; "" where they are, or nobody knows their backend."""
    torch = f"torch {getattr(sys.modules.get('torch'), '__version__', '')}".strip()
    if off := next((each for each in _SIZE_VARIABLES if variables.get(each) == "0"), ""):
        return f"{off}=0 turns the flight recorder of {torch} off"
    used, known = backends(), recorders()
    mine = [known[name] for each in used if (name := _recorder_of(each)) in known]
    if used and not mine:
        return f"{torch} has no flight recorder of {', '.join(used)} that is known here"
    if used and not any(_read(_dump(each, False)) for each in mine):
        return f"the flight recorder of {torch} writes what is not known here"
    return ""


def _recorder_of(backend: str) -> str:
    return _PLAIN if backend in _OF_CPU else backend


def backends() -> list[str]:
    """The backends of torch's default process group, such as `gloo` and `nccl`; empty without."""
    world = getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_world", None)
    try:
        told = str(world.pg_backend_config[world.default_pg]) if world is not None else ""
    except (AttributeError, KeyError, TypeError):
        return []
    return sorted({each.rpartition(":")[2] for each in told.split(",") if each})
