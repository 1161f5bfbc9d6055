"""The settings of an operator process, as the code uses them; jobs have theirs in their spec."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Literal

from trainyard.kinds.shared.job_settings import Settings
from trainyard.kube.paced_transport import RequestLimits
from trainyard.kube.reflector import Timing
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """How jobs are reconciled; durations are in seconds. Records contain these fields by name."""

    lifecycle: Settings = field(default_factory=Settings)
    namespaces: tuple[str, ...] = ()
    """Reconcile jobs of these namespaces only; empty: of all."""
    namespace_selector: str = ""
    """A label selector: only of namespaces that match."""
    job_selector: str = ""
    """A label selector: only jobs and viewers that match."""
    kinds: tuple[str, ...] = ()
    """Reconcile jobs of these kinds only; empty: of all."""
    has_channel: bool = True
    """Pods report, where there is an address to report to."""
    serves_tensorboards: bool = True
    """False: another controller runs the TensorBoards that jobs create."""
    open_templates: bool = True
    """Pod fields that our schema does not know are left to the server, which may be newer and
    refuses what it does not know itself; False: they make a job invalid."""
    workers: int = 24
    """Jobs that are reconciled at once."""
    parallel_writes: int = 32
    """Writes of one job that may be under way at once."""
    pass_timeout: float = 300.0
    rest_min: float = 0.003
    """The minimum rest of a job between two reconciles, so that one takes in a burst of changes."""
    rest_factor: float = 3.0
    """A reconcile is followed by a rest this many times as long, up to `rest_max`."""
    rest_max: float = 2.0
    retry_min: float = 0.1
    retry_max: float = 60.0
    reflector: Timing = field(default_factory=Timing)

    @classmethod
    def local(cls, lifecycle: Settings) -> OperatorSettings:
        """Those of an embedded cluster, whose server nobody else waits for (decision 349)."""
        return cls(lifecycle=lifecycle, rest_factor=1.0)


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Which Lease, and how it is kept; durations in seconds, client-go's defaults."""

    namespace: str = "default"
    name: str = "trainyard-controller"
    duration: float = 15.0
    """Others wait this long after the last renewal that they saw."""
    renew_deadline: float = 10.0
    """The holder gives up when it could not renew for this long."""
    retry_period: float = 2.0


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """Where the report channel listens."""

    port: int = 7443
    endpoint: str = ""
    """This process's address, to which the channel's Service points while it leads."""


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """All settings of an operator process."""

    operator: OperatorSettings = field(default_factory=OperatorSettings)
    lease: LeaseSettings | None = field(default_factory=LeaseSettings)
    """None: no leader election; this process is the only one."""
    api: RequestLimits = field(default_factory=RequestLimits)
    channel: ChannelSettings = field(default_factory=ChannelSettings)
    host: str = "0.0.0.0"
    port: int = 8080
    """Of `/healthz`, `/readyz` and `/metrics`; 0 picks a free one."""
    metrics_secure: bool = False
    """`/metrics` is served on its own port, over TLS, to users whom the API server allows it."""
    metrics_port: int = 8443
    metrics_certificates: str = ""
    """A folder with `tls.crt` and `tls.key`; empty: the process issues its own."""
    record: Path | None = None
    """The file for the reconcile log (`reconcile_log.py`)."""
    log_level: str = "info"
    log_format: Literal["text", "json"] = "text"
    has_job_series: bool = False
    """Whether `/metrics` has a series for each job, by its name."""


def cluster_domain_of(resolver_configuration: str) -> str:
    """The cluster domain in a pod's resolv.conf; `cluster.local` where there is none.

    A pod's search list is `<namespace>.svc.<domain> svc.<domain> <domain> …`.
    https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/
    """
    for line in resolver_configuration.splitlines():
        keyword, *names = line.split() or [""]
        if keyword == "search":
            for name in names:
                if name.startswith("svc.") and len(name) > len("svc."):
                    return name.removeprefix("svc.").rstrip(".")
    return Settings().cluster_domain
