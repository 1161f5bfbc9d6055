"""Settings of jobs that an administrator tunes. What a user decides is in the job's spec."""

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
    """The image of those whose spec names none."""
    node_port_host: str = ""
    """The host on which node ports are reached: Services then have one, and URLs in the status
    use it. "": Services have an address inside the cluster only."""
    yields: bool = False
    """Limit CPU and memory as the spec says, but request none: a viewer must not keep a job off a
    machine that is just large enough for it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of all jobs; durations are in seconds.

    The defaults suit a Kubernetes cluster. `local()` gives those of an embedded one, where a pod
    starts in milliseconds and a user is watching.
    """

    master_port: int = 29500
    ssh_port: int = 2222
    """The port of sshd in pods of kinds that launch over ssh. It is above 1023, so that images that
    do not run as root may listen on it."""
    gang_backend: GangBackend = GangBackend.T9K
    pod_groups_version: str = ""
    """The version of Kubernetes' own PodGroups in the cluster; "": the newest that is known."""
    priority_classes: tuple[str, ...] = ()
    """`50=urgent`: the class of jobs with a priority of at least 50, for schedulers that know
    classes only (decision 175)."""
    backoff_base_seconds: float = 10.0
    backoff_max_seconds: float = 360.0
    backoff_reset_seconds: float = 600.0
    """A replica that stayed healthy this long starts again with the shortest delay."""
    incident_settle_seconds: float = 2.0
    """Failures this close together have one cause; under ExitCode all of them are judged
    (decision 54)."""
    resize_grace_seconds: float = 90.0
    """For so long after replicas joined or left, a failure of the others may be a consequence
    (decision 94)."""
    force_delete_seconds: float = 300.0
    """A pod that is still terminating this long after its grace period is deleted by force
    (decision 26)."""
    refusal_base_seconds: float = 1.0
    refusal_max_seconds: float = 60.0
    """Delay before a refused creation is tried again; doubles from base to max (decision 26)."""
    elastic_settle_seconds: float = 30.0
    """How long an elastic job that launches over ssh waits for more workers before it launches
    (decision 31)."""
    launch_probe_seconds: int = 10
    """Period of the startup probe of a launch over ssh (decision 100)."""
    plain_processes: bool = False
    """Pods share this machine's network, without namespaces: addresses stand for names, and all
    pods share the ports (decision 41)."""
    cluster_domain: str = "cluster.local"
    brings_observer: bool = False
    """The node mounts the observer into containers that have its variable, and puts it before
    their PYTHONPATH (decisions 223 and 360)."""
    channel_address: str = ""
    """Host and port at which pods reach the controller; "": no reports (decision 217)."""
    progress_seconds: float = 10.0
    """How often a status is written only because pods report progress."""
    boards: BoardSettings = field(default_factory=BoardSettings)

    def priority_class_of(self, priority: int) -> str:
        """The class of the highest mapped priority that is not above this one; "" if none is."""
        found = (each.partition("=") for each in self.priority_classes)
        fits = ((int(low), name) for low, _, name in found if int(low) <= priority)
        return max(fits, default=(0, ""))[1]

    @classmethod
    def local(cls, *, plain_processes: bool = False) -> Settings:
        """The settings of an embedded cluster on one machine."""
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
