"""Passes of the whole controller against the modelled API server, in virtual time.

Nobody runs the pods here; what the controller asks for, how often, and when is looked at.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.simulation.cluster import WallClock
from tests.simulation.network import Call, Conditions, Fault, Sent, Wire
from tests.simulation.server import Key, ModelServer, Obj, Refused, owner_uid
from tests.simulation.virtual_time import run
from trainyard.kinds.shared.job_settings import GangBackend, Settings
from trainyard.kube.client import Client
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.metrics.instrumentation import Instrumentation
from trainyard.operator.reconcile.controller import Controller
from trainyard.operator.reconcile.job_records import JobKey
from trainyard.operator.runtime_context import RuntimeContext
from trainyard.schema.times import render

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "i", "command": ["x"]}]}}
SCHEDULER = {"t9kScheduler": {"queue": "default"}}


def generic(name: str = "train", replicas: int = 1, **spec: Any) -> Obj:
    """A GenericJob."""
    worker = {"type": "worker", "replicas": replicas, "template": TEMPLATE}
    return _job("GenericJob", name, {"replicaSpecs": [worker], **spec})


def pytorch(name: str = "train", replicas: int = 1, policy: str = "Never", **spec: Any) -> Obj:
    """A PyTorchTrainingJob."""
    worker = {"type": "worker", "replicas": replicas, "template": TEMPLATE}
    return _job(
        "PyTorchTrainingJob",
        name,
        {"replicaSpecs": [{**worker, "restartPolicy": policy}], **spec},
    )


def _job(kind: str, name: str, spec: Obj) -> Obj:
    return {
        "apiVersion": "batch.tensorstack.dev/v1beta1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


class Server(ModelServer):
    """Finalizers keep what was deleted, with its deletionTimestamp.

    `contended` many changes and deletions of pods meet others' writes, and are answered with 409.
    """

    contended = 0

    def _contend(self, key: Key) -> None:
        if key.plural == "pods" and self.contended:
            self.contended -= 1
            raise Refused(409, "Conflict", "the object has been modified")

    def patch(self, key: Key, patch: Obj) -> Obj:
        self._contend(key)
        return super().patch(key, patch)

    def delete(self, key: Key, *, uid: str | None = None, grace: int | None = None) -> Obj:
        metadata = self.get(key)["metadata"]
        self._contend(key)
        if not metadata.get("finalizers"):
            return super().delete(key, uid=uid, grace=grace)
        at = render(self.now().replace(microsecond=0))
        marks = {"deletionTimestamp": at, "deletionGracePeriodSeconds": 0}
        return self.set(key, metadata={**metadata, **marks})


class _Passes(Instrumentation):
    def __init__(self, passes: Counter[JobKey]) -> None:
        self._passes = passes

    def reconcile_finished(self, key: JobKey, result: str, seconds: float) -> None:
        self._passes[key] += 1


class Yard:
    """A cluster without kubelets, and a controller that looks after it."""

    def __init__(self, lifecycle: Settings) -> None:
        loop = asyncio.get_running_loop()
        self.clock = WallClock(loop)
        self.server = Server(self.clock, random.Random(1))
        self.fault: Callable[[Call], Fault] = lambda call: Fault.NONE
        self.sent: Counter[str] = Counter()
        self.passes: Counter[JobKey] = Counter()
        self.conditions = Conditions(lambda call: self.fault(call), lambda key: None)
        wire = Wire(
            self.server, self.conditions, random.Random(2), 1, bool, self._sent, lambda *_: None
        )
        settings = OperatorSettings(lifecycle=lifecycle)
        host = RuntimeContext(self.clock, random.Random(3), _Passes(self.passes))
        self.controller = Controller(Client(wire), settings, host)

    def _sent(self, sent: Sent) -> None:
        self.sent[f"{sent.call.method} {sent.call.key.plural}"] += 1

    def submit(self, job: Obj) -> Key:
        plural = job["kind"].lower() + "s"
        self.server.create(plural, "default", job)
        return Key(plural, "default", job["metadata"]["name"])

    def pods(self) -> list[Obj]:
        return self.server.all("pods")

    def status(self, key: Key) -> Obj:
        found: Obj = self.server.get(key).get("status") or {}
        return found

    def condition(self, key: Key, kind: str) -> Obj:
        return next((c for c in self.status(key)["conditions"] if c["type"] == kind), {})

    def let_run(self) -> None:
        """All pods get a node and run."""
        state: Obj = {"running": {}}
        for pod in self.pods():
            containers = [{"name": c["name"], "state": state} for c in pod["spec"]["containers"]]
            self.server.set(
                Key("pods", "default", pod["metadata"]["name"]),
                spec={**pod["spec"], "nodeName": "node"},
                status={"phase": "Running", "containerStatuses": containers},
            )

    def finish_deletions(self) -> None:
        """What the kubelet does with pods that are to go."""
        for pod in self.pods():
            if "deletionTimestamp" in pod["metadata"]:
                self.server.delete(Key("pods", "default", pod["metadata"]["name"]), grace=0)

    def collect(self, uid: str) -> None:
        """What the garbage collector does after the end of an owner."""
        for key, obj in list(self.server.objects.items()):
            if owner_uid(obj) == uid:
                del self.server.objects[key]
                self.server._record(key, "DELETED", obj, obj)


def in_yard(
    body: Callable[[Yard], Coroutine[Any, Any, None]], lifecycle: Settings | None = None
) -> None:
    """Run `body` beside a controller."""

    async def main() -> None:
        yard = Yard(lifecycle or Settings())
        task = asyncio.create_task(yard.controller.run())
        await asyncio.sleep(1)
        await body(yard)
        task.cancel()
        await asyncio.wait([task])

    run(main())


def test_a_pod_name_that_somebody_else_holds_is_asked_for_ever_more_slowly() -> None:
    async def body(yard: Yard) -> None:
        key = yard.submit(generic(replicas=2))
        await asyncio.sleep(1)
        uid = yard.server.get(key)["metadata"]["uid"]
        pod = yard.pods()[0]["metadata"]
        yard.server.delete(Key("pods", "default", pod["name"]))
        yard.server.create("pods", "default", {"metadata": {"name": pod["name"]}, "spec": {}})
        yard.sent.clear()
        await asyncio.sleep(60)
        assert yard.condition(key, "Running")["reason"] == "NameConflict"
        assert 5 <= yard.sent["POST pods"] <= 10
        yard.server.delete(Key("pods", "default", pod["name"]))
        await asyncio.sleep(60)
        assert {owner_uid(pod) for pod in yard.pods()} == {uid}

    in_yard(body)


def test_a_pod_that_a_finalizer_holds_is_not_deleted_over_and_over() -> None:
    async def body(yard: Yard) -> None:
        yard.submit(pytorch())
        await asyncio.sleep(1)
        yard.let_run()
        await asyncio.sleep(1)
        metadata = yard.pods()[0]["metadata"]
        key = Key("pods", "default", metadata["name"])
        yard.server.set(key, metadata={**metadata, "finalizers": ["example.com/held"]})
        yard.server.delete(key)
        yard.sent.clear()
        await asyncio.sleep(3600)
        assert yard.sent["DELETE pods"] <= 1

    in_yard(body)


def test_a_refused_write_does_not_keep_the_others_from_being_done() -> None:
    """Pods must not be patched here; they are deleted all the same, and the patch is repeated."""

    async def body(yard: Yard) -> None:
        policy = {"cleanUpPolicy": "All", "activeDeadlineSeconds": 5}
        key = yard.submit(pytorch(replicas=3, runPolicy=policy))
        await asyncio.sleep(1)
        yard.let_run()
        refuse = {"PATCH"}
        yard.fault = lambda call: Fault.REFUSED if call.method in refuse else Fault.NONE
        await asyncio.sleep(10)
        assert yard.status(key)["phase"] == "Failed"
        assert all("deletionTimestamp" in pod["metadata"] for pod in yard.pods())

    in_yard(body)


@pytest.mark.parametrize("policy", ["None", "All"])
def test_a_conflict_does_not_mean_that_a_pod_is_gone(policy: str) -> None:
    """An API server may lose the race against other writers of a pod, and says so."""

    async def body(yard: Yard) -> None:
        run_policy = {"cleanUpPolicy": policy, "activeDeadlineSeconds": 5}
        key = yard.submit(pytorch(replicas=3, runPolicy=run_policy))
        await asyncio.sleep(1)
        yard.let_run()
        yard.server.contended = 5
        await asyncio.sleep(15)
        assert yard.status(key)["phase"] == "Failed"
        pods = yard.pods()
        if policy == "All":
            assert all("deletionTimestamp" in pod["metadata"] for pod in pods)
        else:
            assert [pod["spec"].get("activeDeadlineSeconds") for pod in pods] == [1, 1, 1]

    in_yard(body)


def test_one_refused_deletion_does_not_keep_other_pods() -> None:
    async def body(yard: Yard) -> None:
        key = yard.submit(pytorch(replicas=40, runPolicy={"cleanUpPolicy": "All"}))
        await asyncio.sleep(2)
        first = sorted(pod["metadata"]["name"] for pod in yard.pods())[0]

        def fate(call: Call) -> Fault:
            is_first = call.method == "DELETE" and call.key.name == first
            return Fault.REFUSED if is_first else Fault.NONE

        yard.fault = fate
        yard.let_run()
        pod = next(pod for pod in yard.pods() if pod["metadata"]["name"].endswith("worker-0"))
        yard.server.set(
            Key("pods", "default", pod["metadata"]["name"]), status={"phase": "Succeeded"}
        )
        await asyncio.sleep(0.5)
        assert yard.status(key)["phase"] == "Succeeded"
        kept = [
            p["metadata"]["name"] for p in yard.pods() if "deletionTimestamp" not in p["metadata"]
        ]
        assert kept == [first]
        yard.fault = lambda call: Fault.NONE
        await asyncio.sleep(60)
        assert all("deletionTimestamp" in pod["metadata"] for pod in yard.pods())

    in_yard(body)


def test_a_status_tells_of_first_pods_at_once_however_long_they_took() -> None:
    async def body(yard: Yard) -> None:
        asked, told = [], []

        def slow(call: Call) -> Fault:
            if call.method == "PUT":
                told.append(asyncio.get_running_loop().time())
            elif call.key.plural == "pods":
                asked.append(asyncio.get_running_loop().time())
            return Fault.SLOW if call.key.plural == "pods" else Fault.NONE

        yard.fault = slow
        key = yard.submit(pytorch(replicas=8))
        await asyncio.sleep(30)
        assert yard.status(key)["replicas"] == 8
        assert len(asked) == 8
        assert 3.5 < told[1] - asked[0] < 5.2  # slow answers take five seconds at most

    in_yard(body)


def test_heartbeats_of_nodes_call_for_no_passes() -> None:
    async def body(yard: Yard) -> None:
        node = Key("nodes", "", "node")
        yard.server.create("nodes", "", {"metadata": {"name": "node"}})
        yard.submit(pytorch())
        await asyncio.sleep(1)
        yard.let_run()
        await asyncio.sleep(1)
        yard.passes.clear()
        for beat in range(10):
            ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": str(beat)}
            yard.server.set(node, status={"conditions": [ready]})
            await asyncio.sleep(1)
        assert not yard.passes
        lost = {"type": "Ready", "status": "Unknown"}
        yard.server.set(node, status={"conditions": [lost]})
        await asyncio.sleep(1)
        assert yard.passes.total() >= 1

    in_yard(body)


def test_a_job_created_anew_at_once_waits_only_until_its_namesake_is_collected() -> None:
    async def body(yard: Yard) -> None:
        job = generic(replicas=2, service={"ports": [{"port": 80}]}, scheduler=SCHEDULER)
        key = yard.submit(job)
        await asyncio.sleep(1)
        old = yard.server.get(key)["metadata"]["uid"]
        yard.server.delete(key)
        yard.submit(job)
        await asyncio.sleep(5)
        assert yard.condition(key, "Running")["reason"] == "NameConflict"
        yard.collect(old)
        await asyncio.sleep(8)
        uid = yard.server.get(key)["metadata"]["uid"]
        assert uid != old
        assert {owner_uid(obj) for obj in yard.server.all("services")} == {uid}
        assert len(yard.pods()) == 2

    in_yard(body)


def test_two_kinds_may_share_a_name() -> None:
    async def body(yard: Yard) -> None:
        keys = [yard.submit(make(scheduler=SCHEDULER)) for make in (generic, pytorch)]
        await asyncio.sleep(5)
        yard.let_run()
        await asyncio.sleep(1)
        assert [yard.status(key)["phase"] for key in keys] == ["Running", "Running"]
        groups = {owner_uid(group) for group in yard.server.all("podgroups")}
        assert len(groups) == 2

    in_yard(body)


@pytest.mark.parametrize("backend", [GangBackend.VOLCANO, GangBackend.SCHEDULER_PLUGINS])
def test_pod_groups_of_other_schedulers_are_created_once_and_go_on_pause(
    backend: GangBackend,
) -> None:
    async def body(yard: Yard) -> None:
        key = yard.submit(pytorch(scheduler=SCHEDULER))
        await asyncio.sleep(5)
        yard.let_run()
        await asyncio.sleep(5)
        assert yard.status(key)["phase"] == "Running"
        assert yard.sent["POST podgroups"] == 1
        yard.server.patch(key, {"spec": {"runMode": {"pause": {"enabled": True}}}})
        await asyncio.sleep(5)
        assert yard.status(key)["phase"] == "Paused"
        assert yard.server.all("podgroups") == []

    in_yard(body, Settings(gang_backend=backend))


def test_a_job_that_becomes_invalid_while_it_runs_is_stopped() -> None:
    """As an update may do on a server without our admission."""

    async def body(yard: Yard) -> None:
        key = yard.submit(pytorch(replicas=2))
        await asyncio.sleep(1)
        yard.let_run()
        await asyncio.sleep(1)
        yard.server.patch(key, {"spec": {"notAField": True}})
        await asyncio.sleep(2)
        assert yard.condition(key, "Failed")["reason"] == "InvalidSpec"
        assert [pod["spec"].get("activeDeadlineSeconds") for pod in yard.pods()] == [1, 1]

    in_yard(body)


def test_nothing_is_kept_of_jobs_that_are_gone() -> None:
    async def body(yard: Yard) -> None:
        for number in range(20):
            key = yard.submit(generic(f"job-{number}"))
            await asyncio.sleep(1)
            uid = yard.server.get(key)["metadata"]["uid"]
            yard.server.delete(key)
            yard.collect(uid)
        await asyncio.sleep(200)
        controller = yard.controller
        assert not controller.queue._entries
        assert not controller._keys
        assert not controller._uids
        assert not controller._planner._made

    in_yard(body)


def test_services_of_a_job_that_is_gone_are_not_created_again_while_the_watch_is_silent() -> None:
    """The garbage collector would take them each time."""

    async def body(yard: Yard) -> None:
        key = yard.submit(generic(service={"ports": [{"port": 80}]}))
        await asyncio.sleep(1)
        services, uid = yard.server.all("services"), yard.server.get(key)["metadata"]["uid"]
        yard.collect(uid)  # somebody's deletion is made up for, while the job is there
        await asyncio.sleep(2)
        assert len(yard.server.all("services")) == len(services) > 0
        _paused(yard, key)
        await asyncio.sleep(5)
        assert yard.status(key)["phase"] == "Paused"
        yard.conditions.lag["genericjobs"] = 100.0
        yard.server.delete(key)
        yard.sent.clear()
        for _ in range(50):
            yard.collect(uid)
            await asyncio.sleep(1)
        assert yard.sent["POST services"] == 0
        assert yard.sent.total() <= 2

    in_yard(body)


def _pending(yard: Yard, key: Key) -> None:
    """Its pods have been created."""


def _running(yard: Yard, key: Key) -> None:
    yard.let_run()


def _restarting(yard: Yard, key: Key) -> None:
    yard.let_run()
    pod = yard.pods()[1]["metadata"]["name"]
    yard.server.set(Key("pods", "default", pod), status={"phase": "Failed"})


def _paused(yard: Yard, key: Key) -> None:
    yard.server.patch(key, {"spec": {"runMode": {"pause": {"enabled": True}}}})


def _ended(yard: Yard, key: Key) -> None:
    yard.let_run()
    for pod in yard.pods():
        name = Key("pods", "default", pod["metadata"]["name"])
        yard.server.set(name, status={"phase": "Succeeded"})


@pytest.mark.parametrize("state", [_pending, _running, _restarting, _paused, _ended])
@pytest.mark.parametrize("make", [generic, pytorch])
def test_a_job_on_its_way_out_is_left_to_the_garbage_collector(
    make: Callable[..., Obj], state: Callable[[Yard, Key], None]
) -> None:
    """Whatever keeps it (its dependents in the foreground, or somebody's finalizer)."""

    async def body(yard: Yard) -> None:
        job = make(replicas=2)
        job["metadata"]["finalizers"] = ["foregroundDeletion"]
        key = yard.submit(job)
        await asyncio.sleep(1)
        state(yard, key)
        await asyncio.sleep(2)
        yard.server.delete(key)
        await asyncio.sleep(2)
        yard.sent.clear()
        for pod in yard.pods():  # the garbage collector deletes them
            yard.server.delete(Key("pods", "default", pod["metadata"]["name"]), grace=0)
        await asyncio.sleep(3600)
        assert not yard.sent
        assert not yard.controller.queue._entries

    in_yard(body)


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.LOST_REQUEST, Fault.LOST_RESPONSE])
@pytest.mark.parametrize("nth", range(1, 7))
def test_a_pass_that_fails_midway_is_made_up_for(fault: Fault, nth: int) -> None:
    """The n-th write of a restart fails, each in its turn; it counts once all the same."""

    async def body(yard: Yard) -> None:
        key = yard.submit(pytorch(replicas=3, policy="OnFailure"))
        await asyncio.sleep(1)
        yard.let_run()
        await asyncio.sleep(1)
        writes = 0

        def fate(call: Call) -> Fault:
            nonlocal writes
            writes += call.is_write and call.key.plural != "events"
            return fault if writes == nth and call.key.plural != "events" else Fault.NONE

        yard.fault = fate
        pod = yard.pods()[1]["metadata"]["name"]
        yard.server.set(Key("pods", "default", pod), status={"phase": "Failed"})
        for _ in range(90):
            await asyncio.sleep(1)
            yard.finish_deletions()
        yard.let_run()
        await asyncio.sleep(5)
        status = yard.status(key)
        assert (status["phase"], status["backoffCount"]) == ("Running", 1)
        attempts = {p["metadata"]["annotations"]["trainyard.dev/attempt"] for p in yard.pods()}
        assert attempts == {"2"}

    in_yard(body)


