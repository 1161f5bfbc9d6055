"""How an elastic job's size is shared between replica types."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.kinds.pytorch.workload import Share, allocate


@pytest.mark.parametrize(
    ("total", "shares", "expected"),
    [
        (5, [(1, None)], [5]),
        (5, [(3, 7)], [5]),
        (6, [(1, None), (2, None)], [2, 4]),
        (5, [(1, None), (3, 1)], [1, 4]),
        (7, [(1, None), (3, 1), (3, 2)], [1, 2, 4]),
        (5, [(1, 1), (1, 1)], [3, 2]),
        (4, [(1, 1), (1, 1), (1, 1)], [2, 1, 1]),
        (2, [(1, 0), (1, 1)], [1, 1]),
        (1, [(1, 1), (1, 9)], [1, 0]),
        (2, [(1, None), (4, None)], [1, 1]),
        (2, [(3, None), (1, 1)], [2, 0]),
        (3, [(1, 1), (1, 1), (1, 0)], [2, 1, 0]),
        (4, [(1, None), (3, 0)], [1, 3]),
    ],
)
def test_table(total: int, shares: list[tuple[int, int | None]], expected: list[int]) -> None:
    assert allocate(total, [Share(*share) for share in shares]) == expected


weights = st.none() | st.integers(0, 5)


@given(st.integers(1, 40), st.lists(st.tuples(st.integers(0, 5), weights), min_size=1, max_size=5))
def test_rank_0_is_always_there_and_nothing_is_negative(
    total: int, shares: list[tuple[int, int | None]]
) -> None:
    counts = allocate(total, [Share(*share) for share in shares])
    assert counts[0] >= 1
    assert min(counts) >= 0
    has_rank_0 = shares[0][0] > 0
    assert sum(counts) == total if has_rank_0 else sum(counts) <= total
