"""`kubectl drain` evicts the pods of jobs, and costs these nothing."""

from __future__ import annotations

import pytest

from tests.embedded.command_line import Object, shell, until
from tests.embedded.lifecycle_yard import Yard, kubectl, pytorch, shared_yard, template
from tests.tools import kubectl_path, oldest_and_newest_kubectl

WAIT = "until [ -e /data/{name} ]; do sleep 0.05; done"
BY_EVICTION = [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}]


cluster = shared_yard("drain")


def waiting(name: str, **policy: Object) -> Object:
    """A job that may not restart, and ends when its file is there."""
    pods = template(shell(WAIT.format(name=name)))
    return pytorch(name, pods, policy="Never", runPolicy={"backoffLimit": 0, **policy})


@pytest.mark.parametrize("version", oldest_and_newest_kubectl())
def test_a_job_comes_again_at_no_cost_unless_its_rules_say_otherwise(
    cluster: Yard, version: str
) -> None:
    program = kubectl_path(version)
    kept, ruled = (f"{name}-{version.replace('.', '-')}" for name in ("kept", "ruled"))
    cluster.submit(waiting(kept), waiting(ruled, podFailurePolicy={"rules": BY_EVICTION}))
    for name in (kept, ruled):
        cluster.await_phase(name, "Running")
    before = cluster.uids(kept)
    pods = [pod for name in (kept, ruled) for pod in cluster.pods(name).values()]
    (node,) = kubectl(program, cluster, "get", "nodes", "-o", "name").split()
    said = kubectl(program, cluster, "drain", node.partition("/")[2], "--grace-period=1")
    for pod in pods:
        assert f"pod/{pod['metadata']['name']} evicted" in said
    cluster.end(ruled, "Failed")
    kubectl(program, cluster, "uncordon", node.partition("/")[2])
    until(
        lambda: (
            cluster.uids(kept).keys() == before.keys()
            and cluster.uids(kept) != before
            and set(cluster.pod_phases(kept).values()) == {"Running"}
        ),
        f"{kept} runs again",
    )
    cluster.file(kept).touch()
    status = cluster.end(kept, "Succeeded")
    assert status.get("backoffCount", 0) == 0, cluster.story(kept)
    assert status["attempts"][0]["reason"] == "EvictionByEvictionAPI"
