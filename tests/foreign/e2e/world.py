"""A cluster as the cases see it: each has a namespace of its own, and they run side by side."""

from __future__ import annotations

import asyncio
import itertools
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from trainyard.kube.client import Client, LogOptions
from trainyard.kube.errors import ApiError, NotFound
from trainyard.kube.resources import PODS
from trainyard.kube.transport import Request

Object = dict[str, Any]
PATIENCE_SECONDS = 240.0
"""Far beyond what anything here takes on a busy machine."""
AT_ONCE = 12
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(slots=True)
class World:
    """All pods of the cluster, as its watch tells of them."""

    client: Client
    socket: Path
    pods: dict[tuple[str, str], Object] = field(default_factory=dict)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    node: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by who changes it."""

    async def follow(self) -> None:
        """Keep `pods` up to date until cancelled."""
        while True:
            self.pods.clear()
            async for kind, pod in self.client.watch(PODS, resource_version=""):
                if kind == "BOOKMARK":
                    continue
                key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
                if kind == "DELETED":
                    self.pods.pop(key, None)
                else:
                    self.pods[key] = pod
                self.moved.set()
                self.moved = asyncio.Event()


@dataclass(slots=True)
class Place:
    """A namespace, and what is done in it."""

    world: World
    namespace: str
    numbers: Iterable[int] = field(default_factory=itertools.count)

    # Requests.

    async def ask(
        self, method: str, path: str, body: Any = None, content: str = "application/json"
    ) -> Object:
        """What is answered below the namespace; raises ApiError."""
        root, _, rest = path.rpartition("|")  # of a group: "apis/coordination.k8s.io/v1|leases"
        url = f"/{root or 'api/v1'}/namespaces/{self.namespace}/{rest}"
        return await self.plainly(method, url, body, content)

    async def plainly(
        self, method: str, url: str, body: Any = None, content: str = "application/json"
    ) -> Object:
        """The same, of any path."""
        data = b"" if body is None else orjson.dumps(body)
        answer = await self.world.client.raw(Request(method, url, data, content), f"{method} {url}")
        found: Object = orjson.loads(answer.body)
        return found

    async def text(self, method: str, path: str) -> str:
        """What is answered below the namespace, as it is."""
        url = f"/api/v1/namespaces/{self.namespace}/{path}"
        return (await self.world.client.raw(Request(method, url), url)).body.decode()

    async def make(self, plural: str, name: str, **rest: Any) -> Object:
        """A new object of a core kind, or of `GROUP/VERSION|PLURAL`."""
        metadata = {"name": name, **rest.pop("metadata", {})}
        return await self.ask("POST", plural, {"metadata": metadata, **rest})

    async def patch(self, path: str, change: Object) -> Object:
        """A merge patch."""
        return await self.ask("PATCH", path, change, MERGE)

    async def refused(self, code: int, method: str, path: str, body: Any = None) -> None:
        """That must be refused."""
        try:
            await self.ask(method, path, body)
        except ApiError as error:
            if error.code != code:
                raise
            return
        raise AssertionError(f"{method} {path} was not refused")

    # Pods.

    async def start(self, name: str, script: str, **spec: Any) -> Object:
        """A pod with a container `c` that runs a shell script, or with others."""
        main = {"name": "c", "image": "busybox", "command": ["sh", "-c", script]}
        main |= spec.pop("container", {})
        metadata = spec.pop("metadata", {})
        spec = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [main],
            **spec,
        }
        return await self.make("pods", name, metadata=metadata, spec=spec)

    async def until(self, name: str, holds: Callable[[Object], Any]) -> Object:
        """The pod, once it is so."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            moved = self.world.moved
            pod = self.world.pods.get((self.namespace, name))
            if pod is not None and holds(pod):
                return pod
            try:
                async with asyncio.timeout(max(0.0, end - time.monotonic())):
                    await moved.wait()
            except TimeoutError:
                status = pod and pod["status"]
                raise AssertionError(f"pod {name} is still not so: {status}") from None

    async def gone(self, name: str) -> None:
        """Wait until there is no such pod."""
        end = time.monotonic() + PATIENCE_SECONDS
        while (self.namespace, name) in self.world.pods:
            assert time.monotonic() < end, f"pod {name} is still there"
            await asyncio.sleep(0.05)

    async def ended(self, name: str) -> Object:
        """The pod, once it has ended."""
        return await self.until(name, lambda pod: pod["status"]["phase"] in ("Succeeded", "Failed"))

    async def ready(self, name: str) -> Object:
        """The pod, once all its containers are ready."""
        return await self.until(name, lambda pod: condition(pod, "Ready") == "True")

    async def run(self, script: str, **spec: Any) -> str:
        """What a script prints in a pod that succeeds."""
        name = f"run-{next(iter(self.numbers))}"
        await self.start(name, script, **spec)
        pod = await self.ended(name)
        text = await self.log(name)
        assert pod["status"]["phase"] == "Succeeded", f"{text}\n{pod['status']}"
        return text

    async def log(self, name: str, container: str = "c", *, previous: bool = False) -> str:
        """What a container has printed."""
        options = LogOptions(previous=previous)
        chunks = self.world.client.logs(name, self.namespace, container, options)
        return b"".join([chunk async for chunk in chunks]).decode()

    async def shows(self, name: str, text: str, container: str = "c") -> None:
        """Wait until a container has printed that."""
        await self.until(name, lambda pod: container in started(pod))
        found, end = "", time.monotonic() + PATIENCE_SECONDS
        while text not in found:
            assert time.monotonic() < end, f"{text!r} is not in what {container} prints: {found}"
            await asyncio.sleep(0.1)
            found = await self.log(name, container)


