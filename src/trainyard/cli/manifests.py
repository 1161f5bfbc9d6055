"""`trainyard manifests`: what a cluster needs to run the operator."""

from __future__ import annotations

import click

from trainyard.cli.crds import kubernetes_version


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
@kubernetes_version
def command(image: str, namespace: str, replicas: int, server: tuple[int, int] | None) -> None:
    """Print definitions, policies, rights and the operator's Deployment as YAML.

    For `kubectl apply --server-side -f -`. Clusters before 1.30 need --kubernetes-version, and
    keep less of a job's spec from being changed: before 1.30 there are no admission policies,
    before 1.25 no rules in the definitions. The operator then ignores such a change, with a
    warning.
    """
    import yaml

    from trainyard.operator import manifests

    objects = manifests.manifests(
        image=image, namespace=namespace, replicas=replicas, server=server
    )
    click.echo(
        yaml.dump_all(objects, Dumper=yaml.CSafeDumper, sort_keys=False, width=100), nl=False
    )
