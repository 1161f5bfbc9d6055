"""What a Workload of Kueue says of a job and its pods, and what is written into it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trainyard.kinds.shared.scheduling import kueue_workload
from trainyard.kinds.shared.workload import Workload, WorkloadRequest
from trainyard.lifecycle.actions import Create, Delete, Patch
from trainyard.lifecycle.kueue import kueue_admission, kueue_writes
from trainyard.lifecycle.kueue.kueue_admission import Admission, PodPlacement
from trainyard.lifecycle.observed import Flavor, Observed, Owned

RESOURCE = kueue_workload.WORKLOADS
NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
BEFORE = "2030-01-01T11:59:00Z"
POD_SETS = ({"name": "worker", "count": 3}, {"name": "ps", "count": 1})


def condition(kind: str, status: str = "True", reason: str = "", message: str = "") -> Any:
    fields = {"type": kind, "status": status, "lastTransitionTime": BEFORE}
    return fields | {k: v for k, v in (("reason", reason), ("message", message)) if v}


def owned(*conditions: Any, name: str = "job-1a2b", deleting: bool = False, **more: Any) -> Owned:
    """A Workload with these conditions; `more` is of its status, `spec` beside the pod sets."""
    spec = {"podSets": [dict(each) for each in POD_SETS], **more.pop("spec", {})}
    return Owned(
        RESOURCE,
        "default",
        name,
        f"uid-of-{name}",
        "7",
        "owner",
        spec,
        {"conditions": list(conditions), **more},
        deleting,
        generation=4,
    )


def admission(current: Owned | None = None, **more: Any) -> Admission:
    def manifest(name: str, counts: Mapping[str, int], replaces: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "counts": dict(counts), "replaces": replaces}

    counts = more.pop("counts", {"worker": 3, "ps": 1})
    request = WorkloadRequest(RESOURCE, "job-1a2b", "team", counts, cast(Any, manifest))
    taken = frozenset(each.name for each in (current, more.get("pending")) if each is not None)
    return Admission(request, current, taken=taken, **more)


ADMITTED = condition("Admitted")
RESERVED = condition("QuotaReserved")
EVICTED = condition("Evicted", reason="Preempted", message="made room for another")
FINISHED = condition("Finished", reason="Succeeded")
REPLACED = condition("Finished", reason="WorkloadSliceReplaced")


@pytest.mark.parametrize(
    ("conditions", "deleting", "admitted"),
    [
        ((), False, False),
        ((condition("Admitted", "False"),), False, False),
        ((ADMITTED,), False, True),
        ((ADMITTED,), True, False),
        ((ADMITTED, EVICTED), False, False),
        ((ADMITTED, condition("Evicted", "False")), False, True),
        ((ADMITTED, FINISHED), False, False),
        ((ADMITTED, REPLACED), False, True),
    ],
)
def test_pods_may_run_by_a_workload_that_is_admitted_and_not_over(
    conditions: tuple[Any, ...], deleting: bool, admitted: bool
) -> None:
    assert kueue_admission.is_admitted(owned(*conditions, deleting=deleting)) is admitted


@pytest.mark.parametrize(
    ("workload", "text"),
    [
        (owned(spec={"active": False}), "it is deactivated (spec.active is false)"),
        (
            owned(EVICTED, spec={"active": False}),
            "it is deactivated (spec.active is false): made room for another",
        ),
        (owned(EVICTED), "it was evicted (Preempted): made room for another"),
        (owned(condition("Evicted", reason="Why")), "it was evicted (Why): "),
        (
            owned(EVICTED, requeueState={"requeueAt": "tomorrow"}),
            "it was evicted (Preempted): made room for another; it is queued again at tomorrow",
        ),
        (owned(RESERVED), "quota is reserved, and checks are not ready: none is told"),
        (
            owned(
                RESERVED,
                admissionChecks=[
                    {"name": "budget", "state": "Ready", "message": "fine"},
                    {"name": "image", "state": "Pending", "message": "built"},
                    {"name": "person", "state": "Retry"},
                ],
            ),
            "quota is reserved, and checks are not ready: image (Pending: built), person (Retry)",
        ),
        (owned(condition("QuotaReserved", "False", message="no room")), "no room"),
        (owned(), "Kueue has not looked at it yet; is there a LocalQueue of that name?"),
    ],
)
def test_what_a_job_waits_for_is_said_as_its_workload_has_it(workload: Owned, text: str) -> None:
    wait = kueue_admission.describe_wait(admission(workload))
    assert wait == f"waits for admission by Kueue: Workload job-1a2b, queue team: {text}"


def test_a_job_without_a_workload_waits_for_it() -> None:
    text = kueue_admission.describe_wait(admission())
    assert text == "waits for admission by Kueue: Workload job-1a2b is being created"


# What pods get.


def test_pods_get_what_flavors_and_checks_say_of_their_type() -> None:
    spot = {"key": "spot", "operator": "Exists"}
    flavors = {
        "spot": Flavor("spot", "u", "1", {"pool": "spot"}, (spot,)),
        "big": Flavor("big", "u", "1", {"size": "big"}),
    }
    update = {
        "name": "worker",
        "labels": {"team": "a"},
        "annotations": {"note": "b"},
        "nodeSelector": {"zone": "c"},
        "tolerations": [{"key": "gpu"}],
    }
    current = owned(
        ADMITTED,
        admission={
            "podSetAssignments": [
                {"name": "worker", "flavors": {"cpu": "spot", "memory": "big", "gpu": "new"}},
                {"name": "ps", "flavors": {"cpu": "big"}, "topologyAssignment": {"levels": []}},
                {"name": "gone", "flavors": {"cpu": "lost"}},
            ]
        },
        admissionChecks=[{"name": "person"}, {"name": "image", "podSetUpdates": [update]}],
    )
    observed = cast(Observed, SimpleNamespace(flavors=flavors))
    found, unknown = kueue_admission.pod_placements(admission(current), observed)
    assert unknown == ("new",)
    assert found == {
        "worker": PodPlacement(
            {"kueue.x-k8s.io/podset": "worker", "team": "a"},
            {"note": "b"},
            {"size": "big", "pool": "spot", "zone": "c"},
            (spot, {"key": "gpu"}),
        ),
        "ps": PodPlacement(
            {"kueue.x-k8s.io/podset": "ps"},
            {"kueue.x-k8s.io/workload": "job-1a2b"},
            {"size": "big"},
            is_gated=True,
        ),
    }
    assert kueue_admission.pod_placements(None, observed) == ({}, ())


def test_a_placement_is_added_to_what_a_pod_has() -> None:
    spot, own = {"key": "spot"}, {"key": "own"}
    placement = PodPlacement({"a": "1"}, {"b": "2"}, {"c": "3"}, (spot, own), is_gated=True)
    gate = {"name": "kueue.x-k8s.io/topology"}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"x": "y"}, "annotations": {"n": "m"}},
        "spec": {
            "nodeSelector": {"d": "4"},
            "tolerations": [own],
            "schedulingGates": [{"name": "mine"}],
        },
    }
    assert placement.put(pod) == {
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "labels": {"x": "y", "a": "1"},
            "annotations": {"n": "m", "b": "2"},
        },
        "spec": {
            "nodeSelector": {"d": "4", "c": "3"},
            "tolerations": [own, spot],
            "schedulingGates": [{"name": "mine"}, gate],
        },
    }
    bare = {"metadata": {}, "spec": {}}
    assert placement.put(bare) == {
        "metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}},
        "spec": {
            "nodeSelector": {"c": "3"},
            "tolerations": [spot, own],
            "schedulingGates": [gate],
        },
    }
    assert PodPlacement().put(bare) == {"metadata": {"labels": {}}, "spec": {}}


class Sized:
    """A workload of a size, elastic or not."""

    def __init__(self, replicas: int, *, is_elastic: bool = True) -> None:
        self.replicas = replicas
        self.with_size = (lambda size: Sized(size)) if is_elastic else None


@pytest.mark.parametrize(
    ("current", "is_elastic", "size"),
    [
        (None, True, 6),
        (owned(), True, 6),
        (owned(ADMITTED), False, 6),
        (owned(ADMITTED), True, 4),
        (
            owned(ADMITTED, admission={"podSetAssignments": [{"name": "worker", "count": 2}]}),
            True,
            3,
        ),
        (
            owned(ADMITTED, admission={"podSetAssignments": [{"name": "worker", "count": 9}]}),
            True,
            4,
        ),
        (owned(ADMITTED, admission={"podSetAssignments": [{"name": "ps"}]}), True, 4),
    ],
)
def test_an_elastic_job_is_no_larger_than_what_was_admitted(
    current: Owned | None, is_elastic: bool, size: int
) -> None:
    workload = cast(Workload, Sized(6, is_elastic=is_elastic))
    assert kueue_admission.at_admitted_size(workload, admission(current)).replicas == size


# What is written.


def patched(patch: Patch) -> dict[str, Any]:
    """The conditions of a patch by their types; it is of this Workload, at this version."""
    assert (patch.resource, patch.name, patch.uid) == (RESOURCE, "job-1a2b", "uid-of-job-1a2b")
    assert (patch.subresource, patch.version) == ("status", "7")
    assert isinstance(patch.patch, dict)
    conditions = patch.patch["status"]["conditions"]
    assert all(each["observedGeneration"] == 4 for each in conditions if "reason" in each)
    return {
        each["type"]: (each["status"], each.get("reason", ""), each.get("message", ""))
        for each in conditions
    }


NOT_READY = "Not all pods are ready or succeeded"


@pytest.mark.parametrize(("reason", "again"), [("Preempted", "True"), ("Stopped", "False")])
@pytest.mark.parametrize("ready", [True, False])
def test_quota_is_given_back_after_an_eviction(reason: str, again: str, ready: bool) -> None:
    evicted = condition("Evicted", reason=reason, message="out")
    evicted["observedGeneration"] = 4
    more = [condition("PodsReady", reason="Started") | {"observedGeneration": 4}] if ready else []
    current = owned(evicted, RESERVED, ADMITTED, *more, accumulatedPastExecutionTimeSeconds=5)
    (patch,) = kueue_writes.return_quota(admission(current), NOW)
    expected = {
        "Evicted": ("True", reason, "out"),
        "Requeued": (again, reason, "out"),
        "QuotaReserved": ("False", "Pending", "out"),
        "Admitted": ("False", "NoReservation", "The workload has no reservation"),
    }
    if ready:
        expected["PodsReady"] = ("False", "WaitForStart", NOT_READY)
    assert patched(patch) == expected
    status = cast(dict[str, Any], patch.patch)["status"]
    assert status["admission"] is None
    assert status["accumulatedPastExecutionTimeSeconds"] == 65
    times = {each["type"]: each["lastTransitionTime"] for each in status["conditions"]}
    assert times["Evicted"] == BEFORE
    assert times["Admitted"] == times["Requeued"] == "2030-01-01T12:00:00Z"


def test_an_eviction_without_words_and_before_an_admission_gives_quota_back_too() -> None:
    current = owned({"type": "Evicted", "status": "True"}, RESERVED)
    (patch,) = kueue_writes.return_quota(admission(current), NOW)
    assert isinstance(patch.patch, dict)
    conditions = {each["type"]: each for each in patch.patch["status"]["conditions"]}
    assert conditions["Requeued"]["reason"] == "Evicted"
    assert conditions["Requeued"]["message"] == ""
    assert "accumulatedPastExecutionTimeSeconds" not in patch.patch["status"]
    (again,) = kueue_writes.return_quota(admission(owned(EVICTED, RESERVED, ADMITTED)), NOW)
    assert cast(Any, again.patch)["status"]["accumulatedPastExecutionTimeSeconds"] == 60
    early = NOW - timedelta(hours=1)
    (skewed,) = kueue_writes.return_quota(admission(owned(EVICTED, RESERVED, ADMITTED)), early)
    assert cast(Any, skewed.patch)["status"]["accumulatedPastExecutionTimeSeconds"] == 0


@pytest.mark.parametrize("current", [None, owned(EVICTED), owned(RESERVED), owned()])
def test_what_has_no_quota_or_was_not_evicted_gives_none_back(current: Owned | None) -> None:
    assert not list(kueue_writes.return_quota(admission(current), NOW))


READY = "All pods reached readiness and the workload is running"
RECOVERS = "At least one pod has failed, waiting for recovery"


@pytest.mark.parametrize(
    ("told", "ready", "expected"),
    [
        (None, True, ("True", "Started", READY)),
        (("False", "WaitForStart"), True, ("True", "Started", READY)),
        (("False", "WaitForRecovery"), True, ("True", "Recovered", READY)),
        (("True", "Started"), True, None),
        (("True", "Started"), False, ("False", "WaitForRecovery", RECOVERS)),
        (("True", "Recovered"), False, ("False", "WaitForRecovery", RECOVERS)),
        (("False", "WaitForRecovery"), False, None),
        (("False", "WaitForStart"), False, None),
        (None, False, ("False", "WaitForStart", NOT_READY)),
    ],
)
def test_whether_all_pods_run_is_told_once(
    told: tuple[str, str] | None, ready: bool, expected: tuple[str, str, str] | None
) -> None:
    current = owned(*([condition("PodsReady", *told)] if told else []))
    patches = list(kueue_writes.report_pods_ready(current, NOW, ready=ready))
    assert [patched(each)["PodsReady"] for each in patches] == ([expected] if expected else [])


def test_a_condition_that_stays_keeps_its_time_and_a_long_message_is_cut() -> None:
    current = owned(condition("Finished", "False"), condition("Other"))
    message = "x" * 40000
    observed = cast(Observed, SimpleNamespace(owned=(current,)))
    workload = cast(Workload, SimpleNamespace(request=admission().request, uid="owner"))
    for failed, reason in ((True, "Failed"), (False, "Succeeded")):
        (patch,) = kueue_writes.finish_workloads(
            workload, observed, NOW, failed=failed, message=message
        )
        assert patched(patch)["Finished"] == ("True", reason, "x" * 32768)
        assert patched(patch)["Other"] == ("True", "", "")


def test_a_slice_that_is_no_longer_wanted_is_deleted_and_another_asked_for() -> None:
    pending = owned(name="job-1a2b-1", spec={"podSets": [{"name": "worker", "count": 5}]})
    current = owned(ADMITTED, RESERVED)
    gone = kueue_writes.request_quota(admission(current, pending=pending), surplus=False)
    assert list(gone) == [Delete(RESOURCE, "job-1a2b-1", "uid-of-job-1a2b-1")]
    larger = admission(current, pending=pending, counts={"worker": 6, "ps": 1})
    (resize,) = kueue_writes.request_quota(larger, surplus=False)
    assert resize == Patch(
        RESOURCE,
        "job-1a2b-1",
        "uid-of-job-1a2b-1",
        [{"op": "replace", "path": "/spec/podSets/0/count", "value": 6}],
    )
    first = admission(current, counts={"worker": 6, "ps": 1})
    (create,) = kueue_writes.request_quota(first, surplus=False)
    assert isinstance(create, Create)
    assert create.manifest() == {
        "metadata": {"name": "job-1a2b-1"},
        "counts": {"worker": 6, "ps": 1},
        "replaces": "job-1a2b",
    }


@pytest.mark.parametrize(
    ("current", "surplus", "value"),
    [
        (owned(), True, 2),
        (owned(RESERVED), False, None),
        (owned(RESERVED, ADMITTED), False, 2),
        (owned(RESERVED, ADMITTED), True, None),
    ],
)
def test_a_job_that_wants_less_asks_for_less_once_its_pods_are_gone(
    current: Owned, surplus: bool, value: int | None
) -> None:
    asked = admission(current, counts={"worker": 2, "ps": 1})
    found = list(kueue_writes.request_quota(asked, surplus=surplus))
    path = "/spec/podSets/0/count"
    steps = [{"op": "replace", "path": path, "value": value}] if value is not None else None
    assert [cast(Patch, each).patch for each in found] == ([steps] if steps else [])
