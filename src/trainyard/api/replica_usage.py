"""What replicas use of CPU, memory and GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.api.connection import Connection, JobName
from trainyard.client.metrics_client import NodeUsage, node_usage, pod_metrics, used_by
from trainyard.client.metrics_client import Used as Used
from trainyard.client.object_views import Object
from trainyard.client.pod_views import PodView
from trainyard.kinds.shared import labels
from trainyard.kube.client import Selection
from trainyard.kube.resources import PODS


@dataclass(frozen=True, slots=True)
class Usage:
    """What a replica uses at present."""

    pod: PodView
    used: Used
    """Of all its containers: `cpu` in cores, `memory` in bytes, `gpu` in GPUs' worth of work and
    `gpu_memory` in bytes, None where nobody tells."""
    containers: dict[str, Used]
    """The same of each, by its name."""
    obj: Object
    """The PodMetrics."""

    @property
    def job(self) -> str:
        """The name of its job."""
        return str(self.pod.labels.get(labels.OWNER_NAME) or "")

    @property
    def replica(self) -> str:
        """Its name in the job, such as `worker-0`."""
        return self.pod.replica


Usages = list[Usage]


class Measuring(Connection):
    """What is measured, when somebody asks."""

    async def usage(self, job: JobName | None = None, *, all_namespaces: bool = False) -> Usages:
        """What the replicas use that run, by job and replica: those of a job, or of all jobs of
        the namespace.

        Raises CommandError where the cluster has no metrics API.
        """
        target = await self.target()
        namespace, wanted = None if all_namespaces else target.namespace, labels.REPLICA_TYPE
        if job is not None:
            found = await self.found(job)
            namespace, wanted = found.namespace, labels.selector(found.uid)
        metrics = await pod_metrics(target.client, namespace, wanted, target.title)
        pods, _ = await target.client.list(PODS, namespace, Selection(wanted))
        views = {(view.namespace, view.name): view for view in map(PodView, pods)}
        found_of = [
            _usage(views[place], each)
            for each in metrics
            if (place := _place(each)) in views  # it may just have gone
        ]
        return sorted(found_of, key=_order)

    async def node_usage(self) -> NodeUsage | None:
        """What the cluster's only node uses, of what it has; None where there are several.

        Raises KubeError where one may not ask for it.
        """
        return await node_usage((await self.target()).client)


def _usage(view: PodView, metrics: Object) -> Usage:
    measured = metrics.get("containers") or ()
    containers = {str(c["name"]): Used.of([c.get("usage") or {}]) for c in measured}
    return Usage(view, used_by(metrics), containers, metrics)


def _place(metrics: Object) -> tuple[str, str]:
    metadata = metrics["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _order(usage: Usage) -> tuple[str, str, str, int]:
    pod = usage.pod
    return pod.namespace, usage.job, pod.replica_type, pod.index
