"""The scheduler on a registry: what is bound, what waits, and what is said about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from trainyard.composition.kinds_extension import EXTENSION, RESOURCES
from trainyard.embedded.cluster_objects import Deletion
from trainyard.embedded.registry import Registry
from trainyard.embedded.scheduler.machine_capacity import Capacity
from trainyard.embedded.scheduler.scheduler import Scheduler, SchedulerSettings
from trainyard.kinds.shared import labels

NODE = "this-machine"
QUEUES = "queues.scheduler.tensorstack.dev"
GROUPS = "podgroups.scheduler.tensorstack.dev"
CAPACITY = {"cpu": 2000, "memory": 4 << 30, "nvidia.com/gpu": 4, "pods": 100}
Object = dict[str, Any]
UNCHOSEN = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."


class Cluster:
    """A registry with a scheduler."""

    def __init__(self, registry: Registry, scheduler: Scheduler) -> None:
        self.registry = registry
        self.scheduler = scheduler

    async def pod(
        self,
        name: str,
        *,
        job: str = "",
        requests: Object | None = None,
        group: str = "",
        queue: str = "",
        **spec: Any,
    ) -> None:
        """Create a pod of a job."""
        marks = {labels.JOB_UID: job or name}
        if group:
            marks[labels.GROUP_NAME] = group
        if queue:
            marks[labels.QUEUE] = queue
        container = {"name": "main", "resources": {"requests": requests or {}}}
        await self.registry.create(
            "pods",
            {
                "metadata": {"name": name, "namespace": "default", "labels": marks},
                "spec": {"containers": [container], **spec},
            },
        )

    async def group(self, name: str, least: int, *, priority: int = 0, queue: str = "") -> None:
        """Create a PodGroup."""
        spec: Object = {"minMember": least, "priority": priority}
        if queue:
            spec["queue"] = queue
        metadata = {"name": name, "namespace": "default"}
        await self.registry.create(GROUPS, {"metadata": metadata, "spec": spec})

    async def queue(self, name: str, **spec: Any) -> None:
        """Create a Queue."""
        await self.registry.create(QUEUES, {"metadata": {"name": name}, "spec": spec})

    async def node(self, labels: Object | None = None, **spec: Any) -> None:
        """Create the node."""
        metadata = {"name": NODE, "labels": labels or {}}
        await self.registry.create("nodes", {"metadata": metadata, "spec": spec})

    async def change_node(self, change: Callable[[Object], object]) -> None:
        def changed(node: Object) -> Object:
            change(node)
            return node

        await self.registry.update("nodes", "", NODE, changed)

    async def end(self, name: str) -> None:
        """The pod succeeds."""

        def change(pod: Object) -> Object:
            return {**pod, "status": {**pod["status"], "phase": "Succeeded"}}

        await self.registry.update("pods", "default", name, change, subresource="status")

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a condition, which is looked at after every change."""
        changes = self.registry.subscribe("pods", "events")
        try:
            async with asyncio.timeout(120):
                while not holds():
                    await changes.batch()
        finally:
            self.registry.unsubscribe(changes)

    async def until_bound(self, name: str) -> None:
        """Wait for one pod."""
        await self.until(lambda: self.is_bound(name))

    def is_bound(self, name: str) -> bool:
        return bool(self.registry.get("pods", "default", name)["spec"].get("nodeName") == NODE)

    async def bound(self, *names: str) -> None:
        """Exactly these pods are bound, once the scheduler has judged every pod."""
        await self.until(lambda: all(self.verdict(pod) for pod in self.pods()))
        present = [pod["metadata"]["name"] for pod in self.pods()]
        assert {name for name in present if self.is_bound(name)} == set(names)

    def pods(self) -> list[Object]:
        return self.registry.list("pods")

    def verdict(self, pod: Object) -> Object:
        """The PodScheduled condition; empty before there is one."""
        for condition in pod["status"].get("conditions", ()):
            if condition["type"] == "PodScheduled":
                return dict(condition)
        return {}

    def message(self, name: str) -> str:
        """Why a pod waits."""
        return str(self.verdict(self.registry.get("pods", "default", name)).get("message", ""))

    def warnings(self) -> list[str]:
        """Messages of the warnings about jobs and pods."""
        return [event["message"] for event in self.registry.list("events")]


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[Cluster]:
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    scheduler = Scheduler(
        registry, SchedulerSettings(NODE, Capacity(dict(CAPACITY)), extension=EXTENSION, **settings)
    )
    task = asyncio.create_task(scheduler.run())
    try:
        yield Cluster(registry, scheduler)
    finally:
        task.cancel()
        await registry.close()


