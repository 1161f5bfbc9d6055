"""The operator changes its version, up and down, under jobs in many states, and so do definitions
and the command line: no pod is replaced, no count changes. A route under a usual run, all with
TRAINYARD_SOAK=1.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.cluster import test_kueue
from tests.cluster.kubelet import Fate, Kubelet, running_kubelet
from tests.cluster.plane import START_SECONDS
from tests.cluster.queues import Queues, running_kueue
from tests.cluster.yard import Object, Operator, Yard, pytorch_job, until
from tests.earlier_versions import DAY_25, DAY_26, MORE, NOW, OLDER_DEFINITIONS, sources_of
from tests.queueing.kueue import Kueue
from tests.tools import soak
from tests.unit.kinds import manifests
from trainyard.kube.resources import CONFIG_MAPS, SECRETS, SERVICES

ROUTES: Sequence[Sequence[str]] = [(DAY_25, NOW, DAY_26, NOW)]
if soak(0, 1):
    EVERY = (*MORE, DAY_25, DAY_26)
    ROUTES = [*((old, NOW, old, NOW) for old in EVERY), *((NOW, old, NOW) for old in EVERY)]
COUNTED = ("phase", "tasks", "aggregate", "attempts", "startTime", "backoffCount", "replicas")
SETTLED_SECONDS = 2.0
"""For an operator that leads to change what it would change."""


class State(NamedTuple):
    """What must not change of a job."""

    counts: Object
    conditions: list[tuple[str, str, str]]
    pods: dict[str, str]


class Versions:
    """Every version of the program, in one namespace of the cluster."""

    def __init__(self, yard: Yard, sources: Path) -> None:
        self.yard = yard
        self._sources = sources
        self.kinds: dict[str, str] = {}

    def _environment(self, version: str) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(sources_of(version, self._sources))}

    async def command(self, version: str, *arguments: str, code: int = 0) -> str:
        """What a command of that version prints."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "trainyard.cli.main", *arguments),
            env=self._environment(version),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(START_SECONDS):
            printed = (await process.communicate())[0].decode()
        assert process.returncode == code, printed
        assert "Traceback" not in printed
        return printed

    async def ask(self, version: str, command: str, *arguments: str, code: int = 0) -> str:
        """What a command prints that goes to this namespace."""
        where = ("--kubeconfig", str(self.yard.plane.kubeconfig), "-n", self.yard.namespace)
        return await self.command(version, command, *where, *arguments, code=code)

    async def submit(self, version: str, *jobs: Object, code: int = 0) -> str:
        """By the command of that version; what it prints."""
        if code == 0:
            self.kinds.update({job["metadata"]["name"]: job["kind"] for job in jobs})
        file = self.yard.folder / f"{jobs[0]['metadata']['name']}.yaml"
        file.write_text(yaml.safe_dump_all(jobs))
        return await self.ask(version, "submit", "-f", str(file), code=code)

    async def define(self, version: str) -> None:
        """Apply the definitions of that version."""
        server = ".".join(map(str, self.yard.plane.version))
        text = await self.command(version, "crds", "--kubernetes-version", server)
        apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")
        await self.yard.kubectl(*apply, stdin=text)
        await self.yard.kubectl("wait", "--for=condition=Established", "-f", "-", stdin=text)

    @asynccontextmanager
    async def operator(self, version: str, *options: str) -> AsyncIterator[Operator]:
        """The operator of that version, from when it does the work."""
        options = ("--restart-delay-initial", "100ms", *options)
        async with self.yard.operator(*options, environment=self._environment(version)) as running:
            await running.leads()
            yield running
            await running.kill(signal.SIGTERM)  # it lets its Lease go
            for defect in "Traceback", "pass failed", " ERROR ":
                assert defect not in running.log

    async def state_of(self, job: str) -> State:
        found = (await self.yard.job(job, self.kinds[job])).get("status") or {}
        return State(
            {name: found.get(name) for name in COUNTED},
            sorted(
                (each["type"], each["status"], each.get("lastTransitionTime", ""))
                for each in found.get("conditions") or ()
            ),
            {p["metadata"]["name"]: p["metadata"]["uid"] for p in await self.yard.pods(job)},
        )

    async def states(self) -> dict[str, State]:
        """Of all jobs, once nothing changes any more."""
        found = None
        while True:
            before = found
            found = {name: await self.state_of(name) for name in self.kinds}
            if found == before:
                return found
            await asyncio.sleep(SETTLED_SECONDS)

    async def objects(self) -> set[tuple[str, str]]:
        """What the jobs' pods read and are found by."""
        found = set()
        for resource in CONFIG_MAPS, SECRETS, SERVICES:
            items, _ = await self.yard.client.list(resource, self.yard.namespace)
            found |= {(resource.kind, item["metadata"]["uid"]) for item in items}
        return found


