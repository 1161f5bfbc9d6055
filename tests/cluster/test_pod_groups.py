"""Why a job is a Workload of Kueue and not a group of pods: what befell the latter.

Pods keep Kueue's finalizer after they have failed, until a replacement is seen; and a job's pods
have the names of its replicas, so there can be none while the old one is there. Each waits for the
other. `test_kueue.py` shows the same restart of a job that is a Workload.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.cluster.yard import Object, Yard, until
from tests.queueing.pod_groups import FINALIZER, marked, released
from trainyard.kube.errors import AlreadyExists
from trainyard.kube.resources import PODS
from trainyard.kube.transport import Request

REPLICAS = ("worker-0", "worker-1")
ROUNDS = 20
"""Each begins with the state that the one before left: after one without a change none has any."""


def replica(name: str) -> Object:
    container = {"name": "pytorch", "image": "python", "command": ["train"]}
    # The token of the namespace's account may take a while.
    spec = {"containers": [container], "automountServiceAccountToken": False}
    pod: Object = {"metadata": {"name": name}, "spec": spec}
    return marked(pod, "train", len(REPLICAS))


async def kueue(yard: Yard) -> int:
    """Kueue's turn; how many pods it lets go."""
    found = released(await yard.pods())
    for pod in found:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        change = {"metadata": {"uid": uid, "finalizers": None}}
        await yard.client.patch(PODS, name, change, yard.namespace)
    return len(found)


async def restart(yard: Yard, names: dict[str, str]) -> int:
    """The controller's turn in the restart of a whole job; how many pods it creates."""
    created = 0
    for name in names.values():
        try:
            await yard.client.create(PODS, replica(name), yard.namespace)
            created += 1
        except AlreadyExists:
            continue
    return created


async def fail_all(yard: Yard) -> None:
    """All pods fail, and are deleted to make room, as a restart of the whole job does."""
    for pod in await yard.pods():
        name = pod["metadata"]["name"]
        path = PODS.path(yard.namespace, name, "status")
        body = b'{"status": {"phase": "Failed"}}'
        request = Request("PATCH", path, body, "application/merge-patch+json")
        await yard.client.raw(request, f"fail {name}")
        await yard.client.delete(PODS, name, yard.namespace, grace_seconds=0)


@pytest.mark.parametrize("reuses_names", [True, False])
async def test_a_group_of_pods_restarts_only_under_new_names(
    reuses_names: bool, yard: Yard
) -> None:
    """Under the old ones nothing changes any more, however often both sides have their turn."""
    await restart(yard, {each: each for each in REPLICAS})
    await fail_all(yard)
    names = {each: each if reuses_names else f"{each}-again" for each in REPLICAS}
    moves = [await restart(yard, names) + await kueue(yard) for _ in range(ROUNDS)]
    pods = await yard.pods()
    if reuses_names:
        assert moves == [0] * ROUNDS, "a deadlock"
        assert {pod["metadata"]["name"] for pod in pods} == {*REPLICAS}
        for pod in pods:
            assert pod["status"]["phase"] == "Failed"
            assert (pod["metadata"]["finalizers"], "deletionTimestamp" in pod["metadata"]) == (
                [FINALIZER],
                True,
            )
        await asyncio.gather(
            *(
                yard.client.patch(PODS, each, {"metadata": {"finalizers": None}}, yard.namespace)
                for each in REPLICAS
            )
        )
        await until(yard.pods, lambda left: not left)
    else:
        assert sum(moves) == 2 * len(REPLICAS), "each replaced, and each let go"
        assert {pod["metadata"]["name"] for pod in pods} == {*names.values()}
