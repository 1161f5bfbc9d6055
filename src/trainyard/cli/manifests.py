"""`trainyard manifests`: what a cluster needs to run the operator."""

from __future__ import annotations

import click


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
def command(image: str, namespace: str, replicas: int) -> None:
    """Print definitions, policies, rights and the operator's Deployment as YAML.

    For `kubectl apply --server-side -f -`. The policies need Kubernetes 1.30 or newer.
    """
    import yaml

    from trainyard.operator import manifests

    objects = manifests.manifests(image=image, namespace=namespace, replicas=replicas)
    click.echo(
        yaml.dump_all(objects, Dumper=yaml.CSafeDumper, sort_keys=False, width=100), nl=False
    )
