"""`trainyard manifests`: what a cluster needs to run the operator."""

from __future__ import annotations

from pathlib import Path

import click

from trainyard.cli.commands.crds import kubernetes_version


@click.command()
@click.option(
    "--image", required=True, metavar="IMAGE", help="An image that holds trainyard, to be pulled."
)
@click.option(
    "-n", "--namespace", default="trainyard", show_default=True, help="Where the operator runs."
)
@click.option(
    "--replicas",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Operators that run, of which one works.",
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML with settings of the operator, which it gets. Those about what it looks after "
    "(namespaces, kinds, tensorboards) make its rights smaller.",
)
@kubernetes_version
def command(
    image: str,
    namespace: str,
    replicas: int,
    config: Path | None,
    server: tuple[int, int] | None,
) -> None:
    """Print definitions, policies, rights and the operator's Deployment as YAML.

    For `kubectl apply --server-side -f -`. Clusters before 1.30 need --kubernetes-version, and
    keep less of a job's spec from being changed: before 1.30 there are no admission policies,
    before 1.25 no rules in the definitions. The operator then ignores such a change, with a
    warning.
    """
    from trainyard.composition.operator_manifests import InvalidSettings, operator_manifests

    try:
        text = operator_manifests(
            image, namespace=namespace, replicas=replicas, config=config, server=server
        )
    except InvalidSettings as error:
        raise click.UsageError(str(error)) from error
    click.echo(text, nl=False)
