"""What an operator counts of real passes, in virtual time, as Prometheus reads it."""

from __future__ import annotations

import asyncio
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from tests.simulation.cluster import WallClock
from tests.simulation.network import Conditions, Fault, Wire
from tests.simulation.server import Key, ModelServer, Obj
from tests.simulation.virtual_time import run
from tests.tools import promtool
from trainyard.kube.client import Client
from trainyard.kube.errors import Unreachable
from trainyard.kube.resources import PODS
from trainyard.kube.transport import Request
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.metrics.operator_metrics import OperatorMetrics, verb_and_resource
from trainyard.operator.reconcile.controller import Controller
from trainyard.operator.runtime_context import RuntimeContext

KIND = {"job_kind": "PyTorchTrainingJob"}


def job(name: str, **spec: Any) -> Obj:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "i", "command": ["train"]}]}}
    replicas = {"type": "worker", "replicas": 2, "template": template}
    replicas["restartPolicy"] = spec.pop("policy", "OnFailure")
    return {
        "apiVersion": "batch.tensorstack.dev/v1beta1",
        "kind": "PyTorchTrainingJob",
        "metadata": {"name": name},
        "spec": {"replicaSpecs": [replicas], **spec},
    }


class Yard:
    """A modelled cluster without kubelets, and a controller that is counted."""

    def __init__(self, **options: Any) -> None:
        self.clock = WallClock(asyncio.get_running_loop())
        self.server = ModelServer(self.clock, random.Random(1))
        self.fault = Fault.NONE
        conditions = Conditions(
            lambda call: self.fault if call.key.plural == "events" else Fault.NONE, lambda key: None
        )
        wire = Wire(
            self.server, conditions, random.Random(2), 1, bool, lambda sent: None, lambda *_: None
        )
        self.controller: Controller | None = None
        self.metrics = OperatorMetrics(
            lambda: self.controller, lambda: ["x"], self.clock, **options
        )
        client = Client(wire).with_metrics(self.metrics.requested)
        host = RuntimeContext(self.clock, random.Random(3), self.metrics)
        self.controller = Controller(client, OperatorSettings(), host)

    def submit(self, body: Obj) -> None:
        self.server.create("pytorchtrainingjobs", "default", body)

    def set_pods(self, **status: Any) -> None:
        """Of those that have not ended."""
        for pod in self.server.all("pods"):
            if (pod.get("status") or {}).get("phase") not in ("Failed", "Succeeded"):
                key = Key("pods", "default", pod["metadata"]["name"])
                self.server.set(key, spec={**pod["spec"], "nodeName": "node"}, status=status)

    def sweep(self) -> None:
        """The kubelet has seen to it that what was deleted is gone."""
        for pod in self.server.all("pods"):
            if pod["metadata"].get("deletionTimestamp"):
                self.server.delete(Key("pods", "default", pod["metadata"]["name"]), grace=0)

    def runs(self) -> None:
        state = {"name": "pytorch", "state": {"running": {}}}
        self.set_pods(phase="Running", containerStatuses=[state])

    def ends(self, code: int, reason: str) -> None:
        moment = self.clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        state = {"exitCode": code, "reason": reason, "finishedAt": moment}
        self.set_pods(
            phase="Failed" if code else "Succeeded",
            containerStatuses=[{"name": "pytorch", "state": {"terminated": state}}],
        )

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    def text(self) -> str:
        return self.metrics.expose("")[0].decode()


async def life(yard: Yard) -> None:
    """Jobs that are restarted, fail, break a rule, and wait."""
    assert yard.controller is not None
    task = asyncio.create_task(yard.controller.run())
    try:
        await asyncio.sleep(1)
        yard.submit(job("train"))
        await asyncio.sleep(20)
        for reason in ("OOMKilled", "of a kubelet's own making"):
            yard.runs()
            await asyncio.sleep(10)
            yard.ends(137, reason)
            await asyncio.sleep(1)
            yard.sweep()
            await asyncio.sleep(60)
        yard.runs()
        await asyncio.sleep(10)
        yard.ends(0, "Completed")
        await asyncio.sleep(10)
        yard.submit(job("wrong", policy="Sometimes"))
        yard.fault = Fault.SERVER_ERROR
        yard.submit(job("never", policy="Never"))
        await asyncio.sleep(10)
        yard.ends(1, "Error")
        await asyncio.sleep(10)
        yard.submit(job("waits"))
        await asyncio.sleep(100)
    finally:
        task.cancel()
        await asyncio.wait([task])