Play = Callable[[Place], Awaitable[None]]
CASES: dict[str, dict[str, Play]] = {}
"""By group, and by the name of the test of Kubernetes' that expects it."""


def expects(group: str, name: str) -> Callable[[Play], Play]:
    """The case of a name."""

    def keep(play: Play) -> Play:
        cases = CASES.setdefault(group, {})
        assert name not in cases, f"{name} is there twice"
        cases[name] = play
        return play

    return keep


def condition(pod: Object, wanted: str) -> str:
    """The status of a condition."""
    found = (c["status"] for c in pod["status"].get("conditions") or () if c["type"] == wanted)
    return str(next(found, ""))


def container(pod: Object, name: str = "c") -> Object:
    """The status of a container; empty before there is one."""
    status = pod["status"]
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for each in status.get(kind) or ():
            if each["name"] == name:
                return dict(each)
    return {}


def started(pod: Object) -> set[str]:
    """The containers that run, or did."""
    names = set()
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for each in pod["status"].get(kind) or ():
            if each["state"].keys() & {"running", "terminated"} or each.get("lastState"):
                names.add(each["name"])
    return names


def served(group: str, plural: str) -> Play:
    """Objects of this kind can be made."""

    async def play(place: Place) -> None:
        version = f"/apis/{group}" if group else "/api/v1"
        try:
            found = await place.plainly("GET", version)
        except NotFound:
            raise AssertionError(f"there is no {version}") from None
        verbs = {each["name"]: each["verbs"] for each in found["resources"]}
        assert "create" in verbs.get(plural, ()), f"there are no {plural}"

    return play


async def judge(socket: Path, cases: dict[str, Play], prefix: str) -> dict[str, str]:
    """What is wrong with each case; "" if nothing is."""
    world, gate = World(Client.unix(socket), socket), asyncio.Semaphore(AT_ONCE)
    told: dict[str, str] = {}

    async def play(number: int, name: str) -> None:
        async with gate, _namespace(world, f"{prefix}-{number}") as place:
            try:
                async with asyncio.timeout(2 * PATIENCE_SECONDS):
                    await cases[name](place)
                told[name] = ""
            except Exception:
                told[name] = traceback.format_exc(limit=-3)

    following = asyncio.create_task(world.follow())
    try:
        await asyncio.gather(*(play(number, name) for number, name in enumerate(cases)))
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
        await world.client.aclose()
    return told


@asynccontextmanager
async def _namespace(world: World, name: str) -> AsyncIterator[Place]:
    place = Place(world, name)
    await place.plainly("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    try:
        yield place
    finally:
        await place.plainly("DELETE", f"/api/v1/namespaces/{name}")
