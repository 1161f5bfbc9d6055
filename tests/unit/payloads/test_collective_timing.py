"""What a rank tells of its arrivals at collectives, of a flight recorder that we play."""

from __future__ import annotations

import json
import sys
import time
import types
from typing import Any

import pytest

from tests.unit.lifecycle.test_hang_detector import NOW
from trainyard.lifecycle.hang.rank_reports import RankReport
from trainyard.payloads.observer import flight_recorders
from trainyard.payloads.observer.collective_timing import (
    MOST_COLLECTIVES,
    CollectiveTimings,
    GroupTimings,
)

BEGAN = time.time() - 1000


class Recorder:
    """As torch writes it out: keys in order, and parts that follow the entries."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def add(self, number: int, at: float, **changed: Any) -> None:
        entry = {
            "collective_seq_id": number,
            "input_sizes": [[4]],
            "is_p2p": False,
            "process_group": ["0", "default_pg"],
            "profiling_name": "gloo:all_reduce",
            "time_created_ns": int((BEGAN + at) * 1e9),
        }
        self.entries.append({**entry, **changed})

    def dump(self, _entries: bool, _active: bool) -> bytes:
        recorded = {"comm_lib_version": "", "entries": self.entries[-2000:], "nccl_comm_state": {}}
        return json.dumps(recorded, separators=(",", ":")).encode()


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder()
    module = types.ModuleType("torch._C._distributed_c10d")
    module._dump_fr_trace_json = found.dump  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(flight_recorders, "CPU_SHARE", 1e9)  # it may take what it takes
    return found


def arrivals(found: CollectiveTimings) -> dict[str, list[list[float]]]:
    """By group: number, seconds since the beginning, milliseconds since the one before."""
    _, now, groups = found.report()
    return {
        name: [[n, round(now - ago / 1e3 - BEGAN, 2), gap] for n, ago, gap in each]
        for name, each in groups
    }


def test_each_is_told_with_the_time_since_the_one_before(recorder: Recorder) -> None:
    found = CollectiveTimings()
    for number in range(1, 5):
        recorder.add(number, number * 2)
    recorder.add(5, 9, profiling_name="gloo:broadcast")
    recorder.add(6, 10)
    recorder.add(7, 11, is_p2p=True)
    found.read_new(0, 2)
    assert found.new_count == 4
    expected = [[2, 4.0, 2e3], [3, 6.0, 2e3], [4, 8.0, 2e3], [6, 10.0, 1e3]]
    assert arrivals(found) == {"0": expected}
    recorder.add(7, 12, profiling_name="gloo:_reduce_scatter_base")
    found.read_new(1, 2)
    assert found.new_count == 1
    assert arrivals(found) == {"0": [*expected, [7, 12.0, 2e3]]}


def test_another_group_of_that_name_begins_anew(recorder: Recorder) -> None:
    found = CollectiveTimings()
    for number in range(1, 20):
        recorder.add(number, number)
    found.read_new(0, 2)
    for number in range(1, 4):
        recorder.add(number, 100 + number)
    found.read_new(1, 2)
    assert [number for number, *_ in arrivals(found)["0"]] == [2, 3]


def test_it_looks_no_more_often_than_it_may(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight_recorders, "CPU_SHARE", 1e-9)
    found = CollectiveTimings()
    recorder.add(1, 1)
    recorder.add(2, 2)
    found.read_new(0, 2)
    recorder.add(3, 3)
    found.read_new(10, 2)
    assert len(arrivals(found)["0"]) == 1


def test_a_torch_that_records_nothing_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, "torch._C._distributed_c10d", types.ModuleType("torch._C._distributed_c10d")
    )
    found = CollectiveTimings()
    found.read_new(0, 2)
    assert found.report()[2] == []


@pytest.mark.parametrize("a_second", [1, 10, 100])
def test_of_many_the_same_are_kept_by_ranks_that_look_at_different_times(a_second: int) -> None:
    ranks = []
    for start in (0, 7):
        group = GroupTimings()
        for number in range(1, 60 * a_second + start * a_second // 10):
            group.add(number, BEGAN + number / a_second, "all_reduce")
            if number % (5 * a_second + start) == 0:
                group.limit(20.0)
        group.limit(20.0)
        ranks.append(group.kept)
    assert all(len(kept) <= MOST_COLLECTIVES for kept in ranks)
    assert all(kept[-1][1] - kept[0][1] >= 15 for kept in ranks)
    common = {number for number, *_ in ranks[0]} & {number for number, *_ in ranks[1]}
    assert len(common) >= 16


def test_the_controller_reads_what_is_told(recorder: Recorder) -> None:
    found = CollectiveTimings()
    for number in range(1, 9):
        recorder.add(number, number / 2)
    found.read_new(0, 2)
    machine, now, listed = found.report()
    base = {"kind": "Collecting", "machine": machine, "now": now, "arrivals": listed}
    rank = RankReport.decode(base, "worker-0", NOW)
    assert [each.number for each in rank.arrivals["0"]] == list(range(2, 9))
    assert rank.arrivals["0"][0].at == pytest.approx(BEGAN + 1, abs=1e-3)
    assert rank.arrivals["0"][0].gap == pytest.approx(0.5, abs=1e-3)
    for wrong in ([3], [["0"]], [["0", 3]], [["0", [[1, 2]]]], [["0", [[1, "2", 3]]]], "x"):
        with pytest.raises(ValueError, match=r"observation\.arrivals"):
            RankReport.decode({**base, "arrivals": wrong}, "worker-0", NOW)
