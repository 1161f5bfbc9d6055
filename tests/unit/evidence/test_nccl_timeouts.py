"""Who waited, and who did not come, by the words of NCCL's watchdog in several versions."""

# ruff: noqa: E501

from __future__ import annotations

import pytest

from trainyard.evidence.nccl_timeouts import find_nccl_timeout


def timed_out(rank: int, number: int, group: str = "") -> str:
    """Of a rank, which is [Rank n] or [PG … Rank n]."""
    inside = f"{group} Rank {rank}" if group else f"Rank {rank}"
    return (
        f"[{inside}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={number}, "
        "OpType=_REDUCE_SCATTER_BASE, NumelIn=64, NumelOut=8, Timeout(ms)=600000) ran for 600046 "
        "milliseconds before timing out."
    )


GROUP = "PG ID 0 PG GUID 0(default_pg)"
OTHER = "PG ID 2 PG GUID 3"
CASES = {
    "another rank says how far it was": (
        [
            "[rank0]:[E1114 09:50:59.7 ProcessGroupNCCL.cpp:683] " + timed_out(0, 78),
            (
                f"[rank0]:[E1114 09:51:00.6 ProcessGroupNCCL.cpp:1785] [{GROUP} Rank 0] Exception (either "
                "an error or timeout) detected by watchdog at work: 78, last enqueued NCCL work: 79, last "
                "completed NCCL work: 77."
            ),
            (
                f"[rank1]:[E1114 09:51:00.6 ProcessGroupNCCL.cpp:1858] [{GROUP} Rank 1] Received a dump "
                "signal due to a collective timeout from rank 0. Last enqueued NCCL work: 77, last "
                "completed: 77."
            ),
        ],
        (78, "0", (0,), (1,)),
    ),
    "the group is said with each line": (
        [
            f"[rank4]:[E129 16:38:47.7 ProcessGroupNCCL.cpp:688] {timed_out(0, 52229, OTHER)}",
            (
                f"[rank4]:[E129 16:38:47.7 ProcessGroupNCCL.cpp:2241] [{OTHER} Rank 0]  failure detected by"
                " watchdog at work sequence id: 52229 PG status: last enqueued work: 52258, last completed"
                " work: 52228"
            ),
            (
                f"[rank5]:[E129 16:38:47.7 ProcessGroupNCCL.cpp:2241] [{OTHER} Rank 1]  failure detected by"
                " watchdog at work sequence id: 52228 PG status: last enqueued work: 52228, last completed"
                " work: 52227"
            ),
        ],
        (52229, "ID 2 PG GUID 3", (4,), (5,)),
    ),
    "the group is that of the line with the same number": (
        [
            "[rank2]:[E1109 16:13:20.2 ProcessGroupNCCL.cpp:616] " + timed_out(0, 31),
            (
                f"[rank2]:[E1109 16:13:20.2 ProcessGroupNCCL.cpp:1834] [{OTHER} Rank 0] Timeout at NCCL"
                " work: 31, last enqueued NCCL work: 58, last completed NCCL work: 30."
            ),
        ],
        (31, "ID 2 PG GUID 3", (2,), ()),
    ),
    "who says nothing of all ranks did not come": (
        [timed_out(0, 6), timed_out(1, 6), timed_out(3, 6)],
        (6, "0", (0, 1, 3), (2,)),
    ),
    "all waited": ([timed_out(rank, 6) for rank in range(4)], (6, "0", (0, 1, 2, 3), ())),
    "it has the first of what others wait for too": (
        [
            timed_out(0, 9, OTHER),
            timed_out(1, 6),
            (
                f"[{GROUP} Rank 2] Received a dump signal due to a collective timeout from rank 1. Last "
                "enqueued NCCL work: 5, last completed NCCL work: 5."
            ),
        ],
        (6, "0", (1,), (2,)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_who_did_not_come(case: str) -> None:
    lines, wanted = CASES[case]
    found = find_nccl_timeout([lines], 4 if wanted[1] == "0" and len(lines) > 2 else 0)
    assert found is not None
    assert found.operation == "_REDUCE_SCATTER_BASE"
    assert found.seconds == 600
    assert (found.number, found.group, found.waited, found.missing) == wanted


def test_other_logs_tell_of_none() -> None:
    assert find_nccl_timeout([["step 3", "[Rank 1] is up"], []], 2) is None
