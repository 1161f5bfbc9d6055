"""``trainyard crds``: the CustomResourceDefinitions that a cluster needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from trainyard.schema.server_version import Version, parse


class _Version(click.ParamType[Version]):
    """`1.27`, or as servers print it: `v1.27.3+k3s1`; the value is `(1, 27)`."""

    name = "version"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Version:
        if (found := parse(str(value))) is None:
            self.fail(f"{value!r} is not a version of Kubernetes; write it like 1.27", param, ctx)
        return found


def kubernetes_version(command: Callable[..., None]) -> Callable[..., None]:
    """Adds `--kubernetes-version`; None stands for a current server."""
    return click.option(
        "--kubernetes-version",
        "server",
        type=_Version(),
        metavar="VERSION",
        help="Leave out what a server of this version does not know. By default it is current.",
    )(command)


@click.command()
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Only this kind; may be repeated. Defaults to all.",
)
@kubernetes_version
def command(kinds: tuple[str, ...], server: Version | None) -> None:
    """Print the CustomResourceDefinitions as YAML, for `kubectl apply --server-side -f -`."""
    import yaml

    from trainyard.kinds import server_compatibility
    from trainyard.kinds.kind_registry import KINDS
    from trainyard.schema.problems import suggest

    for kind in kinds:
        if kind not in KINDS:
            near = suggest(kind, tuple(KINDS))
            hint = f"did you mean {near}?" if near else f"known are: {', '.join(KINDS)}"
            raise click.BadParameter(f"unknown kind '{kind}'; {hint}")
    chosen = server_compatibility.crds_for(kinds or KINDS, server)
    click.echo(yaml.dump_all(chosen, Dumper=yaml.CSafeDumper, sort_keys=False, width=100), nl=False)
