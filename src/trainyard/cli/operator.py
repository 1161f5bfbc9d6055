"""`trainyard operator`: the controller against a cluster."""

from __future__ import annotations

import click


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
def command(
    kubeconfig: str | None, context: str | None, namespace: str | None, gang_scheduler: str
) -> None:
    """Look after the jobs of a cluster until interrupted.

    The cluster needs the definitions (trainyard crds). Run one at a time.
    """
    import logging

    import uvloop

    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    uvloop.run(_run(kubeconfig, context, namespace, gang_scheduler))


async def _run(
    kubeconfig: str | None, context: str | None, namespace: str | None, gang_scheduler: str
) -> None:
    from trainyard.kube.client import Client
    from trainyard.operator import controller
    from trainyard.operator.settings import OperatorSettings
    from trainyard.workloads.settings import GangBackend, Settings

    settings = OperatorSettings(
        lifecycle=Settings(gang_backend=GangBackend(gang_scheduler)), namespace=namespace
    )
    async with await Client.from_kubeconfig(kubeconfig, context) as client:
        await controller.run(client, settings)
