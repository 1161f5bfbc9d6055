"""What is said of a hang where ranks tell less than usual: no line, no collectives, no reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from tests.unit.lifecycle.test_hang_detector import NOW, RING, rank
from trainyard.lifecycle.hang.hang_detector import Finding, HangVerdict
from trainyard.lifecycle.hang.hang_texts import describe, event_text, format_stacks
from trainyard.lifecycle.hang.rank_reports import RankReport

BARE: dict[str, Any] = {"line": [], "frames": [], "ring": []}
NO_SIZES = [{**RING[0], "operation": "barrier", "sizes": []}]
ELSEWHERE = [{**RING[0], "group": "1", "number": 9}]


def described(
    finding: Finding, culprit: RankReport | None, waiting: Sequence[RankReport], **more: Any
) -> str:
    return describe(HangVerdict(finding, NOW, culprit, tuple(waiting), **more))


def bare(number: int, kind: str = "Waiting", **more: Any) -> RankReport:
    return rank(number, kind, **{**BARE, **more})


WHOLE, OTHER = rank(0, "Waiting"), rank(2, "Waiting")
TEXTS = [
    (
        partial(described, Finding.HUNG, rank(1, "Idle"), [bare(0)], is_gone=True),
        "worker-1 (rank 1) has ended; rank 0 waits",
    ),
    (
        partial(described, Finding.HUNG, rank(1, "Idle"), [WHOLE], is_gone=True),
        (
            "worker-1 (rank 1) has ended, and has not entered all_reduce #6; "
            "rank 0 waits in train.py:12"
        ),
    ),
    (
        partial(described, Finding.STOPPED, bare(1, "Stopped"), [bare(0), bare(2)]),
        "worker-1 (rank 1) is stopped by a signal; ranks 0, 2 wait",
    ),
    (
        partial(described, Finding.STOPPED, rank(1, "Stopped"), [WHOLE, OTHER]),
        (
            "worker-1 (rank 1) is stopped by a signal, and has not entered all_reduce #6; it was "
            "last seen in step, train.py:9; ranks 0, 2 wait in train.py:12"
        ),
    ),
    (
        partial(described, Finding.BUSY, bare(1, "Busy"), [bare(0)]),
        "rank 0 waits for worker-1 (rank 1), which is busy",
    ),
    (
        partial(described, Finding.MISMATCH, bare(1), [WHOLE]),
        (
            "the collectives do not match: worker-1 (rank 1) is in one that torch does not record; "
            "rank 0 is in all_reduce #6 of [[4]] at train.py:12"
        ),
    ),
    (
        partial(described, Finding.MISMATCH, rank(1, "Waiting", ring=NO_SIZES), [bare(0), bare(2)]),
        (
            "the collectives do not match: worker-1 (rank 1) is in barrier #6 at train.py:12; "
            "ranks 0, 2 are in one that torch does not record"
        ),
    ),
    (
        partial(described, Finding.MISMATCH, rank(1, "Waiting", ring=ELSEWHERE), [WHOLE]),
        (
            "the collectives do not match: worker-1 (rank 1) is in all_reduce #9 of [[4]] in "
            "process group 1 at train.py:12; rank 0 is in all_reduce #6 of [[4]] in process group "
            "0 at train.py:12"
        ),
    ),
    (
        partial(described, Finding.HUNG, rank(1, "Idle"), [bare(0), bare(2)]),
        "worker-1 (rank 1) sleeps in wait_for_peer, train.py:5; ranks 0, 2 wait",
    ),
    (
        partial(described, Finding.HUNG, rank(1, "Idle", ring=RING), [WHOLE]),
        "worker-1 (rank 1) sleeps in wait_for_peer, train.py:5; rank 0 waits in train.py:12",
    ),
    (
        partial(described, Finding.HUNG, rank(1, "Idle", ring=ELSEWHERE), [bare(0), WHOLE]),
        (
            "worker-1 (rank 1) has not entered all_reduce #6; it sleeps in wait_for_peer, "
            "train.py:5; ranks 0, 0 wait in train.py:12"
        ),
    ),
    (
        partial(described, Finding.HUNG, bare(1, "Idle", waitsFor="/data/fifo"), [bare(0)]),
        "worker-1 (rank 1) waits for /data/fifo; rank 0 waits",
    ),
    (
        partial(described, Finding.HUNG, rank(1, "Idle", waitsFor="/data/fifo"), [bare(0)]),
        "worker-1 (rank 1) waits for /data/fifo in wait_for_peer, train.py:5; rank 0 waits",
    ),
    (
        partial(described, Finding.HUNG, bare(1, "Idle", waitsFor="nobody_knows"), [bare(0)]),
        "worker-1 (rank 1) waits; rank 0 waits",
    ),
    (
        partial(described, Finding.HUNG, bare(1, "Idle", waitsFor="pipe_read"), [bare(0)]),
        "worker-1 (rank 1) waits for a pipe; rank 0 waits",
    ),
    (
        partial(described, Finding.HUNG, None, [bare(0)], unseen=(1,)),
        "rank 0 waits; rank 1 never reported",
    ),
    (
        partial(described, Finding.HUNG, None, [WHOLE], unseen=(1,)),
        "rank 0 waits in all_reduce #6 at train.py:12; rank 1 never reported",
    ),
    (partial(described, Finding.SLEEPS, None, [bare(0, "Idle")]), "the only rank sleeps"),
    (
        partial(described, Finding.HUNG, None, [bare(0, "Meeting", size=1)]),
        "the only rank waits for others to meet",
    ),
    (
        partial(described, Finding.HUNG, None, [bare(0, "Meeting", size=2)]),
        "the only rank waits for others to meet: WORLD_SIZE is 2, and 1 of them has come",
    ),
    (
        partial(described, Finding.BUSY, rank(9, "Busy"), [bare(n) for n in range(8)]),
        "ranks 0, 1, 2, 3, 4, 5, 6, 7 wait for worker-9 (rank 9), which is busy at eval.py:80",
    ),
    (
        partial(described, Finding.BUSY, rank(11, "Busy"), [bare(n) for n in range(11)]),
        (
            "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 3 more wait for worker-11 (rank 11), which is busy "
            "at eval.py:80"
        ),
    ),
]


@pytest.mark.parametrize(("told", "text"), TEXTS)
def test_what_is_not_known_is_left_out(told: Callable[[], str], text: str) -> None:
    assert told() == text


def test_waiters_in_several_places_have_none_in_common() -> None:
    others = [WHOLE, rank(2, "Waiting", line=["/w/train.py", 99, "main"])]
    text = described(Finding.SUSPECT, rank(1, "Stopped"), others)
    assert text.endswith("; ranks 0, 2 wait")


def test_odd_stacks_come_first_and_collectives_are_told_with_those_not_done() -> None:
    ring = [{**RING[0], "number": 5, "done": True}, *RING]
    alike = [rank(0, "Waiting", ring=ring), rank(1, "Waiting", ring=[])]
    blocks = format_stacks([*alike, rank(2, "Idle"), bare(3, "Looping")]).split("\n\n")
    assert blocks == [
        "worker-2 (rank 2): idle\n    wait_for_peer (/w/train.py:5)",
        "worker-3 (rank 3): looping",
        (
            "worker-0 (rank 0), worker-1 (rank 1): waiting\n    main (/w/train.py:12)\n"
            "    collectives of rank 0: all_reduce #5, all_reduce #6 (not done)"
        ),
    ]
    assert format_stacks([bare(0), bare(1, "Idle")]).startswith("worker-1 (rank 1): idle")


def test_an_event_has_room_for_so_much() -> None:
    assert event_text("a" * 2000) == "a" * 1000 + "."
