"""Endpoints, which nothing here writes: Services are followed by the node agent itself."""

from __future__ import annotations

from trainyard.kube.resources import Resource
from trainyard.local.resources.columns import AGE, NAME, Column
from trainyard.local.resources.resource import Object, Served


def _endpoints(obj: Object) -> str:
    pairs = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in obj.get("subsets") or ()
        for address in subset.get("addresses") or ()
        for port in subset.get("ports") or ()
    ]
    return ",".join(pairs) or "<none>"


SERVED = Served(
    Resource("", "v1", "endpoints", "Endpoints"),
    order=50,
    definition="Endpoints",
    short_names=("ep",),
    printed=(NAME, Column("Endpoints", _endpoints), AGE),
)
