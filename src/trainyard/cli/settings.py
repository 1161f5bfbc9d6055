"""From the user's options to the settings of an embedded cluster."""

from __future__ import annotations

from trainyard.cli.options import ClusterOptions
from trainyard.kube.embedded import Paths
from trainyard.local.cluster import ClusterSettings
from trainyard.local.scheduler.requests import amount
from trainyard.local.tls import TlsFiles


def cluster_settings(
    options: ClusterOptions,
    paths: Paths,
    *,
    is_durable: bool,
    working_dir: str,
    tls_port: int | None = None,
    preferred_port: int = 0,
    tls: TlsFiles | None = None,
) -> ClusterSettings:
    """Settings for a cluster whose files are in `paths`."""
    return ClusterSettings(
        paths=paths,
        is_durable=is_durable,
        working_dir=working_dir,
        volumes=options.volumes,
        images=options.images,
        resources={name: amount(name, text) for name, text in options.resources.items()},
        is_strict=options.is_strict,
        tls_port=tls_port,
        preferred_port=preferred_port,
        tls=tls,
    )
