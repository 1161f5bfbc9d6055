"""What a rank does, by samples of a few seconds."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from trainyard.payloads.observer import flight_recorders, rank_state
from trainyard.payloads.observer.rank_state import Activity, Sample, classify

TORCH = ("/x/site-packages/torch/distributed/distributed_c10d.py", 10, "all_reduce")
MEETING = ("/x/site-packages/torch/distributed/distributed_c10d.py", 9, "init_process_group")
LOADING = ("/x/site-packages/torch/distributed/tensor/_utils.py", 8, "<module>")
USER = ("/home/me/train.py", 12, "main")
SPINS = {"is_device_pending": True, "wait": "", "runs": True, "cpu": float}
BEGUN, DONE = (("0", 6, 5),), (("0", 5, 5),)


def sample(at: float, **changed: Any) -> Sample:
    """One of a process that does nothing in a function of the user's."""
    idle: dict[str, Any] = {
        "cpu": 0.0,
        "wrote": 0,
        "read": 0,
        "runs": False,
        "children": 0,
        "position": 1,
        "values": 1,
        "inner": 1,
        "opcode": "CALL",
        "wait": "hrtimer_nanosleep",
        "counts": DONE,
        "frames": (USER,),
    }
    return Sample(at, **{**idle, **changed})


def window(**changed: Any) -> list[Sample]:
    """Nine seconds of one; a value that is callable is asked for each second."""
    return [
        sample(at, **{k: v(at) if callable(v) else v for k, v in changed.items()})
        for at in range(9)
    ]


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        (rank_state.IDLE, {}),
        (rank_state.COLLECTING, {"counts": lambda at: (("0", at, at),)}),
        (rank_state.WAITING, {"counts": BEGUN, "frames": (TORCH, USER), "wait": "futex_wait"}),
        # Of a handle's wait() there is no frame but the user's.
        (rank_state.WAITING, {"counts": BEGUN, "wait": "futex_wait"}),
        (rank_state.IDLE, {"counts": BEGUN, "wait": "pipe_read"}),
        # What waits for a device spins, in whatever asks for a value, and on a busy core too.
        (rank_state.WAITING, SPINS),
        (rank_state.WAITING, {**SPINS, "opcode": "TO_BOOL", "children": 4}),
        (rank_state.WAITING, {**SPINS, "cpu": lambda at: at * 0.05}),
        (rank_state.BUSY, {**SPINS, "is_device_pending": lambda at: at < 3}),
        # It begins collectives ahead, or does something else meanwhile.
        (rank_state.BUSY, {**SPINS, "position": lambda at: at, "values": lambda at: at}),
        (rank_state.IDLE, {"is_device_pending": True, "counts": (("nccl:0", 6, 5),)}),
        # Where torch counts nothing, a rank waits that stands still.
        (rank_state.WAITING, {"counts": (), "frames": (TORCH, USER)}),
        (rank_state.IDLE, {"counts": (), "frames": (TORCH, USER), "position": lambda at: at}),
        (rank_state.MEETING, {"counts": (), "frames": (MEETING, USER)}),
        (rank_state.IDLE, {"counts": (), "frames": (("/w/train.py", 9, "restore"), USER)}),
        (rank_state.BUSY, {"counts": (), "frames": (MEETING, USER), "cpu": lambda at: at}),
        (
            rank_state.BUSY,
            {"cpu": lambda at: at * 0.3, "position": lambda at: at, "values": lambda at: at},
        ),
        (rank_state.BUSY, {"runs": True, "children": 2}),
        (rank_state.BUSY, {"wrote": lambda at: at * 1000}),
        (rank_state.BUSY, {"read": lambda at: at * 100_000}),
        (rank_state.BUSY, {"values": lambda at: at}),
        (rank_state.IDLE, {"values": lambda at: at % 2, "wrote": lambda at: at * 400}),
        (
            rank_state.LOOPING,
            {"cpu": float, "opcode": lambda at: ("CALL", "JUMP_BACKWARD")[int(at) % 2]},
        ),
        (
            rank_state.BUSY,
            {"cpu": float, "position": lambda at: at},
        ),  # now in one call, now in another
        (rank_state.LOOPING, {"cpu": float, "opcode": "JUMP_BACKWARD"}),
        (rank_state.BUSY, {"cpu": float}),  # in one call that takes long
        (rank_state.BUSY, {"cpu": float, "position": lambda at: at, "children": 1}),
        (rank_state.BUSY, {"cpu": float, "position": lambda at: at, "wrote": lambda at: at * 1000}),
        # It compiles in a library: what is found at a jump is never what was found before.
        (rank_state.BUSY, {"cpu": float, "opcode": "RESUME", "position": lambda at: at}),
        (rank_state.BUSY, {"cpu": float, "opcode": "RESUME", "inner": lambda at: at}),
        (
            rank_state.LOOPING,
            {
                "cpu": float,
                "opcode": "RESUME",
                "position": lambda at: at % 3,
                "inner": lambda at: at % 3,
            },
        ),
        (rank_state.BUSY, {"cpu": lambda at: at * 0.01, "opcode": "RESUME", "runs": True}),
        # It loads a module of torch's, starved; so is nobody who waits.
        (
            rank_state.BUSY,
            {"frames": (LOADING, USER), "cpu": lambda at: at * 0.05, "runs": lambda at: at % 3 > 0},
        ),
        (
            rank_state.BUSY,
            {
                "frames": (LOADING, USER),
                "counts": BEGUN,
                "cpu": float,
                "position": lambda at: at,
            },
        ),
        # Starved of CPU: it would run if it could.
        (rank_state.BUSY, {"cpu": lambda at: at * 0.05, "runs": lambda at: at % 3 > 0}),
    ],
)
def test_what_a_process_did_in_a_window(kind: str, changed: dict[str, Any]) -> None:
    assert classify(window(**changed)) == kind


