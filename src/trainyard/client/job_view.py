"""One job as users see it: all that commands, screens and the diagnosis read of its object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from datetime import UTC, datetime

from trainyard.client.object_views import ListAt, Object, ObjectAt, TextAt
from trainyard.client.pod_views import ContainerView, PodView, in_order
from trainyard.kinds.kind import BACKOFF_LIMIT, MIN_REPLICAS, Kind
from trainyard.kinds.shared import child_names
from trainyard.kinds.shared.pods.container_roles import INIT
from trainyard.kinds.shared.reasons import NEVER_HERE
from trainyard.kube.object_conditions import find_condition
from trainyard.kube.resources import Resource
from trainyard.schema.dataclass import dataclass
from trainyard.schema.times import parse

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


@dataclass(slots=True, repr=False)
class Job:
    """A stored job; its pods as well where somebody follows it."""

    kind: Kind
    obj: Object
    pods: dict[str, PodView] = field(default_factory=dict)
    """By UID."""
    is_deleted: bool = False

    @classmethod
    def listed(cls, kind: Kind, item: Object) -> Job:
        """From an item of a list: kube-apiserver leaves kind and version out of these."""
        return cls(kind, {"apiVersion": kind.api_version, "kind": kind.kind, **item})

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.namespace}/{self.name}"

    def __repr__(self) -> str:
        return f"<{self}: {'Deleted' if self.is_deleted else self.phase}>"

    # What it is called.

    metadata = ObjectAt("metadata")
    name = TextAt("metadata", "name")
    namespace = TextAt("metadata", "namespace", default="default")
    uid = TextAt("metadata", "uid")
    version = TextAt("metadata", "resourceVersion")

    @property
    def resource(self) -> Resource:
        """Where it is served."""
        return self.kind.resource

    @property
    def base(self) -> str:
        """What the names of its pods begin with."""
        return child_names.base_name(self.name, self.uid)

    @property
    def full_name(self) -> str:
        """`kind.group/name`, as kubectl prints it with `-o name`."""
        return f"{self.kind.singular}.{self.kind.group}/{self.name}"

    def replica_of(self, pod_name: str) -> str:
        """A replica's short name: its pod's name without what all pods of the job share."""
        return pod_name.removeprefix(f"{self.base}-")

    # What was asked for.

    spec = ObjectAt("spec")
    run_policy = ObjectAt("spec", "runPolicy")
    elastic = ObjectAt("spec", "elastic")
    pause_mode = ObjectAt("spec", "runMode", "pause")
    debug_mode = ObjectAt("spec", "runMode", "debug")
    queue = TextAt("spec", "scheduler", "t9kScheduler", "queue")
    """The queue that it asks for; empty without one."""

    @property
    def is_elastic(self) -> bool:
        """Whether it runs with fewer replicas than expected, too."""
        return _is_enabled(self.elastic)

    @property
    def is_paused(self) -> bool:
        """Asked to be paused."""
        return _is_enabled(self.pause_mode)

    @property
    def is_debugged(self) -> bool:
        return _is_enabled(self.debug_mode)

    @property
    def backoff_limit(self) -> int:
        """Restarts that the whole job may spend, where its kind counts them so."""
        return int(self.run_policy.get("backoffLimit", BACKOFF_LIMIT))

    @property
    def min_replicas(self) -> int:
        """How few replicas it may have, if it is elastic."""
        return int(self.elastic.get("minReplicas", MIN_REPLICAS))

    def restart_policy(self, replica: str) -> tuple[str, int]:
        """Restart policy and limit of a replica such as `worker-0`."""
        policy = self.replica_spec(replica).get("restartPolicy")
        if self.kind.has_shared_budget:
            return str(policy or self.kind.restart_policy), self.backoff_limit
        own = policy or {}
        return str(own.get("policy") or self.kind.restart_policy), int(own.get("limit") or 0)

    def replica_spec(self, replica: str) -> Object:
        """The entry of the spec for the type of a replica such as `worker-0`."""
        wanted = replica.rpartition("-")[0] or replica
        for entry in self.spec.get("replicaSpecs") or ():
            if entry.get("type") == wanted:
                return dict(entry)
        entry = self.spec.get(wanted)
        return entry if isinstance(entry, dict) else {}

    # Where it stands.

    status = ObjectAt("status")
    phase = TextAt("status", "phase", default="Pending")
    progress = ObjectAt("status", "progress")
    """What its replicas tell of how far they are; empty where they tell nothing."""
    """A job that nobody has looked at is Pending."""
    aggregate = ObjectAt("status", "aggregate")
    """Replicas per phase; empty before any is known."""
    tasks = ListAt("status", "tasks")
    """The replica types."""
    conditions = ListAt("status", "conditions")
    stragglers = ListAt("status", "stragglers")
    """Ranks for which others wait again and again."""
    node_check = ObjectAt("status", "nodeCheck")
    """What the check of the nodes before the last start came to; empty without one."""
    attempts = ListAt("status", "attempts")
    """The history, oldest first."""
    viewer = ObjectAt("status", "tensorboard")
    """What the status says of its TensorBoard; empty for a job without one."""
    viewer_url = TextAt("status", "tensorboard", "url")

    @property
    def is_over(self) -> bool:
        """Ended, or deleted by somebody."""
        return self.is_deleted or self.phase in ("Succeeded", "Failed")

    @property
    def is_deleting(self) -> bool:
        """Whether it is on its way out."""
        return bool(self.metadata.get("deletionTimestamp"))

    @property
    def restarts(self) -> int:
        """Restarts that count: one for each incident (decision 24), where the job has a budget."""
        return self.kind.restarts(self.status)

    @property
    def budget(self) -> str:
        """`1 of 3`: how much of its restarts the whole job has spent; empty where none counts."""
        if not self.kind.has_shared_budget or self.status.get(self.kind.budget) is None:
            return ""
        return f"{self.restarts} of {self.backoff_limit}"

    @property
    def replicas(self) -> list[Object]:
        """The replicas of all types, as the status has them."""
        return [replica for task in self.tasks for replica in task.get("replicas") or ()]

    def condition(self, kind: str) -> Object:
        """One of its conditions; empty when there is none."""
        return find_condition(self.status, kind)

    def replica_status(self, replica: str) -> Object:
        """What the status has of a replica such as `worker-0`; empty if it has none of it."""
        found = (r for r in self.replicas if self.replica_of(r.get("name") or "") == replica)
        return next(found, {})

    def fate_of(self, replica: str) -> str:
        """What has become of a replica without a pod, to follow its name."""
        phase = self.replica_status(replica).get("phase")
        if phase in ("Succeeded", "Failed"):
            return f"has {phase.lower()}, and its pod was deleted"
        if phase == "Deleted":
            when = "when the job ended" if self.is_over else "by somebody"
            return f"was deleted {'by the pause' if self.is_paused else when}"
        return "has no pod yet" if phase else "is not one of its replicas"

    def failed_init_container(self, replica: str) -> str:
        """The init container that failed when it was seen last; empty if none did."""
        containers = self.replica_status(replica).get("containers") or ()
        return next(
            (str(c["name"]) for c in containers if c.get("role") == INIT and c.get("exitCode")), ""
        )

    @property
    def failure(self) -> str:
        """Why it failed; empty if it did not."""
        failed = self.condition("Failed")
        if failed.get("status") != "True":
            return ""
        return str(failed.get("message") or failed.get("reason") or "")

    @property
    def last_failure(self) -> Object:
        """The newest attempt that a replica ended; empty when none did."""
        ended = [a for a in self.attempts if a.get("endTime") and a.get("replica")]
        return max(ended, key=lambda attempt: str(attempt["endTime"]), default={})

    @property
    def seconds(self) -> float | None:
        """From creation to the end, or to now."""
        start = parse(self.metadata.get("creationTimestamp"))
        if start is None:
            return None
        end = parse(self.status.get("completionTime")) or datetime.now(UTC)
        return max((end - start).total_seconds(), 0.0)

    # Its pods.

    @property
    def never_fits(self) -> str:
        """Why none of its replicas ever runs on the machine of the embedded cluster, whoever makes
        room there; "" where they may."""
        refusals = [pod.no_place or "" for pod in self.pods.values() if not pod.node]
        is_whole = len(refusals) == len(self.pods) == sum(self.aggregate.values())
        return (
            refusals[0]
            if refusals and is_whole and all(NEVER_HERE in text for text in refusals)
            else ""
        )

    def ordered_pods(self) -> list[PodView]:
        """By replica type as the status lists them, then by index."""
        return in_order(self.pods.values(), [str(task.get("type")) for task in self.tasks])

    def _repr_html_(self) -> str:
        """As a notebook shows it."""
        from trainyard.client import notebook_html

        pods = self.ordered_pods()
        rows = [
            (
                pod.replica,
                pod.phase,
                "" if (failed := pod.failed_container) is None else str(failed.exit_code),
                pod.message,
            )
            for pod in pods
        ]
        replicas = () if pods else self.replicas
        rows += [(self.replica_of(r["name"]), str(r.get("phase") or ""), "", "") for r in replicas]
        restarts = f", {self.restarts} restart{'' if self.restarts == 1 else 's'}"
        facts = f", {self.seconds or 0:.0f} s{restarts if self.restarts else ''}"
        return notebook_html.table(
            str(self), "Deleted" if self.is_deleted else self.phase, facts, rows
        )

    def training_container(self, pod: PodView) -> str:
        """The container that a user means who names none."""
        if (chosen := pod.annotations.get(_DEFAULT_CONTAINER)) in pod.container_names:
            return str(chosen)
        return self.kind.training_container(pod.replica_type, pod.container_names)

    def failed_container(self, pod: PodView) -> ContainerView | None:
        """The container whose failure is the replica's: the one that trains where a kind has one,
        else the first that ended with an error (decision 21); None where none did."""
        failed = pod.failed_containers
        main = self.kind.training_container(pod.replica_type, pod.container_names)
        if self.kind.training_containers and pod.has_started(main):
            failed = [each for each in failed if each.name == main]
        return min(failed, key=lambda each: str(each.ended.get("finishedAt") or "~"), default=None)

    def training_container_among(self, replica: str, kept: Sequence[str]) -> str:
        """The same of a pod that is gone, by the containers of which something was kept.

        Where it came to init containers only, the one that failed, or else the last.
        """
        template = PodView(self.replica_spec(replica).get("template") or {})
        containers = self.replica_status(replica).get("containers") or ()
        before = dict.fromkeys(
            (*template.init_container_names, *(c.get("name") for c in containers if c.get("role")))
        )
        names = (*template.container_names, *(c.get("name") for c in containers), *sorted(kept))
        present = [n for n in dict.fromkeys(names) if n in kept and n not in before]
        if not present:
            failed = self.failed_init_container(replica)
            return failed if failed in kept else str([n for n in before if n in kept][-1])
        if (chosen := template.annotations.get(_DEFAULT_CONTAINER)) in present:
            return str(chosen)
        return self.kind.training_container(replica.rpartition("-")[0] or replica, present)


def _is_enabled(switch: Object) -> bool:
    """In whichever spelling it was stored (decision 2)."""
    return bool(switch.get("enabled", switch.get("enable")))
