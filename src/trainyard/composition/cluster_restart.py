"""Puts this trainyard under the replicas of a cluster that runs in the background."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress

from trainyard.composition.background_cluster import ensure_up
from trainyard.composition.cluster_shape import ClusterShape
from trainyard.composition.cluster_shutdown import end_process
from trainyard.embedded.scheduler.resource_requests import format_amount
from trainyard.embedded.storage.store import FORMAT
from trainyard.machine.ownership import check_folder
from trainyard.machine.state_folder import Paths, RunningCluster
from trainyard.machine.users import AllowList
from trainyard.podruntime import protocol
from trainyard.schema.errors import TrainyardError


def restart_cluster(
    found: RunningCluster, paths: Paths, warn: Callable[[str], None]
) -> RunningCluster:
    """End the cluster but not its pods, and start one with its options that takes them over.

    It is killed: clusters of all versions leave their pods then, and what they have confirmed is
    stored. Raises NotOurs for the folder of another user, and TrainyardError when no cluster
    starts, or where it is known before that none would, which touches nothing.
    """
    check_folder(paths.folder, owner=True)
    _check_formats(found)
    paths.prepare()
    paths.check_formats()
    shape = _shape(found)
    with suppress(OSError):  # a folder that is gone: pods run where this command does
        os.chdir(_working_folder(found))
    allowed = AllowList(*(frozenset(found.settings.get(each, ())) for each in ("users", "groups")))
    end_process(found.pid, (signal.SIGKILL,))
    try:
        return ensure_up(shape, warn, allowed=allowed)
    except TrainyardError as error:
        raise TrainyardError(f"{error}; or go back to {_name(found)}") from error


def _name(found: RunningCluster) -> str:
    return f"trainyard {found.version}" if found.version else "the trainyard that was up"


def _check_formats(found: RunningCluster) -> None:
    """Raise TrainyardError where this trainyard cannot take over what the cluster has."""
    store, wire = (found.formats.get(name) for name in ("store", "wire"))
    if store is not None and store > FORMAT:
        raise TrainyardError(
            f"{_name(found)} is up, which stores objects in a newer format ({store}, this one "
            f"knows {FORMAT}): nothing was changed; upgrade trainyard"
        )
    if wire is not None and wire != protocol.VERSION:
        raise TrainyardError(
            f"{_name(found)} is up, whose pods this one cannot take over (wire version {wire}, "
            f"here {protocol.VERSION}): nothing was changed; once no job runs, "
            "`trainyard down` and `trainyard up`"
        )


def _working_folder(found: RunningCluster) -> str:
    return found.settings.get("working_dir") or os.readlink(f"/proc/{found.pid}/cwd")


def _shape(found: RunningCluster) -> ClusterShape:
    """What the cluster was asked for, as far as it is recorded."""
    chosen, default = found.settings, ClusterShape()
    return ClusterShape(
        volumes=dict(chosen.get("volumes", {})),
        images=tuple((pattern, folder) for pattern, folder in chosen.get("images", ())),
        passed=tuple(chosen.get("passed", ())),
        resources={
            name: format_amount(name, value) for name, value in chosen.get("resources", {}).items()
        },
        is_strict=bool(chosen.get("is_strict")),
        isolation="plain" if found.isolation == "plain" else default.isolation,
        pids_limit=chosen.get("pids_limit"),
        log_max_size=chosen.get("log_size"),
        log_max_files=chosen.get("log_files", default.log_max_files),
        network="open" if chosen.get("is_network_open", True) else "none",
        allowed_ports=tuple(chosen.get("allowed_ports", ())),
    )
