"""A model of torch's flight recorder as ProcessGroupNCCL uses it (`FlightRecorderDetail.hpp`).

What it writes has the keys and the types of the real one, which `test_format.py` compares.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from typing import Any

SCHEDULED, STARTED, COMPLETED = "scheduled", "started", "completed"


@dataclass(eq=False)
class Entry:
    """One operation; times in nanoseconds, 0 until they have come."""

    record_id: int
    pg_id: int
    group: str
    collective_seq_id: int
    p2p_seq_id: int
    operation: str
    sizes: list[list[int]]
    is_p2p: bool
    created: int
    is_part: bool = False
    """Of a coalesced operation: no event is ever its own."""
    started: int = 0
    completed: int = 0
    is_retired: bool = False

    @property
    def number(self) -> int:
        return self.p2p_seq_id if self.is_p2p else self.collective_seq_id

    def write(self, *, of_pickle: bool) -> dict[str, Any]:
        """As `dump_json` and, of torch 2.4, `dump` write it."""
        state = COMPLETED if self.completed else STARTED if self.started else SCHEDULED
        none = None if of_pickle else 0
        written: dict[str, Any] = {
            "record_id": self.record_id,
            "pg_id": self.pg_id,
            "process_group": (self.group, "undefined" if self.group != "0" else "default_pg"),
            "collective_seq_id": self.collective_seq_id,
            "p2p_seq_id": self.p2p_seq_id,
            "op_id": self.record_id + 1,
            "profiling_name": f"nccl:{self.operation}",
            "time_created_ns": self.created,
            "input_sizes": self.sizes,
            "input_dtypes": ["Float"] * len(self.sizes),
            "output_sizes": self.sizes,
            "output_dtypes": ["Float"] * len(self.sizes),
            "state": state,
            "time_discovered_started_ns": self.started or none,
            "time_discovered_completed_ns": self.completed or none,
            "retired": self.is_retired,
            "timeout_ms": 600000,
            "is_p2p": self.is_p2p,
        }
        if not of_pickle:
            written |= {"thread_id": "139783185988480", "thread_name": "python"}
        return written


@dataclass(eq=False)
class Group:
    """A process group of one rank, whose numbers are by the rank's own order of groups."""

    name: str
    pg_id: int
    ranks: tuple[int, ...]
    collectives: int = 0
    sends: int = 0
    enqueued: int = -1
    started: int = -1
    completed: int = -1


@dataclass
class NcclRecorder:
    """Of one rank. `size`: of the ring; `has_timing`: whether events are recorded at the start
    (TORCH_NCCL_ENABLE_TIMING), without which nobody knows of it."""

    size: int = 2000
    has_timing: bool = False
    groups: dict[str, Group] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    recorded: int = 0
    unretired: list[Entry] = field(default_factory=list)

    def join(self, name: str, ranks: tuple[int, ...]) -> None:
        self.groups[name] = Group(name, len(self.groups), ranks)

    def enqueue(
        self,
        name: str,
        operation: str,
        sizes: list[list[int]],
        at: int,
        *,
        is_p2p: bool = False,
        parts: tuple[str, ...] = (),
    ) -> Entry:
        """Put an operation behind what the device has to do; `parts` are those it coalesces."""
        group = self.groups[name]
        if is_p2p:
            group.sends += 1
        else:
            group.collectives += 1
        for part in parts:
            self._record(group, part, sizes, is_p2p, at).is_part = True
        entry = self._record(group, operation, sizes, is_p2p, at)
        group.enqueued = entry.number
        self.unretired.append(entry)
        return entry

    def _record(
        self, group: Group, operation: str, sizes: list[list[int]], is_p2p: bool, at: int
    ) -> Entry:
        numbers = group.collectives, group.sends
        entry = Entry(
            self.recorded, group.pg_id, group.name, *numbers, operation, sizes, is_p2p, at
        )
        self.recorded += 1
        self.entries.append(entry)
        del self.entries[: -self.size]
        return entry

    def start(self, entry: Entry, at: int) -> None:
        if self.has_timing and not entry.started:
            entry.started = at
            self._group(entry).started = entry.number

    def complete(self, entry: Entry, at: int) -> None:
        entry.completed = at

    def watch(self) -> None:
        """What the watchdog does ten times a second."""
        for entry in [each for each in self.unretired if each.completed]:
            entry.is_retired = True
            self.unretired.remove(entry)
            self._group(entry).completed = entry.number

    def _group(self, entry: Entry) -> Group:
        return self.groups[entry.group]

    def dump_json(self, entries: bool, _active: bool) -> bytes:
        """`_dump_nccl_trace_json`: keys in order, counts as texts, no entries where there are
        none."""
        told: dict[str, Any] = {
            "comm_lib_version": "",
            "nccl_comm_state": {},
            "pg_config": {
                group.name: {"desc": "", "name": group.name, "ranks": str(list(group.ranks))}
                for group in self._seen()
            },
            "pg_status": {
                str(group.pg_id): {
                    "last_enqueued_collective": str(group.enqueued),
                    "last_started_collective": str(group.started),
                    "last_completed_collective": str(group.completed),
                }
                for group in self._seen()
            },
            "version": "2.10",
        }
        if entries and self.entries:
            told["entries"] = [each.write(of_pickle=False) for each in self.entries]
        return json.dumps(told, sort_keys=True, separators=(",", ":")).encode()

    def dump_pickle(self, _entries: bool, _stacks: bool, _active: bool) -> bytes:
        """`_dump_nccl_trace` of torch 2.4, which has no counts."""
        entries = [each.write(of_pickle=True) for each in self.entries]
        return pickle.dumps({"version": "2.1", "pg_config": {}, "entries": entries}, protocol=2)

    def _seen(self) -> list[Group]:
        return [group for group in self.groups.values() if group.enqueued >= 0]
