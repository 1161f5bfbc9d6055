"""The part of a kubelet that a controller sees: pods get a node and statuses, and go when asked.

No container runs. Everything goes through the real subresources, so that the API server judges
both the statuses and how the controller reads them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

from trainyard.kube.client import Client
from trainyard.kube.errors import AlreadyExists, Conflict, NotFound
from trainyard.kube.reflector import Reflector
from trainyard.kube.resources import NODES, PODS
from trainyard.kube.transport import Request
from trainyard.lifecycle.observed import Pod

NODE = "node-of-the-tests"
Object = dict[str, Any]
Fate = Literal["wait", "run"] | int
"""Of a new pod: it waits unscheduled, runs until told otherwise, or ends with a code."""


def runs(pod: Object) -> Fate:
    """Every pod runs until told otherwise."""
    return "run"


class FailsOnce:
    """Pods of a job's first attempt fail, those of later ones succeed.

    A job whose controller was killed may have fewer pods than replicas in an attempt: what was
    created has ended before the rest was. It must not have two of one.
    """

    def __init__(self) -> None:
        self._made: Counter[tuple[str, int]] = Counter()

    def __call__(self, pod: Object) -> Fate:
        attempt = Pod.decode(pod).attempt
        self._made[pod["metadata"]["name"], attempt] += 1
        return 0 if attempt > 1 else 1

    @property
    def doubled(self) -> list[tuple[str, int]]:
        """Replicas and attempts of which there was more than one pod."""
        return [each for each, count in self._made.items() if count > 1]


class Kubelet:
    """Looks after the pods of one namespace. Awaitable methods end with the write acknowledged."""

    def __init__(self, client: Client, namespace: str, fate: Callable[[Object], Fate]) -> None:
        self._client = client
        self._namespace = namespace
        self.fate = fate
        self.node_of: Callable[[Object], str] = lambda pod: NODE
        """Where a new pod comes to run."""
        self.waiting: set[str] = set()
        """Replicas whose startup probe fails: `worker-0`."""
        self.pods: dict[str, Object] = {}
        self.seen: dict[str, str] = {}
        """Every pod ever: UID to name."""
        self._group: asyncio.TaskGroup | None = None
        self._handled: set[tuple[str, bool]] = set()
        self._parallel = asyncio.Semaphore(16)

    async def run(self) -> None:
        """Until cancelled."""
        await self.join(NODE)
        async with asyncio.TaskGroup() as self._group:
            await Reflector(
                self._client, PODS, dict, self, namespace=self._namespace, optional=False
            ).run()

    async def join(self, node: str) -> None:
        """Have the cluster know of a node, which is ready."""
        with suppress(AlreadyExists):
            await self._client.create(NODES, {"metadata": {"name": node}})
        await self.report("True", node)

    async def report(self, ready: str, node: str = NODE) -> None:
        """The node's Ready condition: True, False, or Unknown when nothing is heard of it."""
        condition = {"type": "Ready", "status": ready, "reason": "Tests", "message": ""}
        body = {"status": {"conditions": [condition]}}
        # Merges the list of conditions by type.
        kind, path = "application/strategic-merge-patch+json", NODES.path(None, node, "status")
        await self._client.raw(Request("PATCH", path, orjson.dumps(body), kind), "tell of the node")

    # What the reflector reports.
    def replace(self, items: Sequence[Object], resource_version: str) -> None:
        self.pods = {}
        for pod in items:
            self.upsert(pod)

    def upsert(self, item: Object) -> None:
        metadata = item["metadata"]
        self.pods[metadata["name"]] = item
        self.seen[metadata["uid"]] = metadata["name"]
        key = (metadata["uid"], "deletionTimestamp" in metadata)
        if key not in self._handled and self._group is not None:
            self._handled.add(key)
            self._group.create_task(self._terminate(item) if key[1] else self._begin(item))

    def remove(self, item: Object) -> None:
        self.pods.pop(item["metadata"]["name"], None)

    async def _begin(self, pod: Object) -> None:
        fate = self.fate(pod)
        async with self._parallel:
            with suppress(NotFound, Conflict):
                if fate != "wait":
                    await self.start(pod)
                if isinstance(fate, int):
                    await self.end(pod, fate)

    async def _terminate(self, pod: Object) -> None:
        """As after SIGTERM: containers end, then the object goes."""
        metadata = pod["metadata"]
        async with self._parallel:
            with suppress(NotFound, Conflict):
                if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Running":
                    await self.end(pod, 143)
                await self._client.delete(
                    PODS, metadata["name"], self._namespace, uid=metadata["uid"], grace_seconds=0
                )

    async def start(self, pod: Object) -> None:
        """Bind a pod to the node, and run its containers."""
        name = pod["metadata"]["name"]
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "uid": pod["metadata"]["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node_of(pod)},
        }
        path = PODS.path(self._namespace, name, "binding")
        await self._client.raw(Request("POST", path, orjson.dumps(body)), f"bind {name}")
        status = {
            "phase": "Running",
            "startTime": now(),
            "podIP": "10.1.0.1",
            "podIPs": [{"ip": "10.1.0.1"}],
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": now()}
                for kind in ("Initialized", "Ready", "ContainersReady")
            ],
        }
        await self._write(pod, status, {"running": {"startedAt": now()}})

    async def end(self, pod: Object, code: int) -> None:
        """All containers of a running pod end with `code`."""
        phase = "Succeeded" if code == 0 else "Failed"
        ended = _terminated(pod, code, "Completed" if code == 0 else "Error")
        await self._write(pod, {"phase": phase}, ended)

    async def end_all(self, job: str, code: int) -> None:
        """So end all pods of a job; its first replica last, since it may decide for all. What the
        controller has deleted meanwhile has ended."""
        mine = [
            pod
            for pod in self.pods.values()
            if pod["metadata"]["ownerReferences"][0]["name"] == job
        ]
        for pod in sorted(mine, key=lambda pod: str(pod["metadata"]["name"]), reverse=True):
            with suppress(NotFound, Conflict):
                await self.end(pod, code)

    async def evict(self, pod: Object) -> None:
        """The node runs out of memory and the kubelet ends the pod."""
        status = {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "The node was low on resource: memory.",
        }
        await self._write(pod, status, _terminated(pod, 137, "Error"))

    def pod(self, job: str, replica: str) -> Object:
        """The present pod of a replica: `worker-0`."""
        (found,) = [
            pod
            for pod in self.pods.values()
            if pod["metadata"]["ownerReferences"][0]["name"] == job
            and pod["metadata"]["name"].endswith(f"-{replica}")
        ]
        return found

    async def _write(self, pod: Object, status: Object, state: Object) -> None:
        name = pod["metadata"]["name"]
        running = "running" in state
        started = running and not any(name.endswith(f"-{each}") for each in self.waiting)
        status["containerStatuses"] = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "containerID": "containerd://0",
                "restartCount": 0,
                "ready": running,
                "started": started,
                "state": state,
            }
            for container in pod["spec"]["containers"]
        ]
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        # A merge patch replaces the list of states as a kubelet does.
        await self._client.patch(PODS, name, body, self._namespace, subresource="status")


def now() -> str:
    """As Kubernetes writes times: whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _terminated(pod: Object, code: int, reason: str) -> Object:
    started = (pod.get("status") or {}).get("startTime") or now()
    ended = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now()}
    return {"terminated": {**ended, "containerID": "containerd://0"}}


@asynccontextmanager
async def running_kubelet(
    client: Client, namespace: str, fate: Callable[[Object], Fate] = runs
) -> AsyncIterator[Kubelet]:
    """A kubelet stand-in at work."""
    kubelet = Kubelet(client, namespace, fate)
    task = asyncio.create_task(kubelet.run())
    try:
        yield kubelet
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
