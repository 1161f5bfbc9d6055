"""What an operator of trainyard may tune; everything that a job itself decides is in its spec."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from trainyard.schema.dataclass import dataclass


class GangBackend(StrEnum):
    """The scheduler that places a job's pods all or none."""

    T9K = "t9k"
    VOLCANO = "volcano"
    SCHEDULER_PLUGINS = "scheduler-plugins"
    KUEUE = "kueue"
    KUBERNETES = "kubernetes"
    AUTO = "auto"
    """Whichever the cluster has; the operator finds out before it does anything."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class BoardSettings:
    """How TensorBoards are served."""

    image: str = "tensorflow/tensorflow:2.14.0"
    """For those whose spec names none."""
    node_port_host: str = ""
    """Where ports of the node are reached: their Services then have one, and are told by it. "":
    they have an address inside the cluster only."""
    yields: bool = False
    """A viewer must not keep a job from a machine that is just large enough for it: its CPU and
    memory are limited as the spec says, but not set aside."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Durations are in seconds.

    The defaults suit a cluster; `local()` gives those of an embedded one, where a pod starts in
    milliseconds and someone is watching.
    """

    master_port: int = 29500
    ssh_port: int = 2222
    """Of the sshd in pods of kinds that launch over ssh; above 1023, so that images without root
    may listen on it."""
    gang_backend: GangBackend = GangBackend.T9K
    pod_groups_version: str = ""
    """Of Kubernetes' own PodGroups, as the cluster serves it; "": the newest that is known."""
    priority_classes: tuple[str, ...] = ()
    """`50=urgent`: the class of jobs with a priority of at least 50, for schedulers that know
    classes only (decision 175)."""
    backoff_base_seconds: float = 10.0
    backoff_max_seconds: float = 360.0
    backoff_reset_seconds: float = 600.0
    """A replica that stayed healthy this long starts again with the shortest delay."""
    # Decision 54.
    incident_settle_seconds: float = 2.0
    """Failures this close together have one cause; under ExitCode all of them are looked at."""
    # Decision 94.
    resize_grace_seconds: float = 90.0
    """For so long after replicas joined or left others, a failure of these may come of it."""
    # Decision 26.
    force_delete_seconds: float = 300.0
    """A pod that is still terminating this long after its grace period is deleted by force."""
    refusal_base_seconds: float = 1.0
    refusal_max_seconds: float = 60.0
    """Delay before a refused creation is tried again; doubles from base to max (decision 26)."""
    # Decision 31.
    elastic_settle_seconds: float = 30.0
    """How long an elastic job that launches over ssh waits for more workers before it launches."""
    # Decision 100.
    launch_probe_seconds: int = 10
    """How often a launch over ssh is asked whether it has started."""
    # Decision 41.
    plain_processes: bool = False
    """Pods share this machine's network (no namespaces): names are addresses, ports are shared."""
    cluster_domain: str = "cluster.local"
    # Decisions 223 and 360.
    brings_observer: bool = False
    """Whatever starts containers brings the observer to those that are told of it, and puts it
    before the PYTHONPATH that they have."""
    # Decision 217.
    channel_address: str = ""
    """Host and port at which pods reach the controller; "": they do not."""
    progress_seconds: float = 10.0
    """How often what pods tell of their progress is written for its own sake."""
    boards: BoardSettings = field(default_factory=BoardSettings)

    def class_of(self, priority: int) -> str:
        """The class that the nearest lower priority is mapped to; "" for none."""
        found = (each.partition("=") for each in self.priority_classes)
        fits = ((int(low), name) for low, _, name in found if int(low) <= priority)
        return max(fits, default=(0, ""))[1]

    @classmethod
    def local(cls, *, plain_processes: bool = False) -> Settings:
        """For an embedded cluster on one machine."""
        return cls(
            backoff_base_seconds=0.2,
            backoff_max_seconds=30.0,
            backoff_reset_seconds=60.0,
            incident_settle_seconds=0.5,
            force_delete_seconds=30.0,
            refusal_base_seconds=0.2,
            refusal_max_seconds=10.0,
            elastic_settle_seconds=3.0,
            launch_probe_seconds=2,
            brings_observer=True,
            progress_seconds=1.0,
            plain_processes=plain_processes,
            boards=BoardSettings(node_port_host="127.0.0.1", yields=True),
        )
