"""What replicas use of CPU, memory and GPUs, as the metrics API of a cluster tells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trainyard.client.cluster_target import CommandError
from trainyard.client.object_views import Object
from trainyard.kube.client import Client, Selection
from trainyard.kube.errors import NotFound, ServerError
from trainyard.kube.resources import NODE_METRICS, NODES, POD_METRICS
from trainyard.schema import quantity
from trainyard.schema.dataclass import dataclass

_GPU, _GPU_MEMORY = "nvidia.com/gpu", "nvidia.com/gpu-memory"
"""Told by the embedded cluster; metrics servers tell of CPU and memory only."""
_MIB = 1 << 20


class NoMetrics(CommandError):
    """The cluster does not tell what is used."""


@dataclass(frozen=True, slots=True)
class Used:
    """Cores and bytes; ``gpu`` is how many GPUs' worth of work is done, None where nobody tells."""

    cpu: float
    memory: int
    gpu: float | None = None
    gpu_memory: int | None = None

    @classmethod
    def of(cls, amounts: Iterable[Mapping[str, str]]) -> Used:
        """The sum of several `usage` of the API."""
        sums: dict[str, float] = {}
        for usage in amounts:
            for key, text in usage.items():
                sums[key] = sums.get(key, 0.0) + float(quantity.parse(text))
        memory = sums.get(_GPU_MEMORY)
        return cls(
            sums.get("cpu", 0.0),
            int(sums.get("memory", 0)),
            sums.get(_GPU),
            None if memory is None else int(memory),
        )

    def figures(self) -> dict[str, str]:
        """As people read them, by `cpu`, `memory`, `gpu` and `gpu_memory`."""
        texts = {"cpu": f"{round(self.cpu * 1000)}m", "memory": f"{self.memory // _MIB}Mi"}
        if self.gpu is not None:
            texts["gpu"] = f"{round(self.gpu * 100)}%"
        if self.gpu_memory is not None:
            texts["gpu_memory"] = f"{self.gpu_memory // _MIB}Mi"
        return texts


Place = tuple[str, str]
"""A pod's namespace and name."""


def used_by(metrics: Object) -> Used:
    """What all containers of a pod use, of its PodMetrics."""
    return Used.of(each.get("usage") or {} for each in metrics.get("containers") or ())


async def pod_metrics(
    client: Client, namespace: str | None, selector: str, title: str = "the cluster"
) -> list[Object]:
    """The PodMetrics of the pods that run; of all namespaces where it is None.

    Raises NoMetrics where the cluster has no metrics API, or nobody answers for it.
    """
    try:
        found, _ = await client.list(POD_METRICS, namespace, Selection(selector))
    except NotFound as error:
        raise NoMetrics(
            f"{title} does not tell what its pods use: it has no metrics API "
            "(metrics.k8s.io). Install metrics-server: "
            "https://github.com/kubernetes-sigs/metrics-server#installation"
        ) from error
    except ServerError as error:
        raise NoMetrics(
            f"{title} does not tell what its pods use: {error}; look at its metrics server "
            "(kubectl get apiservice v1beta1.metrics.k8s.io)"
        ) from error
    return found


async def used_by_pods(client: Client, namespace: str, selector: str) -> dict[Place, Used]:
    """What the pods use that run; raises NoMetrics."""
    found = await pod_metrics(client, namespace, selector)
    return {(namespace, each["metadata"]["name"]): used_by(each) for each in found}


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """What a node uses, of what it has."""

    name: str
    used: Used
    capacity: Used


async def node_usage(client: Client) -> NodeUsage | None:
    """Of the only node of a cluster; None where there are several, or it is not told."""
    nodes, _ = await client.list(NODES)
    usages, _ = await client.list(NODE_METRICS)
    capacity = {n["metadata"]["name"]: (n.get("status") or {}).get("capacity") or {} for n in nodes}
    if len(usages) != 1 or not (has := capacity.get(usages[0]["metadata"]["name"])):
        return None
    used, whole = Used.of([usages[0].get("usage") or {}]), Used.of([has])
    if not whole.cpu or not whole.memory:
        return None
    return NodeUsage(str(usages[0]["metadata"]["name"]), used, whole)
