"""The rule on hangs: who is to blame, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.lifecycle.world import START
from trainyard.lifecycle.hang import hang_detector
from trainyard.lifecycle.hang.hang_detector import Finding, HangVerdict, detect_hang
from trainyard.lifecycle.hang.hang_texts import describe, format_stacks
from trainyard.lifecycle.hang.rank_reports import RankReport

NOW = START + timedelta(seconds=600)
RING = [{"group": "0", "number": 6, "operation": "all_reduce", "sizes": [[4]], "done": False}]
PLACES = {
    "Stopped": (["/w/train.py", 9, "step"], ""),
    "Idle": (["/w/train.py", 5, "wait_for_peer"], "hrtimer_nanosleep"),
    "Waiting": (["/w/train.py", 12, "main"], "futex_do_wait"),
    "Busy": (["/w/eval.py", 80, "evaluate"], ""),
    "Looping": (["/w/train.py", 7, "spin"], ""),
    "Meeting": (["/w/train.py", 2, "main"], ""),
}


def rank(number: int, kind: str, /, **changed: Any) -> RankReport:
    """One that has done so for `number` + 100 seconds, and said so a second ago."""
    line, waits = PLACES.get(kind, ([], ""))
    fields: dict[str, Any] = {
        "attempt": 1,
        "rank": number,
        "size": 0,
        "pid": 40 + number,
        "kind": kind,
        "seconds": 100 + number,
        "every": 30,
        "line": line,
        "frames": [line] if line else [],
        "waitsFor": waits,
        "ring": RING if kind == "Waiting" else [],
    }
    fields |= {"kind": "New"} if kind == "Stopped" else {}
    found = RankReport.decode({**fields, **changed}, f"worker-{number}", NOW - timedelta(seconds=1))
    return replace(found, kind=kind)


def ranks(*kinds: str, size: int = 0) -> list[RankReport]:
    return [rank(number, kind, size=size or len(kinds)) for number, kind in enumerate(kinds)]


def found(*given: RankReport, **options: Any) -> HangVerdict:
    verdict = detect_hang(given, NOW, **options)
    assert verdict is not None
    return verdict


def test_the_one_who_did_not_come_is_named_with_what_it_has_not_entered() -> None:
    verdict = found(*ranks("Waiting", "Idle", "Waiting", "Waiting"))
    assert verdict.finding is Finding.HUNG
    assert describe(verdict) == (
        "worker-1 (rank 1) has not entered all_reduce #6; it sleeps in wait_for_peer, train.py:5; "
        "ranks 0, 2, 3 wait in train.py:12"
    )
    # It is as old as the youngest part of it.
    assert verdict.since == NOW - timedelta(seconds=101)


@pytest.mark.parametrize(
    ("finding", "kinds", "text"),
    [
        (
            Finding.BUSY,
            ("Busy", "Waiting", "Waiting"),
            "ranks 1, 2 wait for worker-0 (rank 0), which is busy at eval.py:80",
        ),
        # One that works may be what an idle one waits for.
        (
            Finding.BUSY,
            ("Busy", "Waiting", "Idle"),
            "rank 1 waits for worker-0 (rank 0), which is busy at eval.py:80",
        ),
        (
            Finding.HUNG,
            ("Waiting", "Looping"),
            (
                "worker-1 (rank 1) has not entered all_reduce #6; it runs in a loop that changes "
                "nothing in spin, train.py:7; rank 0 waits in train.py:12"
            ),
        ),
        (
            Finding.HUNG,
            ("Waiting", "Waiting"),
            "all 2 ranks wait in all_reduce #6 of [[4]] at train.py:12",
        ),
        (
            Finding.HUNG,
            ("Waiting", "Meeting"),
            (
                "worker-1 (rank 1) has not entered all_reduce #6; it waits for others to meet, or "
                "for an answer of their store in main, train.py:2; rank 0 waits in train.py:12"
            ),
        ),
        (Finding.SLEEPS, ("Idle", "Idle"), "all 2 ranks sleep at train.py:5"),
        (
            Finding.HUNG,
            ("Waiting", "Left"),
            (
                "worker-1 (rank 1) has ended, and has not entered all_reduce #6; rank 0 waits in "
                "train.py:12"
            ),
        ),
    ],
)
def test_what_is_found(finding: Finding, kinds: tuple[str, ...], text: str) -> None:
    verdict = found(*ranks(*kinds))
    assert (verdict.finding, describe(verdict)) == (finding, text)


@pytest.mark.parametrize(
    "kinds",
    [
        (),
        ("Collecting", "Collecting"),
        ("Waiting", "Collecting"),
        ("Idle", "New"),
        ("Busy", "Busy"),
        ("Busy", "Idle"),
        ("Left", "Left"),
        ("Left", "Busy"),
    ],
)
def test_nothing_is_said_of_ranks_that_get_on(kinds: tuple[str, ...]) -> None:
    assert detect_hang(ranks(*kinds), NOW) is None


def test_a_meeting_to_which_fewer_come_than_are_expected_is_told_with_both_numbers() -> None:
    verdict = found(*ranks("Meeting", "Meeting", size=4))
    assert verdict.finding is Finding.HUNG
    assert describe(verdict) == (
        "all 2 ranks wait for others to meet at train.py:2: WORLD_SIZE is 4, and 2 of them have "
        "come"
    )
    assert describe(found(*ranks("Meeting", size=3))).endswith("3, and 1 of them has come")


def test_ranks_that_never_reported_are_a_suspicion() -> None:
    verdict = found(*ranks("Waiting", "Waiting", size=4))
    assert verdict.finding is Finding.SUSPECT
    assert describe(verdict) == (
        "ranks 0, 1 wait in all_reduce #6 at train.py:12; ranks 2, 3 never reported"
    )
    assert detect_hang(ranks("Idle", "Idle", size=3), NOW) is None
    assert found(*ranks("Waiting", "Idle", size=3)).finding is Finding.HUNG


def test_ranks_that_are_idle_and_do_not_sleep_hang() -> None:
    waits = [replace(each, waits_for="pipe:[12]") for each in ranks("Idle", "Idle")]
    verdict = found(*waits)
    assert verdict.finding is Finding.HUNG
    assert describe(verdict).startswith(
        "no rank does anything: worker-0 (rank 0) waits for a pipe in wait_for_peer, train.py:5; "
    )


def test_one_that_says_nothing_is_a_suspect_whatever_it_said_last() -> None:
    silent = replace(rank(1, "Collecting"), received_at=NOW - timedelta(seconds=66))
    verdict = found(rank(0, "Waiting"), silent)
    assert verdict.finding is Finding.SUSPECT
    assert not verdict.finding.is_hang
    assert "worker-1 (rank 1) says nothing any more" in describe(verdict)
    late = replace(silent, received_at=NOW - timedelta(seconds=65))
    assert detect_hang([rank(0, "Waiting"), late], NOW) is None


def test_one_that_is_stopped_hangs_those_who_wait_for_it() -> None:
    given = [*ranks("Waiting", "Stopped"), rank(2, "Busy")]
    # It was heard of long ago.
    given[1] = replace(given[1], received_at=NOW - timedelta(seconds=500))
    verdict = found(*given)
    assert (verdict.finding, verdict.finding.is_hang) == (Finding.STOPPED, True)
    assert verdict.since == NOW - timedelta(seconds=101)
    assert describe(verdict) == (
        "worker-1 (rank 1) is stopped by a signal, and has not entered all_reduce #6; it was last "
        "seen in step, train.py:9; rank 0 waits in train.py:12"
    )


@pytest.mark.parametrize(
    "kinds", [("Stopped", "Stopped"), ("Stopped", "Collecting"), ("Stopped", "Idle"), ("Stopped",)]
)
def test_one_that_is_stopped_and_awaited_by_nobody_is_none_of_ours(kinds: tuple[str, ...]) -> None:
    assert detect_hang(ranks(*kinds), NOW) is None


def test_a_pod_that_has_ended_is_gone_though_its_rank_said_nothing_of_it() -> None:
    verdict = found(*ranks("Waiting", "Collecting"), gone=frozenset({"worker-1"}))
    assert (verdict.finding, verdict.is_gone) == (Finding.HUNG, True)


def test_a_job_that_may_serve_is_not_judged_while_it_waits_for_requests() -> None:
    serving = [rank(0, "Waiting"), replace(rank(1, "Idle"), waits_for="ep_poll")]
    assert detect_hang(serving, NOW, serves=True) is None
    serving[1] = replace(serving[1], waits_for="socket:[77]")
    assert detect_hang(serving, NOW, serves=True) is None
    assert found(*serving).finding is Finding.HUNG
    assert found(*ranks("Waiting", "Idle"), serves=True).finding is Finding.HUNG


def entry(number: int, operation: str, group: str = "0", **more: Any) -> dict[str, Any]:
    return {"group": group, "number": number, "operation": operation, "sizes": [[4]], **more}


@pytest.mark.parametrize(
    ("rings", "odd"),
    [
        (([entry(6, "all_reduce")], [entry(6, "broadcast")], [entry(6, "all_reduce")]), 1),
        (([entry(6, "broadcast")], [entry(6, "all_reduce")], [entry(6, "all_reduce")]), 0),
        (([entry(6, "all_reduce")], [entry(6, "broadcast")]), 1),
        (([entry(6, "all_reduce")], [entry(6, "all_reduce", sizes=[[8]])]), 1),
        # Other groups first; and one that is behind.
        (([entry(1, "all_reduce", "a")], [entry(1, "all_reduce", "b")]), 1),
        (([entry(6, "all_reduce")], [entry(5, "all_reduce")], [entry(5, "all_reduce")]), 0),
        (([entry(6, "all_reduce")], [entry(6, "all_reduce")]), None),
        # What went well with other sizes is none of it.
        (
            (
                [entry(5, "all_gather", sizes=[[1]], done=True), entry(6, "barrier")],
                [entry(5, "all_gather", sizes=[[2]], done=True), entry(6, "barrier")],
            ),
            None,
        ),
    ],
)
def test_the_rank_whose_collectives_do_not_match(
    rings: tuple[list[dict[str, Any]], ...], odd: int | None
) -> None:
    given = [rank(number, "Waiting", ring=ring) for number, ring in enumerate(rings)]
    verdict = found(*given)
    if odd is None:
        assert (verdict.finding, verdict.culprit) == (Finding.HUNG, None)
        return
    assert verdict.finding is Finding.MISMATCH
    assert verdict.culprit is not None
    assert verdict.culprit.rank == odd
    assert describe(verdict).startswith(
        f"the collectives do not match: worker-{odd} (rank {odd}) is in"
    )


def test_collectives_of_two_groups_are_told_with_their_groups() -> None:
    verdict = found(
        rank(0, "Waiting", ring=[entry(1, "all_reduce", "1")]),
        rank(1, "Waiting", ring=[entry(1, "all_reduce", "5f1e7b0c9d2a43e8")]),
    )
    assert describe(verdict) == (
        "the collectives do not match: worker-1 (rank 1) is in all_reduce #1 of [[4]] in process "
        "group 5f1e7b0c9d2a at train.py:12; rank 0 is in all_reduce #1 of [[4]] in process group 1 "
        "at train.py:12"
    )


def test_equal_stacks_are_told_once_and_the_odd_one_first() -> None:
    text = format_stacks(ranks("Waiting", "Idle", "Waiting"))
    assert text == (
        "worker-1 (rank 1): idle\n"
        "    wait_for_peer (/w/train.py:5)\n\n"
        "worker-0 (rank 0), worker-2 (rank 2): waiting\n"
        "    main (/w/train.py:12)\n"
        "    collectives of rank 0: all_reduce #6 (not done)\n"
        "    collectives of rank 2: all_reduce #6 (not done)"
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "Dancing"),
        ("kind", 5),
        ("rank", -1),
        ("rank", True),
        ("rank", 10**9),
        ("seconds", float("nan")),
        ("every", "soon"),
        ("frames", "x"),
        ("frames", [["a", 1]]),
        ("frames", [["a", "b", "c"]]),
        ("frames", [[{}, 1, "c"]]),
        ("counts", [["a", 1]]),
        ("counts", [["a", "b", "c"]]),
        ("ring", [5]),
        ("ring", [{"operation": []}]),
        ("line", [1]),
        ("waitsFor", []),
    ],
)
def test_a_report_that_is_none_is_refused_with_its_field(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"observation.{'frames' if field == 'line' else field}"):
        rank(0, "Idle", **{field: value})


@pytest.mark.parametrize("obj", [None, [], "x", 7])
def test_a_report_is_an_object(obj: Any) -> None:
    with pytest.raises(ValueError, match="must be an object"):
        RankReport.decode(obj, "worker-0", NOW)


def test_a_report_is_cut_to_what_it_may_hold() -> None:
    found = rank(0, "Idle", frames=[["f" * 9999, 1, "g"]] * 99, ring=[entry(1, "x" * 999)] * 99)
    assert len(found.frames) == 40
    assert len(found.frames[0].file) == 512
    assert len(found.ring) == 12
    assert hang_detector.is_silent(found, NOW) is False


def device(number: int, place: int, **changed: Any) -> RankReport:
    """One whose device has this to do next."""
    entry = {"group": "nccl:0", "number": place, "operation": "all_reduce", "done": False}
    return rank(number, changed.pop("kind", "Waiting"), ring=[{**entry, **changed}], size=3)


def test_a_rank_whose_device_has_not_come_to_a_collective_is_waited_for() -> None:
    started = {"started": True}
    verdict = found(device(0, 6, **started), device(1, 6), device(2, 6, **started))
    assert verdict.finding is Finding.BUSY
    assert describe(verdict) == (
        "ranks 0, 2 wait for worker-1 (rank 1), whose device has not come to all_reduce #6 at "
        "train.py:12"
    )
    # Without the times of their beginnings nobody can be told from the others.
    verdict = found(device(0, 6), device(1, 6), device(2, 6))
    assert (verdict.finding, verdict.culprit) == (Finding.HUNG, None)


def test_who_has_begun_what_others_wait_for_is_not_late_whatever_it_does_meanwhile() -> None:
    verdict = found(device(0, 6), device(1, 6, kind="Idle"), rank(2, "Idle", size=3))
    assert verdict.culprit is not None
    assert verdict.culprit.rank == 2


@pytest.mark.parametrize(("kind", "finding"), [("Busy", "BUSY"), ("Stopped", "STOPPED")])
def test_who_works_or_is_stopped_is_not_waiting_for_what_it_has_begun(
    kind: str, finding: str
) -> None:
    for begun in ({}, {"operation": "barrier"}):
        verdict = found(device(0, 6), device(1, 6), device(2, 6, kind=kind, **begun))
        assert verdict.finding is Finding[finding]
        assert verdict.culprit is not None
        assert verdict.culprit.rank == 2
        assert [each.rank for each in verdict.waiting] == [0, 1]


def test_who_was_stopped_or_ended_in_a_collective_is_not_said_to_have_missed_it() -> None:
    verdict = found(device(0, 6), device(1, 6), device(2, 6, kind="Stopped"))
    assert describe(verdict) == (
        "worker-2 (rank 2) is stopped by a signal; it was last seen in step, train.py:9; "
        "ranks 0, 1 wait in train.py:12"
    )
    verdict = found(device(0, 6), device(1, 6), device(2, 6), gone=frozenset({"worker-2"}))
    assert describe(verdict) == "worker-2 (rank 2) has ended; ranks 0, 1 wait in train.py:12"


def test_of_several_that_work_or_do_nothing_the_one_behind_is_named() -> None:
    for kind in ("Busy", "Idle"):
        ahead, behind = ([["0", number, number]] for number in (9, 5))
        verdict = found(
            rank(0, "Waiting", size=3),
            rank(1, kind, size=3, counts=ahead),
            rank(2, kind, size=3, counts=behind),
        )
        assert verdict.culprit is not None
        assert verdict.culprit.rank == 2


def test_sends_and_groups_of_devices_are_no_mismatch_where_ranks_are_in_different_ones() -> None:
    sends = {"operation": "send 0->1", "p2p": True}
    receives = {"operation": "recv 1<-0", "p2p": True}
    verdict = found(device(0, 6, **sends), device(1, 6, **receives), device(2, 9))
    assert (verdict.finding, verdict.culprit) == (Finding.HUNG, None)
    verdict = found(device(0, 6), device(1, 6, operation="broadcast"), device(2, 6))
    assert verdict.finding is Finding.MISMATCH
