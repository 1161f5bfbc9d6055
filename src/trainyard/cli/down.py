"""`trainyard down`: end the background cluster, and every process it started."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress

import click

from trainyard.embedded.node.shim_process import ShimGone, start_shim
from trainyard.machine.ownership import check_folder
from trainyard.machine.state_folder import Paths, find_cluster, state_folder
from trainyard.podruntime.wire import SOCKET_NAME
from trainyard.schema.errors import TrainyardError

_END_SECONDS = 15.0


@click.command()
def command() -> None:
    """End the embedded cluster and everything that runs in it."""
    paths = Paths(state_folder())
    if not end(paths):
        raise TrainyardError(f"no cluster is up in {paths.folder}; start one with: trainyard up")
    click.echo("the cluster is down")


def end(paths: Paths) -> bool:
    """End the cluster of a folder with all that runs in it; whether there was one."""
    found = find_cluster(paths.folder)
    check_folder(paths.folder, owner=True)
    if found is not None:
        _end(found.pid)
    # A cluster that was killed leaves its replicas to the shim.
    had_shim = _end_shim(paths)
    paths.record.unlink(missing_ok=True)
    return found is not None or had_shim


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):
                signal.pidfd_send_signal(process, number)
                if select.select([process], [], [], _END_SECONDS)[0]:
                    return
        finally:
            os.close(process)
        raise TrainyardError(f"process {pid} of the cluster does not end, even when killed")


def _end_shim(paths: Paths) -> bool:
    """Whether there was one; it ends with all its pods."""
    if not (paths.folder / SOCKET_NAME).exists():
        return False
    shim = start_shim(paths.folder, die_with_parent=False)
    if not shim.adopted:  # only a stale socket was there
        shim.kill()
        (paths.folder / SOCKET_NAME).unlink(missing_ok=True)
        return False
    with suppress(ShimGone):  # the cluster had told it to end
        shim.ready()
    shim.kill()
    (paths.folder / SOCKET_NAME).unlink(missing_ok=True)
    return True
