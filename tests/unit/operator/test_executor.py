"""What the executor does with a plan, against the modelled API server in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any

import pytest

from tests.simulation.cluster import WallClock
from tests.simulation.network import Call, Conditions, Fault, Sent, Wire
from tests.simulation.server import Key, ModelServer, Obj
from tests.simulation.virtual_time import run
from trainyard.kinds.kind_registry import JOB_KINDS
from trainyard.kube.client import Client
from trainyard.kube.errors import Unreachable
from trainyard.kube.resources import PODS, SERVICES, Resource
from trainyard.kube.resources import PODS as POD_RESOURCE
from trainyard.lifecycle.actions import Create, Delete, Event, Patch, Plan
from trainyard.lifecycle.observed import Owned, Pod
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.reconcile.executor import (
    ChildResource,
    ClusterCache,
    Executor,
    ReconcileResult,
)
from trainyard.operator.reconcile.job_records import JobRecord
from trainyard.operator.reconcile.object_cache import ObjectCache
from trainyard.operator.runtime_context import RuntimeContext

KIND = JOB_KINDS["GenericJob"]
JOB = Key(KIND.plural, "default", "train")


class Bench:
    """An executor, one job, and a record of what was sent."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.clock = WallClock(loop)
        self.server = ModelServer(self.clock, random.Random(1))
        self.fault: Callable[[Call], Fault] = lambda call: Fault.NONE
        self.writes: list[str] = []
        conditions = Conditions(lambda call: self.fault(call), lambda key: None)
        wire = Wire(self.server, conditions, random.Random(2), 1, bool, self._sent, lambda *_: None)
        client = Client(wire)
        self.jobs: ObjectCache[JobRecord] = ObjectCache(lambda job: job.uid, lambda job: None)
        self.pods: ObjectCache[Pod] = ObjectCache(lambda pod: pod.owner_uid, lambda pod: None)
        self.services: ObjectCache[Owned] = ObjectCache(
            lambda owned: owned.owner_uid, lambda owned: None
        )
        children: dict[Resource, ChildResource] = {
            PODS: ChildResource(POD_RESOURCE, self.pods, Pod.decode),
            SERVICES: ChildResource(SERVICES, self.services, partial(Owned.decode, SERVICES)),
        }
        cache = ClusterCache({KIND.kind: self.jobs}, children)
        self.executor = Executor(client, cache, OperatorSettings(), RuntimeContext(self.clock))
        self.recorder, self.refusals = self.executor.recorder, self.executor.refusals
        stored = self.server.create(
            KIND.plural, "default", {"metadata": {"name": "train"}, "spec": {}}
        )
        self.job = JobRecord.decode(KIND, {**stored, "metadata": dict(stored["metadata"])})
        self.jobs.upsert(self.job)

    def _sent(self, sent: Sent) -> None:
        self.writes.append(f"{sent.call.method} {sent.call.key.plural}/{sent.call.key.name}")

    def pod(self, name: str, owner: str = "") -> Obj:
        reference = {"uid": owner or self.job.uid, "controller": True, "kind": "GenericJob"}
        reference["name"] = "train" if not owner else "other"
        return {"metadata": {"name": name, "ownerReferences": [reference]}, "spec": {}}

    def create(self, name: str) -> Create:
        return Create(PODS, name, partial(self.pod, name))

    def service(self, name: str) -> Create:
        return Create(SERVICES, name, partial(self.pod, name))

    async def create_first_pod(self) -> ReconcileResult:
        """The first pass of a job with a Service and a pod."""
        return await self.execute(
            status={"phase": "Pending"},
            actions=(self.service("s"), self.create("a")),
            events=(Event("Normal", "Created", "x"),),
        )

    @property
    def stored_phase(self) -> str:
        return str((self.server.get(JOB).get("status") or {}).get("phase", ""))

    async def execute(self, **parts: Any) -> ReconcileResult:
        return await self.executor.execute(self.job, Plan(**{"status": None, **parts}))

    @property
    def pod_names(self) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in self.server.all("pods"))

    @property
    def owned_pods(self) -> Collection[Pod]:
        """Those of the job in the cache."""
        return self.pods.owned_by(self.job.namespace, self.job.uid)


