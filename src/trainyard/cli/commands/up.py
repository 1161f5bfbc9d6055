"""`trainyard up`: the embedded cluster as a background process."""

from __future__ import annotations

import os

import click

from trainyard.cli.options import cluster_options
from trainyard.composition import cluster_option_mismatch
from trainyard.composition.background_cluster import ensure_up
from trainyard.composition.cluster_shape import ClusterShape
from trainyard.machine.ownership import check_runs
from trainyard.machine.state_folder import Paths, RunningCluster, find_cluster, state_folder
from trainyard.machine.users import NOBODY_ELSE, AllowList, gid_of, uid_of
from trainyard.schema.errors import TrainyardError
from trainyard.version import installed_version


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Loopback port for kubectl; by default the one used last, else any that is free.",
)
@click.option(
    "--allow-user",
    "users",
    multiple=True,
    metavar="NAME",
    help="Let this user of the machine use the cluster too; needs root. Repeatable.",
)
@click.option(
    "--allow-group",
    "groups",
    multiple=True,
    metavar="NAME",
    help="Let the users of this group do so. Repeatable.",
)
@cluster_options
def command(
    port: int, users: tuple[str, ...], groups: tuple[str, ...], options: ClusterShape
) -> None:
    """Start the embedded cluster in the background and wait until it is ready.

    Without --allow-user and --allow-group it is for the user who starts it alone. Others run pods
    under their own user, each in a namespace of their own. Where a cluster is up already that lacks
    what is asked for, nothing changes and the exit code is 1.
    """
    allowed = _allow_list(users, groups)
    found = find_cluster()
    if found is None:
        found = bring_up(options, port=port, allowed=allowed)
        click.echo(f"the cluster is up: process {found.pid}, isolation {found.isolation}")
    else:
        check_runs(found.pid)
        cluster_option_mismatch.check_options(found, options, port, allowed)
        click.echo(f"the cluster is already up: process {found.pid}{_other_version(found)}")
    if found.is_ours:
        click.echo(f"for kubectl: export KUBECONFIG={Paths(state_folder()).kubeconfig}")


def _other_version(found: RunningCluster) -> str:
    ours = installed_version()
    if found.version == ours:
        return ""
    theirs = f"trainyard {found.version}" if found.version else "an earlier trainyard"
    return (
        f", of {theirs}; this is {ours}: `trainyard restart` puts it under the jobs, whose "
        "replicas run on"
    )


def bring_up(
    options: ClusterShape, *, port: int = 0, allowed: AllowList = NOBODY_ELSE
) -> RunningCluster:
    """Return the cluster that is up, started if none is; warnings go to standard error."""
    return ensure_up(options, _warn, port=port, allowed=allowed)


def _warn(text: str) -> None:
    click.echo(f"warning: {text}", err=True)


def _allow_list(users: tuple[str, ...], groups: tuple[str, ...]) -> AllowList:
    """Who else may use the cluster; raises TrainyardError for names that nobody has."""
    if not (users or groups):
        return NOBODY_ELSE
    if os.geteuid() != 0:
        raise TrainyardError(
            "only root can let others use a cluster, since their pods run under their own users: "
            "start it as root, with TRAINYARD_STATE_DIR=/var/lib/trainyard"
        )
    for what, names, id_of in (("user", users, uid_of), ("group", groups, gid_of)):
        for name in names:
            if id_of(name) is None:
                raise TrainyardError(f"there is no {what} {name} on this machine")
    return AllowList(
        frozenset(uid for name in users if (uid := uid_of(name)) is not None),
        frozenset(gid for name in groups if (gid := gid_of(name)) is not None),
    )
