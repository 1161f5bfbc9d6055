"""The metrics API (`metrics.k8s.io`) for `kubectl top`. Values are measured on request, not stored.

https://github.com/kubernetes/metrics/tree/master/pkg/apis/metrics/v1beta1
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from trainyard.embedded.api_errors import bad_request, method_not_allowed, no_such_path, not_found
from trainyard.embedded.apiserver.auth.authorization import Authorizer
from trainyard.embedded.apiserver.http.http_messages import Request, Response
from trainyard.embedded.apiserver.requests import list_selectors, response_encoding
from trainyard.embedded.apiserver.requests.request_target import Target, parse
from trainyard.embedded.kubelet_api import KubeletApi, ResourceUsage, UsageSample
from trainyard.embedded.resources.printer_columns import NAME, Column, at
from trainyard.embedded.resources.resource import Object, Served
from trainyard.embedded.storage.journal import Entry
from trainyard.kube.resources import NODE_METRICS, NODES, POD_METRICS, PODS
from trainyard.schema import quantity, times

GROUP = POD_METRICS.group
GPU, GPU_MEMORY = "nvidia.com/gpu", "nvidia.com/gpu-memory"
"""Ours beside cpu and memory: how many GPUs' worth of work is done, and bytes on them."""
_VERBS = ("get", "list")


def _use(key: str) -> Column:
    def cell(obj: Object) -> str:
        of_pod = [each["usage"] for each in obj.get("containers") or ()]
        amounts = [quantity.parse(usage.get(key, "0")) for usage in of_pod or [obj["usage"]]]
        return f"{int(sum(amounts) * 1000)}m" if key == "cpu" else f"{int(sum(amounts)) >> 10}Ki"

    return Column(key.upper() if key == "cpu" else key.capitalize(), cell)


_COLUMNS = (NAME, _use("cpu"), _use("memory"), Column("Window", at("window")))
_PODS = Served(POD_METRICS, verbs=_VERBS, printer_columns=_COLUMNS)
_NODES = Served(NODE_METRICS, verbs=_VERBS, printer_columns=_COLUMNS)
METRICS = (_PODS, _NODES)
"""What discovery tells of them."""
_AT = {row.resource[:3]: row for row in METRICS}


async def respond(
    request: Request, parts: list[str], authorizer: Authorizer, runtime: KubeletApi | None
) -> Response:
    """Usage of one pod or node, or of those that the selectors match."""
    target = parse(parts, lambda *place: _AT.get(place))
    authorizer.check(request, target)
    if request.method not in ("GET", "HEAD"):
        raise method_not_allowed(request.method, target.served.name)
    if target.subresource:
        raise no_such_path()
    if request.flag("watch"):
        raise bad_request("what is used cannot be watched; ask again")
    if runtime is None:
        raise bad_request("no node runs pods here, so nothing is used")
    chosen = _chosen(request, target, authorizer)
    measured = await runtime.measure()
    shown = [metrics for obj in chosen if (metrics := _metrics(target.served, obj, measured))]
    if target.name:
        if not shown:
            raise not_found(target.served.name, target.name)
        return response_encoding.object_response(request, target.served, shown[0])
    entries = [Entry(each, orjson.dumps(each), 0) for each in shown]
    return response_encoding.list_response(request, target.served, entries, {})


def _chosen(request: Request, target: Target, authorizer: Authorizer) -> list[Object]:
    """The pods or nodes themselves."""
    stored = PODS if target.served is _PODS else NODES
    if target.name:
        return [authorizer.registry.peek(stored.full_name, target.namespace or "", target.name)]
    predicate = list_selectors.both(
        list_selectors.label_predicate(request.query.get("labelSelector", "")),
        list_selectors.field_predicate(request.query.get("fieldSelector", ""), target.served),
    )
    entries = authorizer.registry.entries(stored.full_name, target.namespace)
    return [e.object for e in entries if predicate is None or predicate(e.object)]


def _metrics(served: Served, obj: Object, measured: UsageSample) -> Object | None:
    """The metrics of one object; None for a pod that does not run."""
    metadata = obj["metadata"]
    at = times.from_unix(measured.at)
    head: Object = {"name": metadata["name"], "creationTimestamp": at}
    head |= {key: metadata[key] for key in ("namespace", "labels") if metadata.get(key)}
    found: Object = {
        "kind": served.kind,
        "apiVersion": served.resource.api_version,
        "metadata": head,
        "timestamp": at,
        "window": f"{measured.window_seconds:.3f}s",
    }
    if served is _NODES:
        return {**found, "usage": _amounts(measured.node)}
    containers: Mapping[str, ResourceUsage] = measured.containers.get(metadata["uid"], {})
    if not containers:
        return None
    usages = [{"name": name, "usage": _amounts(usage)} for name, usage in containers.items()]
    return {**found, "containers": usages}


def _amounts(usage: ResourceUsage) -> dict[str, str]:
    """As metrics-server writes them: billionths of a core, and KiB."""
    amounts = {"cpu": f"{round(usage.cpu * 1e9)}n", "memory": f"{usage.memory >> 10}Ki"}
    if usage.gpu is not None:
        amounts[GPU] = f"{round(usage.gpu * 1000)}m"
    if usage.gpu_memory is not None:
        amounts[GPU_MEMORY] = f"{usage.gpu_memory >> 20}Mi"
    return amounts
