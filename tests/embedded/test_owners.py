"""A job owns what is in its namespace, and nothing elsewhere that names it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded import lifecycle_yard
from tests.embedded.command_line import Object, shell, until
from tests.embedded.lifecycle_yard import Yard, generic, replicas, template

PODS = "/api/v1/namespaces/{}/pods"


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with lifecycle_yard.yard(tmp_path) as made:
        yield made


def forged(pod: Object, name: str) -> Object:
    """A pod that says it is one of the same job's, and fails; it cannot be deleted at once."""
    metadata = pod["metadata"]
    main = {**pod["spec"]["containers"][0], "command": shell("exit 1"), "volumeMounts": []}
    return {
        "metadata": {
            "name": name,
            "labels": metadata["labels"],
            "annotations": metadata.get("annotations", {}),
            "ownerReferences": metadata["ownerReferences"],
            "finalizers": ["example.com/hold"],
        },
        "spec": {"restartPolicy": "Never", "containers": [main]},
    }


def test_a_pod_elsewhere_that_names_a_job_changes_nothing_of_it(yard: Yard) -> None:
    pods = template(shell("exec sleep 3600"))
    yard.submit(generic("mine", replicas("worker", 2, pods, policy="OnFailure", limit=3)))
    yard.await_phase("mine", "Running")
    own = yard.pods("mine")
    [name] = {pod["metadata"]["name"] for key, pod in own.items() if key == "worker-0"}
    yard.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    for each in (name, "other"):
        code, answer = yard.api.request("POST", PODS.format("team"), forged(own["worker-0"], each))
        assert code == 201, answer

    def there(name: str) -> Object:
        _, pod = yard.api.request("GET", f"{PODS.format('team')}/{name}")
        return pod

    for each in (name, "other"):  # for the garbage collector it has no owner
        until(lambda each=each: "deletionTimestamp" in there(each)["metadata"], "it is to go")
    _, events = yard.api.request("GET", "/api/v1/namespaces/team/events")
    assert "OwnerRefInvalidNamespace" in {event["reason"] for event in events["items"]}
    status = yard.status("mine")
    assert (status["phase"], status["tasks"][0].get("restartCount", 0)) == ("Running", 0)
    assert yard.uids("mine") == {key: pod["metadata"]["uid"] for key, pod in own.items()}
    yard.run("delete", "mine", "--wait", "--timeout", "120")
    assert there("other")["metadata"]["finalizers"] == ["example.com/hold"]
    for each in (name, "other"):
        patch = {"metadata": {"finalizers": None}}
        path = f"{PODS.format('team')}/{each}"
        yard.api.request("PATCH", path, patch, "application/merge-patch+json")
        until(lambda path=path: yard.api.request("GET", path)[0] == 404, "it is gone")
