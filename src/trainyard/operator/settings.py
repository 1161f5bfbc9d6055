"""What an operator process may tune; what a job decides is in its spec."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainyard.kinds.shared.settings import Settings
from trainyard.kube.reflector import Timing


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """Durations are in seconds."""

    lifecycle: Settings = field(default_factory=Settings)
    namespace: str | None = None
    """Look after the jobs of this namespace only; None: of all."""
    serves_tensorboards: bool = True
    """False: another controller runs the TensorBoards that jobs create."""
    open_templates: bool = True
    """Pod fields that our schema does not know are left to the server, which may be newer and
    refuses what it does not know itself; False: they make a job invalid."""
    workers: int = 16
    """Jobs that may be worked on at once."""
    parallel_writes: int = 32
    """Writes of one job that may be under way at once."""
    pass_timeout: float = 300.0
    rest_min: float = 0.003
    """The least time between two passes of a job, so that one pass takes in a burst of changes."""
    rest_factor: float = 3.0
    """A pass that took long is followed by a rest this many times as long."""
    rest_max: float = 2.0
    retry_min: float = 0.1
    retry_max: float = 60.0
    reflector: Timing = field(default_factory=Timing)


def cluster_domain_of(resolver_configuration: str) -> str:
    """The domain that a pod's resolv.conf names; `cluster.local` where it names none.

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