def test_what_it_does_is_known_after_a_window_and_began_with_it() -> None:
    activity = Activity()
    activity.note_collective(100.0)
    assert (activity.kind, activity.since) == (rank_state.COLLECTING, 100.0)
    for at in range(101, 109):
        activity.add_sample(sample(at))
        assert activity.kind == rank_state.COLLECTING
    activity.add_sample(sample(109))
    assert (activity.kind, activity.since) == (rank_state.IDLE, 101)
    for at in range(110, 130):
        activity.add_sample(sample(at))
    assert (activity.kind, activity.since) == (rank_state.IDLE, 101)
    activity.note_collective(130.0)
    assert (activity.kind, activity.since) == (rank_state.COLLECTING, 130.0)


def test_work_in_between_makes_idleness_begin_anew() -> None:
    activity = Activity()
    for at in range(40):
        activity.add_sample(sample(at, cpu=min(max(at - 12, 0), 6)))
    assert activity.kind == rank_state.IDLE
    assert activity.since >= 16


def test_too_few_looks_say_nothing() -> None:
    activity = Activity()
    for at in (0, 5, 10):
        activity.add_sample(sample(at))
    assert activity.kind == rank_state.NEW


def test_pending_collectives_are_those_begun_and_not_completed() -> None:
    assert rank_state.pending((("a", 3, 3), ("b", 8, 7))) == (("b", 8),)


def test_a_group_whose_first_collective_hangs_has_completed_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = {"last_enqueued_collective": 1, "last_completed_collective": -1}  # as torch says it
    status = {"1": numbers, "2": dict.fromkeys(numbers, -1)}

    def _dump_fr_trace_json(_entries: bool, _active: bool) -> bytes:
        return json.dumps({"pg_status": status}).encode()

    torch = SimpleNamespace(_dump_fr_trace_json=_dump_fr_trace_json)
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", torch)
    assert flight_recorders.counts() == (("1", 1, 0), ("2", 0, 0))
