"""``trainyard crds``: the CustomResourceDefinitions that a cluster needs."""

from __future__ import annotations

import click

from trainyard.cli.kubernetes_version import kubernetes_version


@click.command()
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Only this kind; may be repeated. Defaults to all.",
)
@kubernetes_version
def command(kinds: tuple[str, ...], server: tuple[int, int] | None) -> None:
    """Print the CustomResourceDefinitions as YAML, for `kubectl apply --server-side -f -`."""
    import yaml

    from trainyard.kinds import crds
    from trainyard.kinds.table import KINDS
    from trainyard.schema.problems import suggest

    for kind in kinds:
        if kind not in KINDS:
            hint = suggest(kind, tuple(KINDS)) or ", ".join(KINDS)
            raise click.BadParameter(f"unknown kind '{kind}'; did you mean {hint}?")
    chosen = crds.crds_for(kinds or KINDS, server)
    click.echo(yaml.dump_all(chosen, Dumper=yaml.CSafeDumper, sort_keys=False, width=100), nl=False)