def forged(yard: Yard, pod: Obj, namespace: str, name: str) -> Key:
    """A pod like one of a job's, with its labels and its owner, made by somebody else."""
    metadata = {**pod["metadata"], "name": name}
    phase = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": ENDED}]}
    yard.server.create("pods", namespace, {**pod, "metadata": metadata})
    key = Key("pods", namespace, name)
    yard.server.set(key, status=phase)
    return key


ENDED: Obj = {"terminated": {"exitCode": 1, "reason": "Error"}}


def test_a_pod_in_another_namespace_that_names_a_job_as_its_owner_is_passed_over() -> None:
    """By the name of a replica and by another; the job goes on, and its passes do not multiply."""

    async def body(yard: Yard) -> None:
        key = yard.submit(pytorch(replicas=2))
        await asyncio.sleep(5)
        yard.let_run()
        await asyncio.sleep(5)
        own = yard.pods()
        passes = yard.passes.total()
        names = [own[0]["metadata"]["name"], "other"]
        keys = [forged(yard, own[0], "elsewhere", name) for name in names]
        for number in range(20):
            yard.server.set(keys[0], spec={"number": number})
        await asyncio.sleep(60)
        assert yard.status(key)["phase"] == "Running"
        assert yard.passes.total() <= passes + 2
        assert [pod["metadata"]["name"] for pod in yard.pods()] == [
            *(pod["metadata"]["name"] for pod in own),
            *names,
        ]
        yard.server.delete(key)
        await asyncio.sleep(5)
        assert all(each in yard.server.objects for each in keys)

    in_yard(body)


def test_a_pod_beside_a_job_that_names_it_as_its_owner_is_surplus() -> None:
    async def body(yard: Yard) -> None:
        key = yard.submit(pytorch(replicas=2))
        await asyncio.sleep(5)
        yard.let_run()
        await asyncio.sleep(5)
        own = yard.pods()
        stray = forged(yard, own[0], "default", "other")
        await asyncio.sleep(5)
        yard.finish_deletions()
        await asyncio.sleep(5)
        assert stray not in yard.server.objects
        assert yard.status(key)["phase"] == "Running"
        assert len(yard.pods()) == 2

    in_yard(body)
