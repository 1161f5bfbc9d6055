"""A bare client: what any client reaches that makes an operator's requests and decides nothing.

Run as a program it waits for a line on its input, creates the pods of all jobs of a namespace, and
ends: `python -m bench.bare KUBECONFIG NAMESPACE pods|writes`. `pods`: nothing else. `writes`: what
the operator writes, in its order, each once the server has accepted what it depends on: a job's
status, its Service, its pods; its second status after the other jobs' pods; its events two seconds
after what they tell of. All the while it watches and decodes the three.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp
import orjson
import uvloop

from bench.plane import JOBS
from trainyard.kinds.kind_admission import admit
from trainyard.kinds.kind_registry import describe
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kube.cluster_transport import ClusterTransport
from trainyard.kube.credentials import load
from trainyard.kube.resources import EVENTS, PODS, SERVICES, Resource
from trainyard.lifecycle import Observed, Owned, Pod, plan
from trainyard.lifecycle.actions import Create, Event, Plan

AT_ONCE = 32
_EVENT_SENDERS = 8
_EVENT_DELAY_SECONDS = 2.0
"""Both as in the operator, whose events give way to other requests for so long."""
_WRITE = "fieldValidation=Strict&fieldManager=trainyard"


class Bare:
    """Requests of a session, with what the kubeconfig names."""

    def __init__(self, session: aiohttp.ClientSession, route: ClusterTransport, where: str) -> None:
        self._session = session
        self._route = route
        self._where = where
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._events: asyncio.Queue[tuple[float, dict[str, Any]]] = asyncio.Queue()

    async def send(self, method: str, path: str, body: Any = None) -> bytes:
        """One request; the answer as it came."""
        url, options = await self._route.route(path)
        options["headers"] |= {"Content-Type": "application/json"}
        data = None if body is None else orjson.dumps(body)
        async with (
            self._slots,
            self._session.request(method, url, data=data, **options) as answer,
        ):
            found = await answer.read()
            assert answer.status < 300, found
            return found

    async def create(self, action: Create) -> None:
        """What a plan says."""
        path = f"{action.resource.path(self._where)}?{_WRITE}"
        await self.send("POST", path, action.manifest())

    async def status(self, job: Mapping[str, Any], status: Any) -> dict[str, Any]:
        """Write a job's status; returns the job as stored."""
        path = JOBS.path(self._where, job["metadata"]["name"], "status")
        stored = await self.send("PUT", f"{path}?{_WRITE}", {**job, "status": status})
        return orjson.loads(stored)  # type: ignore[no-any-return]

    def emit(self, job: Mapping[str, Any], event: Event) -> None:
        """Have an event about a job sent later."""
        name = job["metadata"]["name"]
        about = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "name": name}
        manifest = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{uuid.uuid4().hex[:16]}", "namespace": self._where},
            "involvedObject": {**about, "namespace": self._where},
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
        }
        due = asyncio.get_running_loop().time() + _EVENT_DELAY_SECONDS
        self._events.put_nowait((due, manifest))

    async def send_events(self) -> None:
        """Send what `emit` was given, each when it is due, until cancelled."""
        while True:
            due, manifest = await self._events.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            await self.send("POST", f"{EVENTS.path(self._where)}?{_WRITE}", manifest)
            self._events.task_done()

    async def until_events_are_sent(self) -> None:
        """Returns once the server has all of them."""
        await self._events.join()

    async def watch(self, resource: Resource) -> None:
        """Decode all that happens."""
        url, options = await self._route.route(f"{resource.path(self._where)}?watch=1")
        limits = aiohttp.ClientTimeout(total=None)
        async with self._session.get(url, timeout=limits, **options) as answer:
            rest = b""
            async for chunk in answer.content.iter_any():
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    orjson.loads(line)


async def main(kubeconfig: str, where: str, which: str) -> None:
    """See the module."""
    route = ClusterTransport(load(kubeconfig, None))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=100)) as session:
        bare = Bare(session, route, where)
        listed = orjson.loads(await bare.send("GET", JOBS.path(where)))["items"]
        jobs = deque((job, *_plans(job)) for job in listed)
        beside = []
        if which == "writes":
            beside = [asyncio.create_task(bare.watch(each)) for each in (JOBS, PODS, SERVICES)]
            beside += [asyncio.create_task(bare.send_events()) for _ in range(_EVENT_SENDERS)]
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        worker = _write if which == "writes" else _only_pods
        await asyncio.gather(*(worker(bare, jobs) for _ in range(AT_ONCE)))
        await bare.until_events_are_sent()
        print("done", flush=True)
        await asyncio.to_thread(sys.stdin.readline)  # whoever measures looks at this process first
        for task in beside:
            task.cancel()
        await asyncio.wait([*beside, asyncio.create_task(asyncio.sleep(0))])
    await route.aclose()


def _plans(job: dict[str, Any]) -> tuple[Plan, Plan]:
    """The first plan for a job, and the one once all of that is created."""
    job |= {"apiVersion": JOBS.api_version, "kind": JOBS.kind}
    model: Any = admit(dict(job)).model
    workload, now, settings = describe(model, Settings()), datetime.now(UTC), Settings()
    first = plan(workload, None, Observed(), now, settings)
    made = [(create.resource, create.manifest()) for create in _creates(first)]
    for _, each in made:
        each["metadata"] |= {"uid": str(uuid.uuid4()), "namespace": job["metadata"]["namespace"]}
    observed = Observed(
        pods=tuple(Pod.decode(each) for resource, each in made if resource == PODS),
        owned=tuple(Owned.decode(resource, each) for resource, each in made if resource != PODS),
    )
    return first, plan(workload, first.status, observed, now, settings)


def _creates(made: Plan) -> list[Create]:
    return [each for each in made.actions if isinstance(each, Create)]


async def _only_pods(bare: Bare, jobs: deque[Any]) -> None:
    while jobs:
        _, first, _ = jobs.popleft()
        pods = [each for each in _creates(first) if each.resource == PODS]
        await asyncio.gather(*map(bare.create, pods))


async def _write(bare: Bare, jobs: deque[Any]) -> None:
    while jobs:
        job, plan, following = jobs.popleft()
        stored = await bare.status(job, plan.status)
        made = _creates(plan)
        for is_pod in (False, True):
            of_step = [each for each in made if (each.resource == PODS) is is_pod]
            await asyncio.gather(*map(bare.create, of_step))
        for event in plan.events:
            bare.emit(stored, event)
        if following is not None:
            jobs.append((stored, following, None))


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
