"""Starts the embedded cluster as a background process.

The process forks before anything heavy is imported, so that the shim, forked in turn, stays small
and the cluster is ready in a fraction of a second.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

from trainyard.composition.cluster_shape import ClusterShape
from trainyard.composition.expected_errors import expected_error
from trainyard.embedded.tls_files import TlsFiles
from trainyard.machine import rlimits
from trainyard.machine.ownership import check_runs
from trainyard.machine.state_folder import (
    FAILED,
    FOLDER_BUSY,
    Paths,
    RunningCluster,
    find_cluster,
    state_folder,
    why_cluster_is_down,
)
from trainyard.machine.users import NOBODY_ELSE, AllowList
from trainyard.schema.errors import TrainyardError
from trainyard.version import installed_version

if TYPE_CHECKING:
    from trainyard.embedded.cluster import Cluster
    from trainyard.embedded.node.pod_runtime_process import PodRuntimeHandle

_READY = b"ready"
_MAX_WARNINGS, _MAX_WARNING_LETTERS = 20, 500
"""How many damaged objects are reported, and how much of each."""
_OTHER_START_SECONDS = 5.0


def ensure_up(
    shape: ClusterShape,
    warn: Callable[[str], None],
    *,
    port: int = 0,
    allowed: AllowList = NOBODY_ELSE,
    separate_controller: bool = False,
) -> RunningCluster:
    """Return the cluster that is up, and start it if none is.

    `warn` gets a line for each stored object that the new cluster cannot read. With
    `separate_controller` its controller gets a process of its own. Raises TrainyardError with the
    reason when the cluster cannot start.
    """
    if (found := find_cluster()) is not None:
        check_runs(found.pid)
        return found
    rlimits.check_rlimits()
    paths = Paths(state_folder())
    paths.prepare()
    paths.check_formats()
    if any(allowed):
        paths.share()
    reader, writer = os.pipe()
    tls_reader, tls_writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    if not os.fork():
        os.close(reader)
        os.close(tls_writer)
        _become_background(
            _Background(paths, shape, port, allowed, separate_controller, writer, tls_reader)
        )
    os.close(writer)
    os.close(tls_reader)
    _send_certificates(paths, tls_writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    found = find_cluster(paths.folder)
    if answer == FOLDER_BUSY.encode():
        if (found := found or _await_other(paths)) is not None:
            return found
        answer = why_cluster_is_down(paths).encode() or answer
    state, _, warnings = answer.partition(b"\n")
    if state != _READY or found is None:
        reason = answer.decode(errors="replace") or f"it ended at once; see {paths.log}"
        raise TrainyardError(f"cannot start the cluster: {reason}")
    for line in warnings.decode(errors="replace").splitlines():
        warn(line)
    return found


def _await_other(paths: Paths) -> RunningCluster | None:
    """Wait for the cluster that another command is just starting; None if it does not come up."""
    deadline = time.monotonic() + _OTHER_START_SECONDS
    while (found := find_cluster(paths.folder)) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _send_certificates(paths: Paths, pipe: int) -> None:
    """Make the certificates here, where there is nothing to do but wait, while the background
    process imports."""
    with suppress(TrainyardError, OSError), os.fdopen(pipe, "w") as answer:
        from trainyard.embedded.apiserver.auth import certificates  # imports a slow library

        answer.write(json.dumps(asdict(certificates.ensure(paths.certificates))))


def _receive_certificates(pipe: int) -> TlsFiles | None:
    with os.fdopen(pipe) as answer:
        text = answer.read()
    return TlsFiles(**json.loads(text)) if text else None


class _Background(NamedTuple):
    """What the background process needs. `ready` is the pipe on which it reports its start, `tls`
    the one from which it reads the certificates."""

    paths: Paths
    shape: ClusterShape
    port: int
    allowed: AllowList
    separate_controller: bool
    ready: int
    tls: int


def _become_background(wanted: _Background) -> None:
    """Serve the cluster in this process, which has just been forked; never returns."""
    paths, ready = wanted.paths, wanted.ready
    code = 1
    pod_runtime: PodRuntimeHandle | None = None
    try:
        os.setsid()
        gc.disable()  # imports make only lasting objects; `serve` turns it on again
        _redirect_output(paths)
        paths.take_lock()
        from trainyard.embedded.node.pod_runtime_process import start_pod_runtime

        isolation = wanted.shape.isolation
        version = installed_version()
        pod_runtime = start_pod_runtime(
            paths.folder, isolation=isolation, die_with_parent=False, build=version
        )
        from trainyard.composition.embedded_cluster import serve

        serve(
            paths,
            wanted.shape,
            wanted.port,
            pod_runtime,
            version,
            allowed=wanted.allowed,
            receive_tls=lambda: _receive_certificates(wanted.tls),
            on_ready=lambda cluster: _report(ready, b"\n".join([_READY, *_warnings(cluster)])),
            separate_controller=wanted.separate_controller,
        )
        code = 0
    except BaseException as error:
        expected = expected_error(error)
        if expected is None:
            import traceback

            traceback.print_exc()
        text = str(expected or f"{type(error).__name__}: {error}; see {paths.log}")
        if pod_runtime is not None and pod_runtime.keeps_pods:
            text += "; replicas that run go on, for a cluster that can take them over"
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} the cluster{FAILED}{text}", file=sys.stderr)
        _report(ready, text.encode())
    finally:
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(code)


def _redirect_output(paths: Paths) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    log = os.open(paths.log, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)


def _warnings(cluster: Cluster) -> list[bytes]:
    """A line for each stored object that the cluster cannot read."""
    damaged = [str(each) for each in cluster.registry.corrupt_objects]
    if len(damaged) > _MAX_WARNINGS:
        damaged[_MAX_WARNINGS:] = [f"{len(damaged) - _MAX_WARNINGS} more objects"]
    return [f"{text[:_MAX_WARNING_LETTERS]}; see trainyard doctor".encode() for text in damaged]


def _report(pipe: int, text: bytes) -> None:
    with suppress(OSError):  # reported before, or nobody waits any more
        os.write(pipe, text)
        os.close(pipe)
