"""What jobs are to other schedulers: their published definitions, and priorities."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
from tests.queueing.definitions import RELEASES, schema_of
from tests.unit.kinds import manifests

from trainyard.kinds.kind_registry import KINDS, describe
from trainyard.kinds.shared.job_settings import GangBackend, Settings
from trainyard.kinds.shared.workload import Manifest, Workload, objects
from trainyard.schema import structural_schema

JOBS = {
    "pytorch": manifests.pytorch,
    "deepspeed": manifests.deepspeed,
    "colossalai": manifests.colossalai,
    "generic": manifests.generic,
}


def workload(made: Any, settings: Settings) -> Workload:
    """A job with a priority, handed to a scheduler."""
    job = manifests.changed(
        made(), "spec.scheduler", {"t9kScheduler": {"queue": "q", "priority": 60}}
    )
    job["metadata"] |= {"namespace": "default", "uid": "0f6c3a52-8a0f-4a7e-9c06-6a0f7f1d2b11"}
    model = KINDS[job["kind"]].model.model_validate(job)
    return describe(model, settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("made", JOBS.values(), ids=list(JOBS))
def test_a_job_is_a_workload_as_kueue_publishes_it(made: Any) -> None:
    found = workload(made, Settings(gang_backend=GangBackend.KUEUE))
    assert found.request is not None
    name, counts = found.request.name, found.request.counts
    manifest = found.request.manifest(name, counts, "")
    assert _problems(manifest, "workloads", "kueue") == []
    assert [each["name"] for each in manifest["spec"]["podSets"]] == list(counts)
    assert sum(each["count"] for each in manifest["spec"]["podSets"]) == found.replicas
    assert not any("kueue" in mark for pod in _pods(found) for mark in pod["metadata"]["labels"])


@pytest.mark.parametrize("made", JOBS.values(), ids=list(JOBS))
@pytest.mark.parametrize("scheduler", ["volcano", "scheduler-plugins"])
def test_groups_are_as_their_schedulers_publish_them(made: Any, scheduler: str) -> None:
    settings = Settings(gang_backend=GangBackend(scheduler), priority_classes=("0=low", "50=high"))
    found = workload(made, settings)
    (group,) = [each for each in objects(found) if each["kind"] == "PodGroup"]
    assert _problems(group, "podgroups", scheduler) == []
    assert group["spec"]["minMember"] == found.replicas
    assert {pod["spec"]["priorityClassName"] for pod in _pods(found)} == {"high"}
    if scheduler == "volcano":
        assert group["spec"]["priorityClassName"] == "high"
    assert found.warnings == ()


@pytest.mark.parametrize("made", JOBS.values(), ids=list(JOBS))
@pytest.mark.parametrize(("version", "release"), RELEASES.items())
def test_kubernetes_own_groups_and_their_pods_are_as_published(
    version: str, release: str, made: Any
) -> None:
    """By the OpenAPI of these releases, which knows every field and allows no others."""
    settings = Settings(
        gang_backend=GangBackend.KUBERNETES,
        pod_groups_version=version,
        priority_classes=("50=high",),
    )
    found = workload(made, settings)
    (group,) = [each for each in objects(found) if each["kind"] == "PodGroup"]
    assert group["apiVersion"] == f"scheduling.k8s.io/{version}"
    policy = {"gang": {"minCount": found.replicas}}
    assert group["spec"] == {"schedulingPolicy": policy, "priorityClassName": "high"}
    kubernetes_validate.validate(group, release, strict=True)
    for pod in _pods(found):
        assert pod["spec"]["schedulingGroup"] == {"podGroupName": group["metadata"]["name"]}
        assert "schedulerName" not in pod["spec"]
        kubernetes_validate.validate(pod, release, strict=True)


def test_a_field_that_no_release_knows_would_be_found() -> None:
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup"}
    policy = {"gang": {"minCount": 2}}
    for spec in ({"schedulingPolicy": policy, "minMember": 2}, {"priorityClassName": "high"}):
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate({**group, "spec": spec}, "1.37", strict=True)


def test_a_priority_that_reaches_nobody_is_told() -> None:
    (warning,) = workload(manifests.generic, Settings(gang_backend=GangBackend.VOLCANO)).warnings
    assert "priority: 60 has no effect" in warning
    assert "priorityClasses" in warning
    for backend in (GangBackend.T9K, GangBackend.KUEUE):
        assert workload(manifests.generic, Settings(gang_backend=backend)).warnings == ()


@pytest.mark.parametrize(
    ("priority", "named"), [(0, ""), (9, ""), (10, "low"), (59, "low"), (60, "high"), (100, "high")]
)
def test_the_nearest_lower_priority_gives_the_class(priority: int, named: str) -> None:
    assert Settings(priority_classes=("60=high", "10=low")).priority_class_of(priority) == named


def _pods(found: Workload) -> list[Manifest]:
    return [each for each in objects(found) if each["kind"] == "Pod"]


def _problems(obj: Manifest, plural: str, scheduler: str) -> list[Any]:
    schema = schema_of(plural, scheduler)
    unknown = [str(each) for each in structural_schema.prune(obj, schema).unknown]
    return [*unknown, *structural_schema.check(obj, schema)]