async def test_a_pod_that_fits_is_bound() -> None:
    async with running() as cluster:
        await cluster.pod("small", requests={"cpu": "1", "memory": "1Gi"})
        await cluster.bound("small")


async def test_a_job_waits_for_another_to_end() -> None:
    async with running() as cluster:
        await cluster.pod("first", requests={"cpu": "2"})
        await cluster.bound("first")
        await cluster.pod("second", requests={"cpu": "1"})
        await cluster.bound("first")
        assert "needs 1 cpu, 0 are free; waiting for other pods to end" in cluster.message("second")
        await cluster.end("first")
        await cluster.until(
            lambda: (
                cluster.registry.get("pods", "default", "second")["spec"].get("nodeName") == NODE
            )
        )


async def test_requests_beyond_the_machine_are_clamped_with_one_warning() -> None:
    async with running() as cluster:
        for index in range(4):
            await cluster.pod(f"big-{index}", job="big", requests={"cpu": "32"})
        await cluster.bound("big-0", "big-1", "big-2", "big-3")
        await cluster.until(lambda: bool(cluster.warnings()))
        assert len([w for w in cluster.warnings() if "more than this machine has" in w]) == 1


async def test_nothing_is_kept_of_a_clamped_job_that_is_gone() -> None:
    async with running() as cluster:
        await cluster.pod("big", requests={"cpu": "32"})
        await cluster.until(lambda: bool(cluster.warnings()))
        assert cluster.scheduler._reported_reasons
        await cluster.registry.delete("pods", "default", "big", Deletion(grace_seconds=0))
        await cluster.pod("after")
        await cluster.until_bound("after")  # changes are taken up in their order
        assert not cluster.scheduler._reported_reasons


async def test_strict_scheduling_clamps_nothing() -> None:
    async with running(is_strict=True) as cluster:
        await cluster.pod("big", requests={"cpu": "32"})
        await cluster.bound()
        assert "needs 32 cpu, this machine has 2" in cluster.message("big")


async def test_absent_devices_are_named_with_the_option_that_pretends_them() -> None:
    async with running() as cluster:
        await cluster.pod("greedy", requests={"nvidia.com/gpu": 8})
        await cluster.bound()
        assert "needs 8 nvidia.com/gpu, this machine has 4" in cluster.message("greedy")
        assert "--resource nvidia.com/gpu=8" in cluster.message("greedy")


async def test_devices_are_never_handed_out_twice() -> None:
    async with running() as cluster:
        for index in range(3):
            await cluster.pod(f"p{index}", job="one", requests={"nvidia.com/gpu": 2})
        await cluster.bound("p0", "p1")


async def test_a_pod_of_another_node_runs_here_with_a_warning() -> None:
    async with running() as cluster:
        await cluster.pod("pinned", nodeName="gpu-7", nodeSelector={"zone": "a"})
        await cluster.until(lambda: len(cluster.warnings()) == 2)
        await cluster.bound("pinned")
        assert any("nodeName gpu-7" in warning for warning in cluster.warnings())


async def test_labels_that_the_machine_has_are_nothing_to_warn_of() -> None:
    async with running() as cluster:
        await cluster.node(labels={"zone": "a"})
        await cluster.pod("here", nodeSelector={"zone": "a"})
        await cluster.bound("here")
        await cluster.pod("there", nodeSelector={"zone": "b"})
        await cluster.until(lambda: bool(cluster.warnings()))
        (warning,) = cluster.warnings()
        assert "nodeSelector" in warning