def on_bench(body: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await body(Bench())

    run(main())


def test_the_status_is_written_before_anything_is_done() -> None:
    async def body(bench: Bench) -> None:
        outcome = await bench.execute(status={"phase": "Pending"}, actions=(bench.create("a"),))
        assert outcome is ReconcileResult.DONE
        assert bench.writes == ["PUT genericjobs/train", "POST pods/"]
        known = bench.jobs.get("default", "train")
        assert known is not None
        assert known.status == {"phase": "Pending"}

    on_bench(body)


def test_a_conflict_on_the_status_voids_the_plan() -> None:
    async def body(bench: Bench) -> None:
        bench.server.patch(JOB, {"metadata": {"annotations": {"a": "b"}}})
        outcome = await bench.execute(
            status={"phase": "Pending"},
            actions=(bench.create("a"),),
            events=(Event("Normal", "Created", "x"),),
        )
        assert outcome is ReconcileResult.STALE
        assert bench.pod_names == []
        assert not bench.services
        await bench.recorder.flush()
        assert bench.server.all("events") == []

    on_bench(body)


def test_a_job_that_is_gone_gets_nothing() -> None:
    async def body(bench: Bench) -> None:
        bench.server.delete(JOB)
        outcome = await bench.execute(status={"phase": "Pending"}, actions=(bench.create("a"),))
        assert outcome is ReconcileResult.JOB_GONE
        assert bench.pod_names == []

    on_bench(body)


def test_nothing_is_created_before_the_status_is_stored() -> None:
    async def body(bench: Bench) -> None:
        phases: dict[str, str] = {}

        def note(call: Call) -> Fault:
            phases[call.key.plural] = bench.stored_phase
            return Fault.NONE

        bench.fault = note
        assert await bench.create_first_pod() is ReconcileResult.DONE
        assert bench.writes == ["PUT genericjobs/train", "POST services/", "POST pods/"]
        assert phases == {"genericjobs": "", "services": "Pending", "pods": "Pending"}
        assert len(bench.services) == len(bench.pods) == 1

    on_bench(body)


def test_a_pod_that_cannot_be_built_is_a_defect_once_the_status_is_stored() -> None:
    async def body(bench: Bench) -> None:
        actions = (Create(PODS, "a", lambda: bench.pod("a")["defect"]),)
        with pytest.raises(KeyError, match="defect"):
            await bench.execute(status={"phase": "Pending"}, actions=actions)
        assert bench.stored_phase == "Pending"

    on_bench(body)


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST_REQUEST, Fault.LOST_RESPONSE])
def test_first_pods_wait_for_what_they_rely_on(fault: Fault) -> None:
    """Decision 26; and the status, which is stored, is told of."""

    async def body(bench: Bench) -> None:
        bench.fault = lambda call: fault if call.key.plural == "services" else Fault.NONE
        if fault is Fault.REFUSED:
            assert await bench.create_first_pod() is ReconcileResult.INCOMPLETE
            assert [refusal.name for refusal in bench.refusals.refusals_of(bench.job.uid)] == ["s"]
        else:
            with pytest.raises(Unreachable):
                await bench.create_first_pod()
        assert bench.stored_phase == "Pending"
        assert bench.pod_names == []
        await bench.recorder.flush()
        assert [event["reason"] for event in bench.server.all("events")] == ["Created"]
        bench.fault = lambda call: Fault.NONE
        again = (bench.service("s"), bench.create("a"))
        bench.job = bench.jobs.get("default", "train") or bench.job
        assert (
            await bench.execute(status={"phase": "Running"}, actions=again) is ReconcileResult.DONE
        )
        assert bench.pod_names == ["a"]
        assert len(bench.server.all("services")) == 1

    on_bench(body)


@pytest.mark.parametrize("gone", [True, False])
def test_first_pods_wait_for_a_status_that_is_stored(gone: bool) -> None:
    async def body(bench: Bench) -> None:
        if gone:
            bench.server.delete(JOB)
        else:
            bench.server.patch(JOB, {"metadata": {"annotations": {"a": "b"}}})
        assert await bench.create_first_pod() is (
            ReconcileResult.JOB_GONE if gone else ReconcileResult.STALE
        )
        assert bench.pod_names == []
        assert not bench.services
        await bench.recorder.flush()
        assert bench.server.all("events") == []

    on_bench(body)


