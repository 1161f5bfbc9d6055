"""`gangScheduler: auto` on a real API server: what is served decides, and jobs get its objects.

Definitions are those that the schedulers publish; no scheduler runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.cluster.kubelet import running_kubelet
from tests.cluster.queues import found, install, remove
from tests.cluster.yard import PYTORCH, Object, Yard, pytorch_job, until
from tests.queueing.definitions import native_schema, published
from trainyard.kinds.shared.job_settings import GangBackend
from trainyard.kinds.shared.scheduling.gang_scheduling import NATIVE_POD_GROUPS, POD_GROUPS_OF
from trainyard.kube.resources import Resource

CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False)
QUEUED = {"t9kScheduler": {"queue": "team", "priority": 60}}


def native(version: str) -> Object:
    """PodGroups of `scheduling.k8s.io`, which the server of definitions has not, with the schema
    that a release with them publishes."""
    (group,) = (each for each in NATIVE_POD_GROUPS if each.version == version)
    # Groups of this domain are Kubernetes' own.
    note = {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"}
    served = {"name": version, "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": group.full_name, "annotations": note},
        "spec": {
            "group": group.group,
            "scope": "Namespaced",
            "names": {"plural": group.plural, "kind": group.kind},
            "versions": [{**served, "schema": {"openAPIV3Schema": native_schema(version)}}],
        },
    }


def definitions(backend: GangBackend, version: str = "") -> list[Object]:
    if backend is GangBackend.KUBERNETES:
        return [native(version or NATIVE_POD_GROUPS[0].version)]
    return published(backend)


@asynccontextmanager
async def serving(yard: Yard, *backends: GangBackend, version: str = "") -> AsyncIterator[None]:
    """The server serves what these schedulers bring, and nothing of others."""
    all_of_them = [GangBackend.KUEUE, *(b for b in POD_GROUPS_OF if b is not GangBackend.T9K)]
    await _remove(yard, all_of_them)
    try:
        for backend in backends:
            await install(yard, definitions(backend, version))
        await until(lambda: found(yard), lambda now: set(now) == {*backends})
        yield
    finally:
        await _remove(yard, all_of_them)


async def _remove(yard: Yard, backends: list[GangBackend]) -> None:
    for backend in backends:
        await remove(yard, definitions(backend))
    await until(lambda: found(yard), lambda now: not now)


WANTED: dict[GangBackend, tuple[dict[str, Any], dict[str, Any]]] = {
    GangBackend.VOLCANO: (
        {"minMember": 2, "queue": "team", "priorityClassName": "urgent"},
        {"annotations": "scheduling.k8s.io/group-name", "schedulerName": "volcano"},
    ),
    GangBackend.SCHEDULER_PLUGINS: (
        {"minMember": 2},
        {
            "labels": "scheduling.x-k8s.io/pod-group",
            "schedulerName": "scheduler-plugins-scheduler",
        },
    ),
    GangBackend.KUBERNETES: (
        {"schedulingPolicy": {"gang": {"minCount": 2}}, "priorityClassName": "urgent"},
        {"schedulerName": "default-scheduler"},
    ),
}
"""Of each scheduler: the PodGroup's spec, and how its pods name it."""


GROUPS = [
    *((each, POD_GROUPS_OF[each]) for each in WANTED if each is not GangBackend.KUBERNETES),
    *((GangBackend.KUBERNETES, each) for each in NATIVE_POD_GROUPS),
]


@pytest.mark.parametrize(
    ("backend", "groups"), GROUPS, ids=[f"{each}-{groups.version}" for each, groups in GROUPS]
)
async def test_what_is_served_is_found_and_gets_its_objects(
    backend: GangBackend, groups: Resource, yard: Yard
) -> None:
    """As stored: the server's schema has dropped nothing of them. They go on pause, are there
    again, and go with the job."""
    if backend is GangBackend.KUBERNETES and yard.plane.version < (1, 36):
        pytest.skip("not judged: an older server serves nothing beside its own kinds there")
    spec, named = WANTED[backend]
    urgent = {"metadata": {"name": "urgent"}, "value": 1000}
    async with serving(yard, backend, version=groups.version):
        await yard.client.create(CLASSES, urgent)
        try:
            async with (
                yard.operator("--priority-classes", "50=urgent") as operator,
                running_kubelet(yard.client, yard.namespace) as kubelet,
            ):
                await yard.client.create(
                    PYTORCH, pytorch_job("digits", scheduler=QUEUED), yard.namespace
                )
                await yard.reaches("digits", "Running")
                found = f"{groups.plural} of {groups.api_version} are served"
                assert f"jobs are handed to {backend}: {found}" in operator.log
                group = await yard.client.get(groups, "digits", yard.namespace)
                assert _without_defaults(group["spec"]) == spec
                for pod in await yard.pods("digits"):
                    _names(pod, named)
                await _pause(yard, paused=True)
                await until(lambda: _groups(yard, groups), lambda there: not there)
                await _pause(yard, paused=False)
                await until(lambda: _groups(yard, groups), lambda there: len(there) == 1)
                await yard.reaches("digits", "Running")
                await kubelet.end_all("digits", 0)
                await yard.reaches("digits", "Succeeded")
                await yard.client.delete(PYTORCH, "digits", yard.namespace)
                # A group beside the older server's own is not told to its garbage collector.
                if yard.plane.collects and backend is not GangBackend.KUBERNETES:
                    await until(lambda: _groups(yard, groups), lambda there: not there)
        finally:
            await yard.client.delete(CLASSES, "urgent")


def _without_defaults(spec: Object) -> Object:
    return {key: value for key, value in spec.items() if value not in ({}, [], None)}


def _names(pod: Object, named: dict[str, Any]) -> None:
    assert pod["spec"]["priorityClassName"] == "urgent"
    assert pod["spec"]["schedulerName"] == named["schedulerName"]
    for place in ("labels", "annotations"):
        if place in named:
            assert pod["metadata"][place][named[place]] == "digits"


async def _pause(yard: Yard, *, paused: bool) -> None:
    change = {"spec": {"runMode": {"pause": {"enabled": paused}}}}
    await yard.client.patch(PYTORCH, "digits", change, yard.namespace)


async def _groups(yard: Yard, groups: Resource) -> list[Object]:
    return (await yard.client.list(groups, yard.namespace))[0]


async def test_who_grants_quota_comes_first_and_nobody_is_told(yard: Yard) -> None:
    """Kueue before Volcano; and with nothing of the kind, jobs say what they wait for."""
    async with (
        serving(yard, GangBackend.KUEUE, GangBackend.VOLCANO),
        yard.operator() as operator,
    ):
        await operator.leads()
        assert "jobs are handed to kueue: workloads of kueue.x-k8s.io/" in operator.log
    async with serving(yard), yard.operator():
        await yard.client.create(PYTORCH, pytorch_job("alone", scheduler=QUEUED), yard.namespace)

        async def reason() -> str:
            status = (await yard.job("alone")).get("status") or {}
            conditions = {each["type"]: each for each in status.get("conditions") or ()}
            return str(conditions.get("Running", {}).get("reason"))

        await until(reason, lambda told: told == "NoGangScheduler")
        assert await yard.pods() == []