async def test_a_node_selector_counts_under_strict_scheduling() -> None:
    async with running(is_strict=True) as cluster:
        await cluster.node(labels={"zone": "b"})
        await cluster.pod("right", nodeSelector={"zone": "b"})
        await cluster.pod("wrong", nodeSelector={"zone": "a"})
        await cluster.bound("right")
        await cluster.until(lambda: cluster.message("wrong") == UNCHOSEN)
        await cluster.change_node(lambda node: node["metadata"]["labels"].update(zone="a"))
        await cluster.until(lambda: cluster.is_bound("wrong"))


async def test_nothing_starts_on_a_cordoned_machine_until_it_is_uncordoned() -> None:
    async with running() as cluster:
        await cluster.node(unschedulable=True)
        await cluster.pod("waits")
        tolerated = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
        await cluster.pod("tolerates", tolerations=[tolerated])
        await cluster.bound("tolerates")
        text = "0/1 nodes are available: 1 node(s) were unschedulable."
        await cluster.until(lambda: cluster.message("waits") == text)
        await cluster.change_node(lambda node: node["spec"].pop("unschedulable"))
        await cluster.until(lambda: cluster.is_bound("waits"))


async def test_a_taint_keeps_pods_off_that_do_not_tolerate_it() -> None:
    async with running() as cluster:
        await cluster.node(taints=[{"key": "team", "value": "b", "effect": "NoSchedule"}])
        await cluster.pod("waits")
        text = "0/1 nodes are available: 1 node(s) had untolerated taint {team: b}."
        await cluster.until(lambda: cluster.message("waits") == text)
        toleration = {"key": "team", "value": "b", "effect": "NoSchedule"}

        def tolerate(pod: Object) -> Object:
            return {**pod, "spec": {**pod["spec"], "tolerations": [toleration]}}

        await cluster.registry.update("pods", "default", "waits", tolerate)
        await cluster.until(lambda: cluster.is_bound("waits"))


async def test_a_machine_that_is_no_longer_a_node_object_takes_pods() -> None:
    async with running() as cluster:
        await cluster.node(unschedulable=True)
        await cluster.registry.delete("nodes", "", NODE)
        await cluster.pod("goes-on")
        await cluster.bound("goes-on")


async def test_a_group_starts_only_when_all_its_pods_exist_and_fit() -> None:
    async with running() as cluster:
        await cluster.group("gang", 3)
        gpus = {"nvidia.com/gpu": 1}
        for index in range(2):
            await cluster.pod(f"g{index}", job="j", group="gang", queue="default", requests=gpus)
        await cluster.bound()
        assert "pod group gang has 2 of 3 pods" in cluster.message("g0")
        await cluster.pod("g2", job="j", group="gang", queue="default", requests=gpus)
        await cluster.until(lambda: all(cluster.is_bound(f"g{index}") for index in range(3)))


async def test_a_group_that_does_not_fit_together_binds_none() -> None:
    async with running() as cluster:
        await cluster.group("gang", 3)
        for index in range(3):
            await cluster.pod(
                f"g{index}", job="j", group="gang", queue="default", requests={"nvidia.com/gpu": 2}
            )
        await cluster.until(lambda: "the 3 pods that start together need" in cluster.message("g2"))
        await cluster.bound()


async def test_an_absent_queue_is_created_without_limits_and_said_so() -> None:
    async with running() as cluster:
        await cluster.group("gang", 1, queue="research")
        await cluster.pod("g0", group="gang", queue="research")
        await cluster.bound("g0")
        assert cluster.registry.get(QUEUES, "", "research")["spec"] == {}
        assert any("queue research did not exist" in warning for warning in cluster.warnings())


