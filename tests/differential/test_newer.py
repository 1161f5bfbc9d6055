"""What `validate --cluster` says that an older Kubernetes drops and refuses, it does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools.pod_versions import installed, since

from tests.differential.newer import SAMPLES, judged
from trainyard.schema import field_versions

_RECORDED = sorted((Path(__file__).parent / "recorded").glob("newer-*.json"))
_OLDEST, _NEWEST = field_versions.known_versions()
_NOT_OF_MANIFESTS = ("EphemeralContainer", "LoadBalancerIngress", "ManagedFieldsEntry", "Status")
_KINDS = {
    "pod": ("Pod", "served"),
    "service": ("Service", "core"),
    "claim": ("PersistentVolumeClaim", "core"),
}


@pytest.mark.parametrize("file", _RECORDED, ids=lambda file: file.stem)
def test_it_is_what_a_real_server_did(file: Path) -> None:
    recorded = json.loads(file.read_text())
    major, minor = file.stem.partition("-")[2].split(".")
    version = int(major), int(minor)
    assert recorded.keys() == SAMPLES.keys(), "record again: python -m tests.differential.record"
    ours = {name: judged(*sample, version) for name, sample in SAMPLES.items()}
    assert {name: ours[name] for name, told in recorded.items() if told != ours[name]} == {}


def test_every_field_that_some_version_drops_is_in_a_sample() -> None:
    given = {
        f"{owner}.{field}"
        for kind, obj in SAMPLES.values()
        for _, owner, part in field_versions.parts_with_definitions(obj, *_KINDS[kind])
        for field in part
    }
    fields = field_versions.fields_added_since_oldest() | field_versions.GATES.keys()
    assert {
        name
        for name in fields - given
        if not any(part in name.partition(".")[0] for part in _NOT_OF_MANIFESTS)
    } == set()


def test_what_a_version_takes_newer_ones_take() -> None:
    for name, sample in SAMPLES.items():
        told = [judged(*sample, (1, minor)) for minor in range(_OLDEST, _NEWEST + 1)]
        first = next((at for at, each in enumerate(told) if not each), len(told))
        assert not any(told[first:]), name


def test_a_field_comes_when_the_official_schema_has_it() -> None:
    found = since(installed())
    oldest = min(installed())
    ours = {
        name: field_versions.first_version(*name.split("."))
        for name in field_versions.fields_added_since_oldest()
    }
    assert found == {name: first for name, first in ours.items() if first > oldest}


@pytest.mark.parametrize(
    ("sample", "since"),
    [
        # Of Kubernetes' release notes and feature gates.
        ("'restartPolicy': 'Always'}", 29),
        ("'spec.schedulingGates.0'", 27),
        ("'grpc': {'port': 80}}", 24),
        ("'terminationGracePeriodSeconds': 3", 25),
        ("'image': {'reference'", 35),
        ("'minDomains'", 27),
        ("ReadWriteOncePod", 27),
        ("'name': '1A'", 32),
        ("status.hostIPs", 29),
        ("'spec.trafficDistribution': 'PreferClose'", 31),
        ("'spec.internalTrafficPolicy'", 22),
    ],
)
def test_a_gate_is_on_by_default_since(sample: str, since: int) -> None:
    (found,) = (each for name, each in SAMPLES.items() if sample in name)
    assert judged(*found, (1, since)) == []
    assert judged(*found, (1, since - 1)) != []