def test_a_creation_whose_answer_was_lost_is_found_again() -> None:
    async def body(bench: Bench) -> None:
        bench.fault = lambda call: Fault.LOST_RESPONSE if call.method == "POST" else Fault.NONE
        with pytest.raises(Unreachable):
            await bench.execute(actions=(bench.create("a"),))
        bench.fault = lambda call: Fault.NONE
        assert await bench.execute(actions=(bench.create("a"),)) is ReconcileResult.DONE
        assert bench.pod_names == ["a"]
        assert [pod.name for pod in bench.owned_pods] == ["a"]

    on_bench(body)


def test_a_name_that_another_holds_is_reported_and_not_taken_over() -> None:
    async def body(bench: Bench) -> None:
        bench.server.create("pods", "default", bench.pod("a", owner="somebody"))
        assert await bench.execute(actions=(bench.create("a"),)) is ReconcileResult.INCOMPLETE
        (conflict,) = bench.refusals.conflicts_of(bench.job.uid)
        assert (conflict.name, conflict.owner) == ("a", "GenericJob other")
        assert len(bench.pods) == 0

    on_bench(body)


def test_a_taken_name_is_tried_again_ever_more_slowly() -> None:
    async def body(bench: Bench) -> None:
        delays = []
        for _ in range(8):
            bench.refusals.record_conflict(bench.job.uid, PODS, "a", "somebody")
            (conflict,) = bench.refusals.conflicts_of(bench.job.uid)
            assert conflict.until is not None
            delays.append((conflict.until - bench.clock()).total_seconds())
        assert delays == [1, 2, 4, 8, 16, 32, 60, 60]
        assert await bench.execute(actions=(bench.create("a"),)) is ReconcileResult.DONE
        assert bench.refusals.conflicts_of(bench.job.uid) == ()

    on_bench(body)


def test_what_is_there_is_not_refused_any_more() -> None:
    """The creation of a controller that crashed may arrive after that of the next was refused."""

    async def body(bench: Bench) -> None:
        for name in ("a", "b"):
            bench.refusals.record_refusal(bench.job.uid, PODS, name, 403, "exceeded quota")
        bench.refusals.record_conflict(bench.job.uid, PODS, "c", "somebody")
        bench.refusals.clear_existing(bench.job.uid, [(PODS, "a"), (PODS, "c"), (PODS, "d")])
        assert [each.name for each in bench.refusals.refusals_of(bench.job.uid)] == ["b"]
        assert bench.refusals.conflicts_of(bench.job.uid) == ()
        bench.refusals.clear_existing("another", [(PODS, "b")])
        assert [each.name for each in bench.refusals.refusals_of(bench.job.uid)] == ["b"]

    on_bench(body)


def test_a_refused_creation_ends_the_batch_and_is_remembered() -> None:
    async def body(bench: Bench) -> None:
        bench.fault = lambda call: Fault.REFUSED if call.method == "POST" else Fault.NONE
        many = tuple(bench.create(f"p{number}") for number in range(100))
        assert await bench.execute(actions=many) is ReconcileResult.INCOMPLETE
        assert len(bench.writes) == 8
        refused = {refusal.name: refusal for refusal in bench.refusals.refusals_of(bench.job.uid)}
        assert {refusal.count for refusal in refused.values()} == {1}
        # A job's status shows it, and goes on to name resources as it always has.
        assert refused["p0"].message == "cannot create pods default/p0: exceeded quota"
        bench.writes.clear()
        assert await bench.execute(actions=many) is ReconcileResult.INCOMPLETE
        assert len(bench.writes) == 1, "once burnt, begin with one"
        bench.fault = lambda call: Fault.NONE
        assert await bench.execute(actions=many) is ReconcileResult.DONE
        assert bench.refusals.refusals_of(bench.job.uid) == ()

    on_bench(body)


