"""What a rank does, by samples of a few seconds."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from trainyard.payloads import sampling, signs
from trainyard.payloads.signs import Doing, Sample, classify

TORCH = ("/x/site-packages/torch/distributed/distributed_c10d.py", 10, "all_reduce")
MEETING = ("/x/site-packages/torch/distributed/distributed_c10d.py", 9, "init_process_group")
LOADING = ("/x/site-packages/torch/distributed/tensor/_utils.py", 8, "<module>")
USER = ("/home/me/train.py", 12, "main")
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
        (signs.IDLE, {}),
        (signs.COLLECTING, {"counts": lambda at: (("0", at, at),)}),
        (signs.WAITING, {"counts": BEGUN, "frames": (TORCH, USER), "wait": "futex_wait"}),
        # Of a handle's wait() there is no frame but the user's.
        (signs.WAITING, {"counts": BEGUN, "wait": "futex_wait"}),
        (signs.IDLE, {"counts": BEGUN, "wait": "pipe_read"}),
        # Where torch counts nothing, a rank waits that stands still.
        (signs.WAITING, {"counts": (), "frames": (TORCH, USER)}),
        (signs.IDLE, {"counts": (), "frames": (TORCH, USER), "position": lambda at: at}),
        (signs.MEETING, {"counts": (), "frames": (MEETING, USER)}),
        (signs.IDLE, {"counts": (), "frames": (("/w/train.py", 9, "restore"), USER)}),
        (signs.BUSY, {"counts": (), "frames": (MEETING, USER), "cpu": lambda at: at}),
        (
            signs.BUSY,
            {"cpu": lambda at: at * 0.3, "position": lambda at: at, "values": lambda at: at},
        ),
        (signs.BUSY, {"runs": True, "children": 2}),
        (signs.BUSY, {"wrote": lambda at: at * 1000}),
        (signs.BUSY, {"read": lambda at: at * 100_000}),
        (signs.BUSY, {"values": lambda at: at}),
        (signs.IDLE, {"values": lambda at: at % 2, "wrote": lambda at: at * 400}),
        (
            signs.LOOPING,
            {"cpu": float, "opcode": lambda at: ("CALL", "JUMP_BACKWARD")[int(at) % 2]},
        ),
        (signs.BUSY, {"cpu": float, "position": lambda at: at}),  # now in one call, now in another
        (signs.LOOPING, {"cpu": float, "opcode": "JUMP_BACKWARD"}),
        (signs.BUSY, {"cpu": float}),  # in one call that takes long
        (signs.BUSY, {"cpu": float, "position": lambda at: at, "children": 1}),
        (signs.BUSY, {"cpu": float, "position": lambda at: at, "wrote": lambda at: at * 1000}),
        # It compiles in a library: what is found at a jump is never what was found before.
        (signs.BUSY, {"cpu": float, "opcode": "RESUME", "position": lambda at: at}),
        (signs.BUSY, {"cpu": float, "opcode": "RESUME", "inner": lambda at: at}),
        (
            signs.LOOPING,
            {
                "cpu": float,
                "opcode": "RESUME",
                "position": lambda at: at % 3,
                "inner": lambda at: at % 3,
            },
        ),
        (signs.BUSY, {"cpu": lambda at: at * 0.01, "opcode": "RESUME", "runs": True}),
        # It loads a module of torch's, starved; so is nobody who waits.
        (
            signs.BUSY,
            {"frames": (LOADING, USER), "cpu": lambda at: at * 0.05, "runs": lambda at: at % 3 > 0},
        ),
        (
            signs.BUSY,
            {
                "frames": (LOADING, USER),
                "counts": BEGUN,
                "cpu": float,
                "position": lambda at: at,
            },
        ),
        # Starved of CPU: it would run if it could.
        (signs.BUSY, {"cpu": lambda at: at * 0.05, "runs": lambda at: at % 3 > 0}),
    ],
)
def test_what_a_process_did_in_a_window(kind: str, changed: dict[str, Any]) -> None:
    assert classify(window(**changed)) == kind


def test_what_it_does_is_known_after_a_window_and_began_with_it() -> None:
    doing = Doing()
    doing.collects(100.0)
    assert (doing.kind, doing.since) == (signs.COLLECTING, 100.0)
    for at in range(101, 109):
        doing.take(sample(at))
        assert doing.kind == signs.COLLECTING
    doing.take(sample(109))
    assert (doing.kind, doing.since) == (signs.IDLE, 101)
    for at in range(110, 130):
        doing.take(sample(at))
    assert (doing.kind, doing.since) == (signs.IDLE, 101)
    doing.collects(130.0)
    assert (doing.kind, doing.since) == (signs.COLLECTING, 130.0)


def test_work_in_between_makes_idleness_begin_anew() -> None:
    doing = Doing()
    for at in range(40):
        doing.take(sample(at, cpu=min(max(at - 12, 0), 6)))
    assert doing.kind == signs.IDLE
    assert doing.since >= 16


def test_too_few_looks_say_nothing() -> None:
    doing = Doing()
    for at in (0, 5, 10):
        doing.take(sample(at))
    assert doing.kind == signs.NEW


def test_pending_collectives_are_those_begun_and_not_completed() -> None:
    assert signs.pending((("a", 3, 3), ("b", 8, 7))) == (("b", 8),)


def test_a_group_whose_first_collective_hangs_has_completed_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = {"last_enqueued_collective": 1, "last_completed_collective": -1}  # as torch says it
    status = {"1": told, "2": dict.fromkeys(told, -1)}
    torch = SimpleNamespace(_dump_fr_trace_json=lambda *_: json.dumps({"pg_status": status}))
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", torch)
    assert sampling.counts() == (("1", 1, 0), ("2", 0, 0))