def jobs() -> list[Object]:
    """One of each kind, and one in each state."""
    elastic = {"enabled": True, "minReplicas": 1, "maxReplicas": 4, "expectedReplicas": 2}
    resized = pytorch_job("elastic", torchrunConfig={"enabled": True}, elastic=elastic)
    container = resized["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    container["args"] = container.pop("command")
    return [
        pytorch_job("running"),
        pytorch_job("paused", runMode={"pause": {"enabled": True}}),
        pytorch_job("waits"),
        pytorch_job("restarted", runPolicy={"backoffLimit": 9}),
        resized,
        *(_named(job) for job in (manifests.deepspeed(), manifests.colossalai())),
        _named(manifests.generic()),
    ]


def _named(job: Object) -> Object:
    return {**job, "metadata": {"name": job["kind"].lower()}}


def fate(pod: Object) -> Fate:
    """Pods of the job `waits` find no node."""
    return "wait" if owner(pod) == "waits" else "run"


def owner(pod: Object) -> Any:
    return pod["metadata"]["ownerReferences"][0]["name"]


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: "-".join(each[:8] for each in r))
async def test_jobs_outlive_every_change_of_the_operator(
    yard: Yard, tmp_path_factory: pytest.TempPathFactory, route: Sequence[str]
) -> None:
    """As docs/operations/upgrade.md has it: definitions go up first, and never down."""
    yard.judges_pods()
    versions = Versions(yard, tmp_path_factory.getbasetemp() / "versions")
    try:
        await versions.define(route[0])
        async with running_kubelet(yard.client, yard.namespace, fate) as kubelet:
            await play(versions, kubelet, route)
    finally:
        await versions.define(NOW)


async def play(versions: Versions, kubelet: Kubelet, route: Sequence[str]) -> None:
    old = route[0]
    async with versions.operator(old):
        await begin(versions, kubelet, old)
        before, objects = await versions.states(), await versions.objects()
    for number, version in enumerate(route[1:]):
        if number == 0:
            await versions.define(NOW)
        async with versions.operator(version):
            await asyncio.sleep(SETTLED_SECONDS)
            assert await versions.states() == before
            assert objects <= await versions.objects()
            await by_the_other_command(versions, kubelet, (NOW, old)[version == NOW], number)
            await kubelet.end(kubelet.pod("restarted", "worker-1"), 1)
            await restarts(versions, "restarted", number + 2)
            before = await versions.states()
            objects = await versions.objects()
    async with versions.operator(route[-1]):
        await finish(versions, kubelet, old)


async def begin(versions: Versions, kubelet: Kubelet, command: str) -> None:
    """Submit the jobs with that version's command, and have each in its state."""
    await versions.submit(command, *jobs())
    for name, kind in versions.kinds.items():
        phase = {"paused": "Paused", "waits": "Pending"}.get(name, "Running")
        await versions.yard.reaches(name, phase, kind)
    await kubelet.end(kubelet.pod("restarted", "worker-1"), 1)
    await restarts(versions, "restarted", 1)


async def finish(versions: Versions, kubelet: Kubelet, command: str) -> None:
    """Let all jobs run, and succeed."""
    await versions.ask(command, "resume", "paused")
    kubelet.fate = lambda pod: "run"
    await kubelet.start(kubelet.pod("waits", "worker-0"))
    await kubelet.start(kubelet.pod("waits", "worker-1"))
    for name, kind in versions.kinds.items():
        await versions.yard.reaches(name, "Running", kind)
        await kubelet.end_all(name, 0)
        await versions.yard.reaches(name, "Succeeded", kind)