def test_a_thousand_pods_are_created_a_few_at_a_time() -> None:
    async def body(bench: Bench) -> None:
        most = 0

        def count(call: Call) -> Fault:
            nonlocal most
            most = max(most, len(asyncio.all_tasks()) - 1)
            return Fault.NONE

        bench.fault = count
        many = tuple(bench.create(f"p{number}") for number in range(1000))
        assert await bench.execute(actions=many) is ReconcileResult.DONE
        assert len(bench.pod_names) == 1000
        assert most <= 32

    on_bench(body)


def test_only_the_pod_that_was_meant_is_deleted() -> None:
    async def body(bench: Bench) -> None:
        await bench.execute(actions=(bench.create("a"),))
        stale = next(iter(bench.owned_pods))
        key = Key("pods", "default", "a")
        bench.server.delete(key)
        bench.server.create("pods", "default", bench.pod("a"))
        assert await bench.execute(actions=(Delete(PODS, "a", stale.uid),)) is ReconcileResult.DONE
        assert bench.pod_names == ["a"]
        assert len(bench.pods) == 0, "the one that was meant is known to be gone"

    on_bench(body)


def test_a_patch_of_a_pod_that_is_gone_is_not_repeated() -> None:
    async def body(bench: Bench) -> None:
        await bench.execute(actions=(bench.create("a"),))
        stale = next(iter(bench.owned_pods))
        bench.server.delete(Key("pods", "default", "a"))
        patch = Patch(PODS, "a", stale.uid, {"spec": {"activeDeadlineSeconds": 1}})
        assert await bench.execute(actions=(patch,)) is ReconcileResult.DONE
        assert len(bench.pods) == 0

    on_bench(body)


def test_pods_are_stopped_before_any_of_them_is_deleted() -> None:
    """Consecutive actions run in parallel only with those of their own type."""

    async def body(bench: Bench) -> None:
        await bench.execute(actions=(bench.create("a"), bench.create("b")))
        pods = sorted(bench.owned_pods, key=lambda pod: pod.name)
        bench.writes.clear()
        stop = {"spec": {"activeDeadlineSeconds": 1}}
        stops = (Patch(PODS, pod.name, pod.uid, stop) for pod in pods)
        deletions = (Delete(PODS, pod.name, pod.uid) for pod in pods)
        assert await bench.execute(actions=(*stops, *deletions)) is ReconcileResult.DONE
        assert [write.split()[0] for write in bench.writes] == ["PATCH"] * 2 + ["DELETE"] * 2

    on_bench(body)


def test_a_deleted_pod_is_gone_from_the_cache_at_once() -> None:
    async def body(bench: Bench) -> None:
        await bench.execute(actions=(bench.create("a"),))
        pod = next(iter(bench.owned_pods))
        await bench.execute(actions=(Delete(PODS, "a", pod.uid),))
        assert bench.pod_names == []
        assert len(bench.pods) == 0

    on_bench(body)


def test_the_same_event_again_raises_its_count() -> None:
    async def body(bench: Bench) -> None:
        for _ in range(3):
            await bench.execute(events=(Event("Warning", "Refused", "no quota"),))
            await bench.recorder.flush()
            await asyncio.sleep(1)
        await bench.execute(events=(Event("Warning", "Refused", "another text"),))
        await bench.recorder.flush()
        events = bench.server.all("events")
        assert sorted((event["message"], event["count"]) for event in events) == [
            ("another text", 1),
            ("no quota", 3),
        ]
        assert events[0]["involvedObject"]["uid"] == bench.job.uid

    on_bench(body)


def test_an_event_that_cannot_be_stored_does_not_hurt() -> None:
    async def body(bench: Bench) -> None:
        bench.fault = lambda call: Fault.SERVER_ERROR
        await bench.execute(events=(Event("Normal", "Created", "x" * 5000),))
        await bench.recorder.flush()
        bench.fault = lambda call: Fault.NONE
        await bench.execute(events=(Event("Normal", "Created", "x" * 5000),))
        await bench.recorder.flush()
        (event,) = bench.server.all("events")
        assert len(event["message"]) == 1024

    on_bench(body)
