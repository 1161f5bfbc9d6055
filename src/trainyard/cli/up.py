"""`trainyard up`: the embedded cluster as a background process.

The process forks before anything heavy is imported, so that the shim, forked in turn, stays small
and the cluster is ready in a fraction of a second.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

import click

from trainyard.api.shape import ClusterShape
from trainyard.cli import in_force
from trainyard.cli.boundary import expected_error
from trainyard.cli.options import cluster_options
from trainyard.embedded import rlimits
from trainyard.embedded.tls_files import TlsFiles
from trainyard.machine.state_folder import FAILED, Paths, RunningCluster, find_cluster, state_folder
from trainyard.machine.users import NOBODY_ELSE, AllowList, gid_of, uid_of
from trainyard.schema.errors import TrainyardError

if TYPE_CHECKING:
    from trainyard.embedded.cluster import Cluster

_READY = b"ready"
_BUSY = b"another one is just starting or ending in this folder"
_TOLD, _MOST_LETTERS = 20, 500
"""Damaged objects of which `up` tells, and how much of each."""
_OTHER_SECONDS = 5.0


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
        found = ensure_up(options, port=port, allowed=allowed)
        click.echo(f"the cluster is up: process {found.pid}, isolation {found.isolation}")
    else:
        in_force.check(found, options, port, allowed)
        click.echo(f"the cluster is already up: process {found.pid}")
    if found.is_ours:
        click.echo(f"for kubectl: export KUBECONFIG={Paths(state_folder()).kubeconfig}")


def _allow_list(users: tuple[str, ...], groups: tuple[str, ...]) -> AllowList:
    """Who else may use the cluster; CommandError where that cannot be."""
    if not (users or groups):
        return AllowList()
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


def ensure_up(
    options: ClusterShape,
    *,
    port: int = 0,
    allowed: AllowList = NOBODY_ELSE,
    is_apart: bool = False,
) -> RunningCluster:
    """The cluster that is up, started if need be; TrainyardError with the reason if it cannot.

    `is_apart`: its controller gets a process of its own.
    """
    if (found := find_cluster()) is not None:
        return found
    rlimits.check_rlimits()
    paths = Paths(state_folder())
    paths.prepare()
    if any(allowed):
        paths.share()
    reader, writer = os.pipe()
    tls_reader, tls_writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    if not os.fork():
        os.close(reader)
        os.close(tls_writer)
        shape = _Background(paths, options, port, allowed, is_apart, writer, tls_reader)
        _become_background(shape)
    os.close(writer)
    os.close(tls_reader)
    _send_certificates(paths, tls_writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    found = find_cluster(paths.folder)
    if answer == _BUSY and (found := found or _await_other(paths)) is not None:
        return found
    state, _, warnings = answer.partition(b"\n")
    if state != _READY or found is None:
        reason = answer.decode(errors="replace") or f"it ended at once; see {paths.log}"
        raise TrainyardError(f"cannot start the cluster: {reason}")
    for line in warnings.decode(errors="replace").splitlines():
        click.echo(f"warning: {line}", err=True)
    return found


def _await_other(paths: Paths) -> RunningCluster | None:
    """The cluster that another command is just starting in the folder; None if none comes up."""
    patience = time.monotonic() + _OTHER_SECONDS
    while (found := find_cluster(paths.folder)) is None and time.monotonic() < patience:
        time.sleep(0.05)
    return found


def _send_certificates(paths: Paths, pipe: int) -> None:
    """Make them here, where there is nothing to do but wait, while the other process imports."""
    with suppress(TrainyardError, OSError), os.fdopen(pipe, "w") as answer:
        from trainyard.embedded.apiserver.auth import certificates  # imports a slow library

        answer.write(json.dumps(asdict(certificates.ensure(paths.certificates))))


def _receive_certificates(pipe: int) -> TlsFiles | None:
    with os.fdopen(pipe) as answer:
        text = answer.read()
    return TlsFiles(**json.loads(text)) if text else None


class _Background(NamedTuple):
    """What a background process is to serve; `ready` and `tls` are pipes, to tell that it does and
    for the certificates."""

    paths: Paths
    options: ClusterShape
    port: int
    allowed: AllowList
    is_apart: bool
    ready: int
    tls: int


def _become_background(wanted: _Background) -> None:
    """The rest of the background process's life; never returns."""
    paths, options, ready = wanted.paths, wanted.options, wanted.ready
    code = 1
    try:
        os.setsid()
        gc.disable()  # imports make nothing but lasting objects; `serve` turns it on again
        _redirect(paths)
        lock = os.open(paths.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise TrainyardError(_BUSY.decode()) from error
        from trainyard.embedded.node.shim_process import start_shim

        shim = start_shim(paths.folder, isolation=options.isolation, die_with_parent=False)
        from trainyard.cli.embedded import serve

        serve(
            paths,
            options,
            wanted.port,
            shim,
            allowed=wanted.allowed,
            tls=lambda: _receive_certificates(wanted.tls),
            on_ready=lambda cluster: _answer(ready, b"\n".join([_READY, *_damage(cluster)])),
            is_apart=wanted.is_apart,
        )
        code = 0
    except BaseException as error:
        expected = expected_error(error)
        if expected is None:
            import traceback

            traceback.print_exc()
        text = str(expected or f"{type(error).__name__}: {error}; see {paths.log}")
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} the cluster{FAILED}{text}", file=sys.stderr)
        _answer(ready, text.encode())
    finally:
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(code)


def _redirect(paths: Paths) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    log = os.open(paths.log, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)


def _damage(cluster: Cluster) -> list[bytes]:
    """A line for each stored object that the cluster cannot read."""
    told = [str(corrupt) for corrupt in cluster.registry.corrupt_objects]
    if len(told) > _TOLD:
        told[_TOLD:] = [f"{len(told) - _TOLD} more objects"]
    return [f"{text[:_MOST_LETTERS]}; see trainyard doctor".encode() for text in told]


def _answer(pipe: int, text: bytes) -> None:
    with suppress(OSError):  # answered before, or nobody waits any more
        os.write(pipe, text)
        os.close(pipe)
