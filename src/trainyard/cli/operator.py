"""`trainyard operator`: the controller against a cluster."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainyard.schema.errors import TrainyardError

if TYPE_CHECKING:
    from trainyard.operator.election import LeaseSettings
    from trainyard.operator.service import ServiceSettings


@click.command()
@click.option("--kubeconfig", metavar="FILE", help="By default what kubectl would use.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@click.option("-n", "--namespace", metavar="NAME", help="Look after this namespace only.")
@click.option(
    "--gang-scheduler",
    type=click.Choice(["none", "t9k", "volcano", "scheduler-plugins", "kueue"]),
    default="none",
    show_default=True,
    help="What places the pods of jobs with scheduler.t9kScheduler all or none.",
)
@click.option(
    "--cluster-domain",
    metavar="DOMAIN",
    help="Of the cluster's DNS. By default that of this pod's resolv.conf, else cluster.local.",
)
@click.option(
    "--tensorboards/--no-tensorboards",
    "serves_tensorboards",
    default=True,
    show_default=True,
    help="Whether to serve TensorBoards; no: another controller of the cluster does.",
)
@click.option("--tensorboard-image", metavar="IMAGE", help="For TensorBoards that name none.")
@click.option(
    "--leader-elect/--no-leader-elect",
    default=True,
    show_default=True,
    help="Whether several may run, of which one works.",
)
@click.option(
    "--lease-namespace",
    metavar="NAME",
    help="Where the Lease is kept. By default the namespace that is looked after, else that of "
    "this pod or, outside a cluster, default.",
)
@click.option(
    "--lease-name",
    metavar="NAME",
    help="By default trainyard-controller, with -n followed by that namespace.",
)
@click.option(
    "--record",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Keep what every pass saw, decided and did; at 32 MiB the file becomes FILE.1.",
)
@click.option("--host", default="0.0.0.0", show_default=True, help="Address of the endpoints.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port of /healthz, /readyz and /metrics; 0 picks a free one.",
)
def command(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    gang_scheduler: str,
    cluster_domain: str | None,
    serves_tensorboards: bool,
    tensorboard_image: str | None,
    leader_elect: bool,
    lease_namespace: str | None,
    lease_name: str | None,
    record: Path | None,
    host: str,
    port: int,
) -> None:
    """Look after the jobs of a cluster until interrupted.

    The cluster needs the definitions (trainyard crds). A record holds the specs of jobs, what
    their environment says among it, but nothing of Secrets and ConfigMaps.
    """
    import logging

    _check_extra()
    import uvloop

    from trainyard.kinds.shared.settings import BoardSettings, GangBackend, Settings
    from trainyard.operator.service import ServiceSettings
    from trainyard.operator.settings import OperatorSettings, cluster_domain_of

    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    lifecycle = Settings(
        gang_backend=GangBackend(gang_scheduler),
        cluster_domain=cluster_domain or cluster_domain_of(_resolver_configuration()),
        boards=BoardSettings(image=tensorboard_image) if tensorboard_image else BoardSettings(),
    )
    operator = OperatorSettings(
        lifecycle=lifecycle, namespace=namespace, serves_tensorboards=serves_tensorboards
    )
    settings = ServiceSettings(
        operator=operator,
        lease=_lease(namespace, lease_namespace, lease_name) if leader_elect else None,
        host=host,
        port=port,
        record=record,
    )
    uvloop.run(_run(kubeconfig, context, settings))


def _lease(namespace: str | None, where: str | None, name: str | None) -> LeaseSettings:
    """Operators of different namespaces must not share a Lease, wherever it is kept."""
    from trainyard.kube.credentials import own_namespace
    from trainyard.operator.election import LeaseSettings

    known = LeaseSettings()
    scoped = f"{known.name}-{namespace}" if namespace else known.name
    place = where or namespace or own_namespace() or known.namespace
    return LeaseSettings(namespace=place, name=name or scoped)


def _check_extra() -> None:
    for name in ("uvloop", "prometheus_client"):
        if find_spec(name) is None:
            raise TrainyardError(
                f"the operator needs {name}, which is not installed here: pip install "
                "'trainyard[operator]' (on Windows, in WSL 2)"
            )


def _resolver_configuration() -> str:
    try:
        return Path("/etc/resolv.conf").read_text(errors="replace")
    except OSError:
        return ""


async def _run(kubeconfig: str | None, context: str | None, settings: ServiceSettings) -> None:
    import asyncio
    import signal

    from trainyard.kube.client import Client
    from trainyard.operator.service import Service

    async with (
        await Client.from_kubeconfig(kubeconfig, context) as client,
        await Client.from_kubeconfig(kubeconfig, context) as lease_client,
    ):
        service = Service(client, settings, lease_client=lease_client)
        serving = asyncio.ensure_future(service.run())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            # Ending in order hands the Lease over at once.
            loop.add_signal_handler(number, serving.cancel)
        await asyncio.wait([serving])
        if not serving.cancelled():
            serving.result()
