"""Ends an embedded cluster that runs in the background."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress

from trainyard.embedded.node.pod_runtime_process import PodRuntimeGone, find_pod_runtime
from trainyard.machine import folder_lock
from trainyard.machine.ownership import FolderLost, check_folder
from trainyard.machine.state_folder import Paths, find_cluster
from trainyard.podruntime.wire import SOCKET_NAME
from trainyard.schema.errors import TrainyardError

_END_SECONDS = 15.0


def end_cluster(paths: Paths) -> bool:
    """End the cluster of a state folder with all that runs in it; return whether there was one.

    Raises NotOurs for the folder of another user, FolderLost where none can be found in it, and
    TrainyardError when the process does not end.
    """
    try:
        found = find_cluster(paths.folder)
        check_folder(paths.folder, owner=True)
    except FolderLost:
        if _end_lost_pod_runtime(paths):
            return True
        raise
    if found is not None:
        end_process(found.pid)
    # A cluster that was killed leaves its replicas to the shim.
    had_pod_runtime = _end_pod_runtime(paths)
    with suppress(IsADirectoryError):
        paths.record.unlink(missing_ok=True)
    return found is not None or had_pod_runtime or _end_lost_pod_runtime(paths)


def end_process(
    pid: int, signals: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGKILL)
) -> None:
    """Send one signal after the other until the process has ended; raises TrainyardError."""
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            for number in signals:
                signal.pidfd_send_signal(process, number)
                signal.pidfd_send_signal(process, signal.SIGCONT)  # it may be stopped
                if select.select([process], [], [], _END_SECONDS)[0]:
                    return
        finally:
            os.close(process)
        raise TrainyardError(f"process {pid} of the cluster does not end, even when killed")


def _end_lost_pod_runtime(paths: Paths) -> bool:
    """End a shim whose files were removed from the folder, and with it the cluster that it has."""
    pid = folder_lock.holder(paths.folder)
    if pid > 0:
        end_process(pid)
    return pid > 0


def _end_pod_runtime(paths: Paths) -> bool:
    """End the shim with all its pods; return whether there was one."""
    socket_path = paths.folder / SOCKET_NAME
    if not socket_path.exists():
        return False
    pod_runtime = find_pod_runtime(paths.folder)
    if pod_runtime is not None:  # else it is a stale socket
        with suppress(PodRuntimeGone):  # the cluster may have ended it already
            pod_runtime.ready()
        pod_runtime.kill()
    with suppress(IsADirectoryError):
        socket_path.unlink(missing_ok=True)
    return pod_runtime is not None
