"""Which of a user's options the cluster that is up does not have (decision 156)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from trainyard.api.shape import ClusterShape
from trainyard.embedded.scheduler.resource_requests import amount
from trainyard.machine.state_folder import RunningCluster
from trainyard.machine.users import NOBODY_ELSE, AllowList
from trainyard.schema.errors import TrainyardError


def check(
    found: RunningCluster,
    options: ClusterShape,
    port: int = 0,
    allowed: AllowList = NOBODY_ELSE,
) -> None:
    """Raise TrainyardError where something was said that does not hold there."""
    other = [
        *_missing(found, options),
        *_limits(found, options),
        *_others(found, port, allowed),
    ]
    if not other:
        return
    is_claim = any(text.startswith(("--volume", "--image")) for text in other)
    hint = "; or `trainyard submit --volume … --image …` adds these to it" if is_claim else ""
    raise TrainyardError(
        f"the cluster is up already (process {found.pid}), without {', '.join(other)}: to change "
        f"it, `trainyard down`, which ends its jobs' replicas, and `up` again{hint}"
    )


def _missing(found: RunningCluster, options: ClusterShape) -> Iterator[str]:
    holds = found.settings
    volumes, resources = holds.get("volumes", {}), holds.get("resources", {})
    pairs = [f"{pattern}={folder}" for pattern, folder in holds.get("images", [])]
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
        ("--pass-env", [name for name in options.passed if name not in holds.get("passed", [])]),
        ("--resource", pretended),
    ):
        yield from (f"{option} {shlex.quote(value)}" for value in values)
    if options.is_strict and not holds.get("is_strict"):
        yield "--strict-scheduling"


def _limits(found: RunningCluster, options: ClusterShape) -> Iterator[str]:
    holds, usual = found.settings, ClusterShape()
    is_plain = found.isolation == "plain"
    if options.isolation != "auto" and (options.isolation == "plain") != is_plain:
        yield f"--isolation {options.isolation}"
    if options.network == "none" and holds.get("is_network_open"):
        yield "--network none"
    for allowed in sorted(set(options.allowed_ports) - set(holds.get("allowed_ports", ()))):
        yield f"--allow-port {allowed}"
    for option, said, default, kept in (
        ("--pids-limit", options.pids_limit, usual.pids_limit, holds.get("pids_limit")),
        ("--log-max-size", options.log_max_size, usual.log_max_size, holds.get("log_size")),
        ("--log-max-files", options.log_max_files, usual.log_max_files, holds.get("log_files")),
    ):
        if said not in (default, kept):
            yield f"{option} {said}"


def _others(found: RunningCluster, port: int, allowed: AllowList) -> Iterator[str]:
    if port not in (0, found.port):
        yield f"--port {port}"
    for option, wanted, key in (
        ("--allow-user", allowed.users, "users"),
        ("--allow-group", allowed.groups, "groups"),
    ):
        if not wanted <= set(found.settings.get(key, [])):
            yield f"all of {option}"