async def test_an_operator_works_with_definitions_that_are_older(
    yard: Yard, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What they would drop is refused before there is a job, and told by the doctor."""
    yard.judges_pods()
    versions = Versions(yard, tmp_path_factory.getbasetemp() / "versions")
    try:
        await versions.define(OLDER_DEFINITIONS)
        async with (
            running_kubelet(yard.client, yard.namespace, fate) as kubelet,
            versions.operator(NOW),
        ):
            await begin(versions, kubelet, NOW)
            in_place = pytorch_job("in-place", runPolicy={"restartMode": "InPlace"})
            said = await versions.submit(NOW, in_place, code=1)
            assert "does not know spec.runPolicy.restartMode; apply" in said
            assert "| kubectl apply --server-side -f -" in said
            assert "spec.runPolicy.backoffReset" in await versions.ask(NOW, "doctor", code=1)
            await finish(versions, kubelet, NOW)
    finally:
        await versions.define(NOW)


async def restarts(versions: Versions, job: str, count: int) -> None:
    """Wait until the job runs, after so many restarts in all its life."""

    def has_restarted(found: Object) -> bool:
        status = found["status"]
        return status["phase"] == "Running" and status.get("backoffCount") == count

    await until(lambda: versions.yard.job(job), has_restarted)


async def by_the_other_command(
    versions: Versions, kubelet: Kubelet, version: str, number: int
) -> None:
    """A job whose user has another version than the operator."""
    yard, name = versions.yard, f"probe-{number}"
    await versions.submit(version, pytorch_job(name))
    await yard.reaches(name, "Running")
    for command in "show", "explain", "events":
        assert name in await versions.ask(version, command, name)
    assert name in await versions.ask(version, "list")
    await versions.ask(version, "pause", name)
    await yard.reaches(name, "Paused")
    await versions.ask(version, "resume", name)
    await yard.reaches(name, "Running")
    await kubelet.end_all(name, 0)
    await yard.reaches(name, "Succeeded")
    await versions.ask(version, "delete", name)
    await yard.gone(name)
    del versions.kinds[name]


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: "-".join(each[:8] for each in r))
async def test_jobs_under_kueue_outlive_every_change_of_the_operator(
    yard: Yard, tmp_path_factory: pytest.TempPathFactory, route: Sequence[str]
) -> None:
    """Of all kinds, admitted, paused, restarted and queued; none loses its place or its quota."""
    yard.judges_pods()
    versions = Versions(yard, tmp_path_factory.getbasetemp() / "versions")
    versions.kinds |= {**test_kueue.JOBS, "queued": "PyTorchTrainingJob"}
    try:
        await versions.define(route[0])
        async with (
            running_kueue(yard, Kueue(quota=6)) as queues,
            running_kubelet(yard.client, yard.namespace) as kubelet,
        ):
            await play_under_kueue(versions, kubelet, queues, route)
    finally:
        await versions.define(NOW)


async def play_under_kueue(
    versions: Versions, kubelet: Kubelet, queues: Queues, route: Sequence[str]
) -> None:
    yard, kueue = versions.yard, ("--gang-scheduler", "kueue")
    async with versions.operator(route[0], *kueue):
        await test_kueue.submit(yard, test_kueue.job("fourth"))
        await yard.reaches("fourth", "Running", test_kueue.JOBS["fourth"])
        await test_kueue.change(yard, "fourth", {"runMode": {"pause": {"enabled": True}}})
        await yard.reaches("fourth", "Paused", test_kueue.JOBS["fourth"])
        await test_kueue.usage(queues, 0)
        for name in RUNNING:
            job = test_kueue.job(name)
            if name == "first":
                job["spec"]["runPolicy"] = {"backoffLimit": 9}
            await test_kueue.submit(yard, job)
            await yard.reaches(name, "Running", test_kueue.JOBS[name])
        queue = {"t9kScheduler": {"queue": "team", "priority": 10}}
        await test_kueue.submit(yard, pytorch_job("queued", scheduler=queue))
        await yard.reaches("queued", "Pending")
        await kubelet.end_all("first", 1)
        await restarts(versions, "first", 1)
        await until(queues.workloads, lambda found: len(found) == 4)
        before, workloads = await versions.states(), await asked_of_kueue(queues)
    for number, version in enumerate(route[1:]):
        if number == 0:
            await versions.define(NOW)
        async with versions.operator(version, *kueue):
            await asyncio.sleep(SETTLED_SECONDS)
            assert await versions.states() == before
            assert await asked_of_kueue(queues) == workloads
            await kubelet.end_all("first", 1)
            await restarts(versions, "first", number + 2)
            before, workloads = await versions.states(), await asked_of_kueue(queues)
    async with versions.operator(route[-1], *kueue):
        for name in (*RUNNING, "queued"):
            await yard.reaches(name, "Running", versions.kinds[name])
            await kubelet.end_all(name, 0)
            await yard.reaches(name, "Succeeded", versions.kinds[name])
        await test_kueue.change(yard, "fourth", {"runMode": {"pause": {"enabled": False}}})
        await yard.reaches("fourth", "Running", test_kueue.JOBS["fourth"])
        await kubelet.end_all("fourth", 0)
        await yard.reaches("fourth", "Succeeded", test_kueue.JOBS["fourth"])
        await test_kueue.usage(queues, 0)


RUNNING = ("first", "second", "third")


async def asked_of_kueue(queues: Queues) -> dict[str, tuple[str, Object, set[tuple[str, str]]]]:
    """Of each Workload, its UID, what it asks for, and its conditions."""
    return {
        each["metadata"]["name"]: (
            each["metadata"]["uid"],
            each["spec"],
            {(c["type"], c["status"]) for c in (each.get("status") or {}).get("conditions") or ()},
        )
        for each in await queues.workloads()
    }
