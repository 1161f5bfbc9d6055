"""Which gang scheduler a cluster is found to have."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import orjson
import pytest

from trainyard.kinds.shared.settings import GangBackend
from trainyard.kube.client import Client
from trainyard.kube.transport import Request, Response
from trainyard.operator.detection import detect

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
PLUGINS = "/apis/scheduling.x-k8s.io/v1alpha1"
NATIVE = "/apis/scheduling.k8s.io/v1alpha2"


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
        ({NATIVE: "podgroups"}, GangBackend.KUBERNETES),
        ({PLUGINS: "podgroups"}, GangBackend.SCHEDULER_PLUGINS),
        ({PLUGINS: "podgroups", VOLCANO: "podgroups"}, GangBackend.VOLCANO),
        ({KUEUE: "workloads", VOLCANO: "podgroups"}, GangBackend.KUEUE),
        ({PLUGINS: "elasticquotas"}, GangBackend.NONE),
    ],
)
def test_the_first_that_is_served_counts(served: Mapping[str, str], found: GangBackend) -> None:
    assert asyncio.run(detect(Client(Serving(served)))) is found  # type: ignore[arg-type]