async def test_once_a_queue_was_made_by_hand_pods_wait_for_one_that_is_absent() -> None:
    async with running() as cluster:
        await cluster.queue("night")
        await cluster.group("gang", 1, queue="nigth")
        await cluster.pod("g0", group="gang", queue="nigth")
        await cluster.pod("alone", queue="nigth")
        expected = "queue nigth does not exist"
        await cluster.until(lambda: expected in cluster.message("g0"))
        await cluster.until(lambda: expected in cluster.message("alone"))
        await cluster.queue("nigth")
        for name in ("g0", "alone"):
            await cluster.until_bound(name)


@pytest.mark.parametrize("is_strict", [False, True])
async def test_there_is_a_default_queue_whatever_other_queues_there_are(is_strict: bool) -> None:
    async with running(is_strict=is_strict) as cluster:
        await cluster.queue("night")
        names = {"default", "night"}
        await cluster.until(
            lambda: {q["metadata"]["name"] for q in cluster.registry.list(QUEUES)} == names
        )


async def test_a_queues_quota_holds() -> None:
    async with running() as cluster:
        await cluster.queue("small", quota={"requests": {"nvidia.com/gpu": 1}})
        for name in ("a", "b"):
            await cluster.group(name, 1, queue="small")
            await cluster.pod(name, group=name, queue="small", requests={"nvidia.com/gpu": 1})
        await cluster.bound("a")
        assert "queue small allows 1 nvidia.com/gpu" in cluster.message("b")


async def test_a_request_above_a_queues_whole_quota_is_told_apart_in_the_quotas_units() -> None:
    async with running() as cluster:
        await cluster.queue("small", quota={"requests": {"cpu": "1"}})
        await cluster.group("a", 1, queue="small")
        await cluster.pod("a", group="a", queue="small", requests={"cpu": "1600m"})
        expected = "queue small allows 1 cpu: 0 in use, 1600m wanted, more than it allows at all"
        await cluster.until(lambda: expected in cluster.message("a"))


async def test_a_closed_queue_starts_nothing_until_it_is_opened() -> None:
    async with running() as cluster:
        await cluster.queue("shut", closed=True)
        await cluster.group("a", 1, queue="shut")
        await cluster.pod("a", group="a", queue="shut")
        await cluster.bound()
        assert "queue shut is closed" in cluster.message("a")

        def open_it(queue: Object) -> Object:
            return {**queue, "spec": {"closed": False}}

        await cluster.registry.update(QUEUES, "", "shut", open_it)
        await cluster.until_bound("a")


@pytest.mark.parametrize("by", ["queue", "group"])
async def test_the_higher_priority_goes_first(by: str) -> None:
    async with running() as cluster:
        await cluster.pod("blocker", requests={"nvidia.com/gpu": 4})
        await cluster.bound("blocker")
        for name, priority in (("low", 1), ("high", 9)):
            await cluster.queue(name, priority=priority if by == "queue" else 0)
            await cluster.group(name, 1, priority=priority if by == "group" else 0, queue=name)
            await cluster.pod(name, group=name, queue=name, requests={"nvidia.com/gpu": 4})
        await cluster.until(lambda: "waiting" in cluster.message("high"))
        await cluster.end("blocker")
        await cluster.until(lambda: bool(not cluster.message("high")))
        assert cluster.message("low")


async def test_a_pod_with_gates_waits_until_the_last_of_them_is_gone() -> None:
    async with running() as cluster:
        await cluster.pod("gated", schedulingGates=[{"name": "a/b"}, {"name": "c/d"}])
        await cluster.pod("other")
        await cluster.until_bound("other")
        gated = cluster.registry.get("pods", "default", "gated")
        assert cluster.verdict(gated)["reason"] == "SchedulingGated"

        def fewer(pod: Object) -> Object:
            pod["spec"]["schedulingGates"].pop()
            return pod

        await cluster.registry.update("pods", "default", "gated", fewer)
        await cluster.pod("third")
        await cluster.until_bound("third")
        assert not cluster.is_bound("gated")
        await cluster.registry.update("pods", "default", "gated", fewer)
        await cluster.until_bound("gated")
        verdict = cluster.verdict(cluster.registry.get("pods", "default", "gated"))
        assert (verdict["status"], verdict.get("reason")) == ("True", None)
