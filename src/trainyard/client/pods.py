"""A pod of a job and its containers, read from the object as the API serves it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.kinds.shared import labels

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container, by its status."""

    status: Object

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.status["name"])

    @property
    def waiting(self) -> Object:
        """Why it does not run yet; empty unless it waits."""
        return self._state("waiting")

    @property
    def running(self) -> Object:
        """Since when it runs; may be empty although it does (see `is_running`)."""
        return self._state("running")

    @property
    def ended(self) -> Object:
        """How it ended; empty before."""
        return self._state("terminated")

    def _state(self, name: str) -> Object:
        return (self.status.get("state") or {}).get(name) or {}

    @property
    def is_waiting(self) -> bool:
        """Whether it is still to start."""
        return "waiting" in (self.status.get("state") or {})

    @property
    def is_running(self) -> bool:
        """Whether it runs."""
        return "running" in (self.status.get("state") or {})

    @property
    def has_started(self) -> bool:
        """Whether it has written, or may have, anything."""
        return self.is_running or "terminated" in (self.status.get("state") or {})

    @property
    def exit_code(self) -> int | None:
        """Once it has ended."""
        return int(self.ended.get("exitCode", 0)) if self.ended else None

    @property
    def reason(self) -> str:
        """One word on why it ended, or waits."""
        return str((self.ended or self.waiting).get("reason") or "")

    @property
    def last_words(self) -> str:
        """What it wrote last before it ended."""
        return str(self.ended.get("message") or "")


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod of a job."""

    obj: Object

    @property
    def metadata(self) -> Object:
        """Its metadata."""
        metadata: Object = self.obj["metadata"]
        return metadata

    @property
    def spec(self) -> Object:
        """Its spec."""
        return self.obj.get("spec") or {}

    @property
    def status(self) -> Object:
        """Its status."""
        return self.obj.get("status") or {}

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.metadata["name"])

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.metadata["namespace"])

    @property
    def uid(self) -> str:
        """Its UID."""
        return str(self.metadata["uid"])

    @property
    def labels(self) -> Object:
        """Its labels."""
        return self.metadata.get("labels") or {}

    @property
    def annotations(self) -> Object:
        """Its annotations."""
        return self.metadata.get("annotations") or {}

    @property
    def replica_type(self) -> str:
        """The type of its replica."""
        return str(self.labels.get(labels.REPLICA_TYPE, ""))

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
    def is_master(self) -> bool:
        """Whether it is rank 0's, as its label says."""
        return bool(self.labels.get(labels.JOB_ROLE) == labels.MASTER_ROLE)

    @property
    def node(self) -> str:
        """Where it runs; empty before it is scheduled."""
        return str(self.spec.get("nodeName") or "")

    @property
    def phase(self) -> str:
        """Its phase; Pending until somebody says otherwise."""
        return str(self.status.get("phase") or "Pending")

    @property
    def deleting_since(self) -> str:
        """When it should be gone, its grace period included; empty unless it is deleted."""
        return str(self.metadata.get("deletionTimestamp") or "")

    @property
    def container_names(self) -> list[str]:
        """Its containers as the spec lists them, without init containers."""
        return [str(container["name"]) for container in self.spec.get("containers") or ()]

    @property
    def init_container_names(self) -> list[str]:
        """Its init containers as the spec lists them."""
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
        return found is not None and found.has_started

    @property
    def failed_container(self) -> ContainerView | None:
        """The first container that ended with an error."""
        return next((each for each in self.containers if each.exit_code), None)

    @property
    def failed_init_container(self) -> str:
        """The init container that keeps the others from starting; empty if none does."""
        return next((each.name for each in self.init_containers if each.exit_code), "")

    def condition(self, kind: str) -> Object:
        """A condition; empty when there is none."""
        conditions: Sequence[Object] = self.status.get("conditions") or ()
        return next((each for each in conditions if each.get("type") == kind), {})

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


def in_order(pods: Iterable[PodView]) -> list[PodView]:
    """Pods by replica type and index."""
    return sorted(pods, key=lambda pod: (pod.replica_type, pod.index, pod.name))
