"""Finds the options of a user that the cluster which is already up does not have (decision 156)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from trainyard.composition.cluster_shape import ClusterShape
from trainyard.embedded.scheduler.resource_requests import amount
from trainyard.machine.state_folder import RunningCluster
from trainyard.machine.users import NOBODY_ELSE, AllowList
from trainyard.schema.errors import TrainyardError


def check_options(
    found: RunningCluster,
    options: ClusterShape,
    port: int = 0,
    allowed: AllowList = NOBODY_ELSE,
) -> None:
    """Raise TrainyardError if the user asked for something that this cluster does not have."""
    differences = [*lacking_options(found, options), *_access(found, port, allowed)]
    if not differences:
        return
    is_claim = any(text.startswith(("--volume", "--image")) for text in differences)
    hint = "; or `trainyard submit --volume … --image …` adds these to it" if is_claim else ""
    raise TrainyardError(
        f"the cluster is up already (process {found.pid}), without {', '.join(differences)}: "
        f"to change it, `trainyard down`, which ends its jobs' replicas, and `up` again{hint}"
    )


def lacking_options(found: RunningCluster, options: ClusterShape) -> list[str]:
    """The options that this cluster does not have, as they are typed."""
    return [*_missing(found, options), *_limits(found, options)]


def _missing(found: RunningCluster, options: ClusterShape) -> Iterator[str]:
    current = found.settings
    volumes, resources = current.get("volumes", {}), current.get("resources", {})
    pairs = [f"{pattern}={folder}" for pattern, folder in current.get("images", [])]
    wanted = [f"{pattern}={folder}" for pattern, folder in options.images]
    claims = [f"{c}={folder}" for c, folder in options.volumes.items() if volumes.get(c) != folder]
    pretended = [
        f"{name}={text}"
        for name, text in options.resources.items()
        if resources.get(name) != amount(name, text)
    ]
    for option, values in (
        ("--volume", claims),
        ("--image", [pair for pair in wanted if pair not in pairs]),
        ("--pass-env", [name for name in options.passed if name not in current.get("passed", [])]),
        ("--resource", pretended),
    ):
        yield from (f"{option} {shlex.quote(value)}" for value in values)
    if options.is_strict and not current.get("is_strict"):
        yield "--strict-scheduling"


def _limits(found: RunningCluster, options: ClusterShape) -> Iterator[str]:
    current, defaults = found.settings, ClusterShape()
    is_plain = found.isolation == "plain"
    if options.isolation != "auto" and (options.isolation == "plain") != is_plain:
        yield f"--isolation {options.isolation}"
    if options.network == "none" and current.get("is_network_open"):
        yield "--network none"
    for port in sorted(set(options.allowed_ports) - set(current.get("allowed_ports", ()))):
        yield f"--allow-port {port}"
    for option, wanted, default, actual in (
        ("--pids-limit", options.pids_limit, defaults.pids_limit, current.get("pids_limit")),
        ("--log-max-size", options.log_max_size, defaults.log_max_size, current.get("log_size")),
        (
            "--log-max-files",
            options.log_max_files,
            defaults.log_max_files,
            current.get("log_files"),
        ),
    ):
        if wanted not in (default, actual):
            yield f"{option} {wanted}"


def _access(found: RunningCluster, port: int, allowed: AllowList) -> Iterator[str]:
    if port not in (0, found.port):
        yield f"--port {port}"
    for option, wanted, key in (
        ("--allow-user", allowed.users, "users"),
        ("--allow-group", allowed.groups, "groups"),
    ):
        if not wanted <= set(found.settings.get(key, [])):
            yield f"all of {option}"
