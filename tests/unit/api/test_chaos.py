"""What `trainyard chaos` plans and concludes; what it does is in tests/embedded/test_chaos.py."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from trainyard.api.chaos.chaos_comparison import read_baseline
from trainyard.api.chaos.chaos_report import ChaosResult, Report, digests
from trainyard.api.chaos.chaos_schedule import Fault, Planned, planned
from trainyard.api.chaos.chaos_trial import running_hosts
from trainyard.client.pod_views import PodView
from trainyard.kinds.shared import labels as label
from trainyard.schema.errors import TrainyardError

ALL = tuple(Fault)


def first(seed: int, faults: tuple[Fault, ...] = ALL, every: float = 60.0) -> list[Planned]:
    return list(islice(planned(seed, faults, every), 4 * len(ALL)))


def test_a_seed_gives_the_same_schedule_and_another_one_another() -> None:
    assert first(7) == first(7)
    assert first(7) != first(8)
    assert first(7) == first(7, tuple(reversed(ALL))), "the order of naming plays no part"


def test_a_schedule_stays_what_it_was() -> None:
    """Reports name their seeds."""
    found = [
        (each.fault.value, round(each.after, 1)) for each in first(1, (Fault.KILL, Fault.STOP))
    ]
    assert found[:4] == [("kill", 62.1), ("stop", 106.9), ("stop", 179.2), ("kill", 231.3)]


@pytest.mark.parametrize("seed", range(20))
def test_each_fault_comes_once_before_one_comes_again(seed: int) -> None:
    found = [each.fault for each in first(seed)]
    for start in range(0, len(found), len(ALL)):
        assert sorted(found[start : start + len(ALL)]) == sorted(ALL)


@pytest.mark.parametrize("seed", range(20))
def test_faults_come_in_order_about_so_often_as_said(seed: int) -> None:
    found = first(seed, every=10.0)
    for number, each in enumerate(found, 1):
        assert abs(each.after - 10.0 * number) <= 2.5
        assert 0 <= each.draw < 1
    assert found == sorted(found, key=lambda each: each.after)


def test_without_faults_nothing_is_planned() -> None:
    assert list(planned(1, (), 1.0)) == []


def report(before: ChaosResult, after: ChaosResult) -> Report:
    return Report("job", 1, 60.0, ["kill"], before, after, [])


def test_a_result_is_the_same_by_phase_and_files() -> None:
    files = {"data:model": "a" * 64}
    same = report(
        ChaosResult("Succeeded", 10.0, files=files), ChaosResult("Succeeded", 12.0, files=files)
    )
    assert same.differences == []
    assert same.ratio == pytest.approx(1.2)
    other = report(
        ChaosResult("Succeeded", 10.0, files=files),
        ChaosResult("Failed", 12.0, message="worker-0 exited with 137", files={"data:model": ""}),
    )
    assert other.differences == [
        "Failed instead of Succeeded (worker-0 exited with 137)",
        "data:model is not there, was aaaaaaaaaaaa",
    ]


def test_metrics_that_differ_are_told_but_are_no_other_result() -> None:
    found = report(
        ChaosResult("Succeeded", 1.0, step=10, metrics={"loss": 0.5, "accuracy": 1}),
        ChaosResult("Succeeded", 1.0, step=10, metrics={"loss": 0.25, "accuracy": 1}),
    )
    assert found.differences == []
    assert found.other_metrics == ["loss 0.25 (was 0.5)"]


def test_a_report_is_the_baseline_of_another() -> None:
    before = ChaosResult("Succeeded", 10.0, goodput={"training": 8.0, "starting": 2.0})
    text = json.dumps(report(before, before).content())
    assert read_baseline(text) == before
    assert before.share == pytest.approx(0.8)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"baseline": 3}', '{"baseline": {"a": 1}}'])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(TrainyardError, match="no report of `trainyard chaos"):
        read_baseline(text)


def test_a_replica_is_found_by_the_host_name_of_its_pod() -> None:
    """DeepSpeedJobs and ColossalAIJobs give their pods one of their own: none of theirs was hit."""
    labels = {label.REPLICA_TYPE: "worker", label.REPLICA_INDEX: "1"}
    pod = {"metadata": {"name": "job-12345-worker-1", "labels": labels}, "status": {}}
    views = [
        PodView({**pod, "spec": spec, "status": {"phase": phase}})
        for spec, phase in (
            ({"hostname": "worker-1"}, "Running"),
            ({}, "Running"),
            ({"hostname": "ended"}, "Succeeded"),
        )
    ]
    expected = {"worker-1": "worker-1", "job-12345-worker-1": "worker-1"}
    assert running_hosts(views) == expected


def test_digests_tell_a_missing_file_from_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    found = digests((name, tmp_path / name) for name in ("empty", "missing"))
    assert found["missing"] == ""
    assert found["empty"].startswith("e3b0c44298fc1c14")
