"""Which gang scheduler a cluster is found to have."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import orjson
import pytest

from trainyard.kinds.shared.job_settings import GangBackend, Settings
from trainyard.kube.client import Client
from trainyard.kube.transport import Request, Response
from trainyard.operator.gang_detection import detect_gang_scheduler

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
PLUGINS = "/apis/scheduling.x-k8s.io/v1alpha1"
NATIVE = "/apis/scheduling.k8s.io"


class Serving:
    """A server of some groups."""

    def __init__(self, served: Mapping[str, str]) -> None:
        self._served = served

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        if request.path not in self._served:
            return Response(404, {}, b"{}")
        resources = [{"name": self._served[request.path]}]
        return Response(200, {}, orjson.dumps({"resources": resources}))

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize(
    ("served", "found"),
    [
        ({}, GangBackend.NONE),
        ({f"{NATIVE}/v1alpha2": "podgroups"}, GangBackend.KUBERNETES),
        ({PLUGINS: "podgroups"}, GangBackend.SCHEDULER_PLUGINS),
        ({PLUGINS: "podgroups", VOLCANO: "podgroups"}, GangBackend.VOLCANO),
        ({KUEUE: "workloads", VOLCANO: "podgroups"}, GangBackend.KUEUE),
        ({PLUGINS: "elasticquotas"}, GangBackend.NONE),
    ],
)
def test_the_first_that_is_served_counts(served: Mapping[str, str], found: GangBackend) -> None:
    assert settings_on(served).gang_backend is found


def settings_on(served: Mapping[str, str], wanted: GangBackend = GangBackend.AUTO) -> Settings:
    client = Client(Serving(served))  # type: ignore[arg-type]
    return asyncio.run(detect_gang_scheduler(client, Settings(gang_backend=wanted)))


@pytest.mark.parametrize("wanted", [GangBackend.AUTO, GangBackend.KUBERNETES])
@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        (("v1alpha2",), "v1alpha2"),
        (("v1alpha3",), "v1alpha3"),
        (("v1beta1", "v1alpha3"), "v1beta1"),
        (("v1alpha2", "v1beta1"), "v1beta1"),
    ],
)
def test_the_newest_version_of_kubernetes_own_groups_that_is_served_is_taken(
    versions: tuple[str, ...], chosen: str, wanted: GangBackend
) -> None:
    found = settings_on({f"{NATIVE}/{each}": "podgroups" for each in versions}, wanted)
    assert (found.gang_backend, found.pod_groups_version) == (GangBackend.KUBERNETES, chosen)


def test_a_group_that_only_has_priority_classes_is_not_taken() -> None:
    """As `scheduling.k8s.io/v1beta1` was until 1.21."""
    classes = {f"{NATIVE}/v1beta1": "priorityclasses"}
    assert settings_on(classes).gang_backend is GangBackend.NONE
    older = settings_on({**classes, f"{NATIVE}/v1alpha2": "podgroups"})
    assert older.pod_groups_version == "v1alpha2"


def test_a_scheduler_that_was_named_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever else is served, and even if it is not served itself."""
    served = {VOLCANO: "podgroups", KUEUE: "workloads"}
    for wanted in (GangBackend.SCHEDULER_PLUGINS, GangBackend.T9K, GangBackend.NONE):
        assert settings_on(served, wanted) == Settings(gang_backend=wanted)
    assert not caplog.text
    named = settings_on(served, GangBackend.KUBERNETES)
    assert named == Settings(gang_backend=GangBackend.KUBERNETES)
    assert "podgroups of scheduling.k8s.io are not served here" in caplog.text