def test_every_job_counts_once_at_each_milestone() -> None:
    async def main() -> None:
        yard = Yard()
        await life(yard)
        value = yard.value
        assert value("trainyard_jobs_created_total", **KIND) == 4
        assert value("trainyard_job_restarts_total", **KIND, reason="OOMKilled") == 1
        assert value("trainyard_job_restarts_total", **KIND, reason="Other") == 1
        for outcome, reason in (
            ("succeeded", ""),
            ("failed", "InvalidSpec"),
            ("failed", "Failed"),
        ):
            labels = {**KIND, "outcome": outcome, "reason": reason}
            assert value("trainyard_jobs_finished_total", **labels) == 1, labels
        # What breaks a rule never has a pod, and what fails before it runs never started.
        assert value("trainyard_job_first_pod_seconds_count", **KIND) == 3
        assert value("trainyard_job_start_seconds_count", **KIND) == 1
        assert 20 <= (value("trainyard_job_start_seconds_sum", **KIND) or 0) < 22
        there = {**KIND, "job_namespace": "default"}
        assert value("trainyard_jobs", **there, phase="Failed") == 2
        assert value("trainyard_jobs", **there, phase="Pending") == 1
        assert value("trainyard_jobs_waiting", **there, reason="") == 1
        assert 99 <= (value("trainyard_jobs_waiting_oldest_seconds", **there) or 0) < 102
        assert value("trainyard_leader") == value("trainyard_problems") == 1
        assert value("trainyard_queue_depth") == value("trainyard_queue_oldest_seconds") == 0
        assert (value("trainyard_events_lost_total", reason="refused") or 0) > 0
        asked = {"verb": "create", "resource": "pods", "code": "200"}
        assert value("trainyard_api_requests_total", **asked) == 10
        assert (value("trainyard_queue_wait_seconds_count") or 0) > 10

    run(main())


def test_parsers_and_promtool_read_it_and_no_series_names_an_object() -> None:
    async def main() -> tuple[str, str, str]:
        yard, each = Yard(), Yard(has_job_series=True)
        await life(yard)
        await life(each)
        openly, _ = yard.metrics.expose("application/openmetrics-text")
        return yard.text(), each.text(), openly.decode()

    plain, each, openly = run(main())
    families = {family.name: family for family in text_string_to_metric_families(plain)}
    assert {family.name for family in open_metrics(openly)} == set(families)
    labels = {name for f in families.values() for s in f.samples for name in s.labels}
    assert not labels & {"uid", "job_uid", "job_name", "pod", "node"}
    assert 'trainyard_job_phase{job_kind="PyTorchTrainingJob",job_name="waits"' in each
    told = subprocess.run(
        [promtool(), "check", "metrics"], input=plain, capture_output=True, text=True, timeout=120
    )
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("method", "path", "verb", "resource"),
    [
        ("GET", "/api/v1/pods?limit=500", "list", "pods"),
        ("GET", "/api/v1/namespaces/a/pods?watch=true", "watch", "pods"),
        ("GET", "/api/v1/namespaces/a", "get", "namespaces"),
        ("GET", "/api/v1/namespaces/a/pods/b/log?follow=true", "get", "pods/log"),
        ("POST", "/api/v1/namespaces/a/events", "create", "events"),
        (
            "PUT",
            "/apis/batch.tensorstack.dev/v1beta1/namespaces/a/pytorchtrainingjobs/b/status",
            "update",
            "pytorchtrainingjobs/status",
        ),
        ("PATCH", "/apis/g/v1/namespaces/a/things/b", "patch", "things"),
        ("DELETE", "/api/v1/namespaces/a/pods/b", "delete", "pods"),
        ("GET", "/version", "get", ""),
    ],
)
def test_requests_are_told_as_a_role_has_them(
    method: str, path: str, verb: str, resource: str
) -> None:
    assert verb_and_resource(Request(method, path)) == (verb, resource)


async def test_a_request_without_an_answer_is_told_too(tmp_path: Path) -> None:
    told: list[int] = []
    unreachable = Client.unix(tmp_path / "nobody")
    async with unreachable.with_metrics(
        lambda request, status, seconds: told.append(status)
    ) as client:
        with pytest.raises(Unreachable):
            await client.get(PODS, "name", "default")
        with pytest.raises(Unreachable):
            async for _ in client.logs("name", "default"):
                pass
    assert told == [0, 0]
