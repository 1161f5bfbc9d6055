"""What a cluster refuses as a pod is refused in the template of a job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.differential.newer import REFUSED, REFUSED_SAMPLES, SAMPLES, job
from tests.differential.templates import LATER
from trainyard.kinds.kind_admission import admit, check
from trainyard.schema.kubernetes_schemas import check_part
from trainyard.schema.rules.pod_spec_rules import pod

_RECORDED = sorted((Path(__file__).parent / "recorded").glob("refusable-*.json"))


def test_a_job_with_a_template_that_no_cluster_takes_is_refused() -> None:
    assert len(REFUSED_SAMPLES) >= 70
    passing = {
        name
        for name, (_, obj) in REFUSED_SAMPLES.items()
        for judge in (check, admit)
        if judge(job(obj)).allowed
    }
    assert passing == set()


def test_so_is_the_pod_itself() -> None:
    for name, (_, obj) in REFUSED_SAMPLES.items():
        assert check_part(obj["spec"], "PodSpec") or list(pod(obj)), name


def test_their_neighbours_are_taken() -> None:
    for name, (kind, obj) in SAMPLES.items():
        if kind == "pod":
            assert check(job(obj)).errors == (), name
            assert list(pod(obj)) == [], name


@pytest.mark.parametrize("file", _RECORDED, ids=lambda file: file.stem)
def test_a_real_server_refuses_them_or_drops_what_it_does_not_know(file: Path) -> None:
    recorded = json.loads(file.read_text())
    assert recorded.keys() == REFUSED_SAMPLES.keys()
    taken = {name for name, told in recorded.items() if told != REFUSED and not told}
    assert {name for name in taken if not any(part in name for part in LATER)} == set()
    assert all(any(part in name for name in taken) for part in LATER)
