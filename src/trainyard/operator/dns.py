"""The cluster's DNS domain, which the search suffix of a job's pods ends with."""

from __future__ import annotations

DEFAULT_DOMAIN = "cluster.local"


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
    return DEFAULT_DOMAIN
