"""`trainyard scale`: change the size of an elastic job while it trains."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from trainyard.cli import completion
from trainyard.cli.target import on_target
from trainyard.client.jobs import JOB_HELP, Found, find
from trainyard.client.target import CommandError, Target, Where


@click.command(
    help="Change how many replicas an elastic job should have.\n\n"
    "This sets `spec.elastic.expectedReplicas`; the job runs with as many as fit, from "
    f"`minReplicas` up.\n\n{JOB_HELP}"
)
@on_target
@click.option("--replicas", type=int, required=True, metavar="N", help="The new size.")
@click.argument("job", shell_complete=completion.jobs)
def command(where: Where, job: str, replicas: int) -> None:
    """Change the size of an elastic job."""
    where.run(partial(_scale, name=job, replicas=replicas))


async def _scale(target: Target, *, name: str, replicas: int) -> None:
    job = await find(target, name)
    before = check(job, replicas)
    if before == replicas:
        click.echo(f"{job} is to have {replicas} replicas already")
        return
    patch = {"spec": {"elastic": {"expectedReplicas": replicas}}}
    await target.client.patch(job.resource, job.name, patch, job.namespace)
    click.echo(f"{job} scaled from {'?' if before is None else before} to {replicas} replicas")


def check(job: Found, replicas: int) -> int | None:
    """The present size, where it is known; CommandError when the job cannot have the new one."""
    elastic: dict[str, Any] = (job.obj.get("spec") or {}).get("elastic") or {}
    if not job.kind.elastic:
        raise CommandError(
            f"{job} cannot be scaled: a {job.kind.kind} is never elastic; "
            "create the job anew with other replicas"
        )
    if not elastic.get("enabled", elastic.get("enable")):
        raise CommandError(
            f"{job} cannot be scaled: it is not elastic; create it anew with spec.elastic.enabled"
        )
    if job.is_over:
        raise CommandError(f"{job} cannot be scaled: it has ended ({job.phase})")
    least, most = elastic.get("minReplicas", 1), elastic.get("maxReplicas")
    if replicas < least or (most is not None and replicas > most):
        raise CommandError(
            f"{job} cannot have {replicas} replicas: spec.elastic allows {least} to {most}"
        )
    return elastic.get("expectedReplicas")
