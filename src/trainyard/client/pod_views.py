"""A pod of a job and its containers, read from the object as the API serves it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from trainyard.client.object_views import ListAt, Object, ObjectAt, TextAt
from trainyard.kinds.shared import labels
from trainyard.kinds.shared.pods.container_roles import sidecars_of
from trainyard.kube.object_conditions import find_condition
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container, by its status."""

    obj: Object

    name = TextAt("name")
    state = ObjectAt("state")
    waiting = ObjectAt("state", "waiting")
    """Why it does not run yet; empty unless it waits."""
    running = ObjectAt("state", "running")
    """Since when it runs; may be empty although it does (see `is_running`)."""
    ended = ObjectAt("state", "terminated")
    """How it ended; empty before."""
    termination_message = TextAt("state", "terminated", "message")
    """What it wrote last before it ended."""

    @property
    def is_running(self) -> bool:
        return "running" in self.state

    @property
    def exit_code(self) -> int | None:
        """Once it has ended."""
        return int(self.ended.get("exitCode", 0)) if self.ended else None

    @property
    def reason(self) -> str:
        """One word on why it ended, or waits."""
        return str((self.ended or self.waiting).get("reason") or "")


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod of a job."""

    obj: Object

    metadata = ObjectAt("metadata")
    spec = ObjectAt("spec")
    status = ObjectAt("status")
    name = TextAt("metadata", "name")
    namespace = TextAt("metadata", "namespace")
    uid = TextAt("metadata", "uid")
    replica_type = TextAt("metadata", "labels", labels.REPLICA_TYPE)
    labels = ObjectAt("metadata", "labels")
    annotations = ObjectAt("metadata", "annotations")
    deleting_since = TextAt("metadata", "deletionTimestamp")
    """When it should be gone, its grace period included; empty unless it is deleted."""
    node = TextAt("spec", "nodeName")
    """Where it runs; empty before it is scheduled."""
    phase = TextAt("status", "phase", default="Pending")
    conditions = ListAt("status", "conditions")

    @property
    def index(self) -> int:
        """The number of its replica within the type."""
        text = str(self.labels.get(labels.REPLICA_INDEX, ""))
        return int(text) if text.isdigit() else 0

    @property
    def replica(self) -> str:
        """Its replica's short name: `worker-0`, or the type where there is only one of it."""
        numbered = f"{self.replica_type}-{self.index}"
        if self.replica_type and self.name.endswith(f"-{numbered}"):
            return numbered
        return self.replica_type or self.name

    @property
    def container_names(self) -> list[str]:
        """Its containers as the spec lists them, without init containers."""
        return [str(container["name"]) for container in self.spec.get("containers") or ()]

    def variable(self, container: str, name: str) -> str:
        """The value of a container's environment variable, as the spec has it; empty if not."""
        specs = self.spec.get("containers") or ()
        variables = next((each.get("env") or () for each in specs if each["name"] == container), ())
        return next((each.get("value", "") for each in variables if each["name"] == name), "")

    @property
    def init_container_names(self) -> list[str]:
        return [str(container["name"]) for container in self.spec.get("initContainers") or ()]

    @property
    def init_containers(self) -> list[ContainerView]:
        """The init containers that its node tells of."""
        return [ContainerView(each) for each in self.status.get("initContainerStatuses") or ()]

    @property
    def main_containers(self) -> list[ContainerView]:
        """The other containers that its node tells of."""
        return [ContainerView(each) for each in self.status.get("containerStatuses") or ()]

    @property
    def containers(self) -> list[ContainerView]:
        """All containers that its node tells of, init containers first."""
        return [*self.init_containers, *self.main_containers]

    def container(self, name: str) -> ContainerView | None:
        """The container of this name, once its node tells of it."""
        return next((each for each in self.containers if each.name == name), None)

    def has_started(self, container: str) -> bool:
        """Whether a container has written, or may have, anything."""
        found = self.container(container)
        return found is not None and not found.state.keys().isdisjoint(("running", "terminated"))

    def has_ended(self, container: str) -> bool:
        """Whether a container has ended, and writes no more."""
        found = self.container(container)
        return found is not None and bool(found.ended)

    @property
    def failed_containers(self) -> list[ContainerView]:
        """Those that ended with an error; a sidecar's end is not its pod's."""
        sidecars = sidecars_of(self.spec)
        return [each for each in self.containers if each.exit_code and each.name not in sidecars]

    @property
    def failed_container(self) -> ContainerView | None:
        """The first of them, as the pod lists them."""
        return next(iter(self.failed_containers), None)

    @property
    def failed_init_container(self) -> str:
        """The init container that keeps the others from starting; empty if none does."""
        if any(self.has_started(name) for name in self.container_names):
            return ""
        return next((each.name for each in self.init_containers if each.exit_code), "")

    @property
    def replaced(self) -> dict[str, str]:
        """By container, the lines for a shell that debug mode replaced (decision 109)."""
        return dict(json.loads(self.annotations.get(labels.REPLACED) or "{}"))

    def condition(self, kind: str) -> Object:
        """A condition; empty when there is none."""
        return find_condition(self.status, kind)

    @property
    def no_place(self) -> str | None:
        """Why no node takes it; None unless that was tried."""
        refusal = self.condition("PodScheduled")
        if refusal.get("status") != "False":
            return None
        return str(refusal.get("message") or refusal.get("reason") or "")

    @property
    def message(self) -> str:
        """One sentence on its state."""
        return str(self.status.get("message") or "") if self.no_place is None else self.no_place


def in_order(pods: Iterable[PodView], types: Sequence[str] = ()) -> list[PodView]:
    """Pods by replica type, as far as they are in `types` in their order, and by index."""

    def key(pod: PodView) -> tuple[int, str, int, str]:
        kind = pod.replica_type
        place = types.index(kind) if kind in types else len(types)
        return place, kind, pod.index, pod.name

    return sorted(pods, key=key)
