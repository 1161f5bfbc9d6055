"""How the check of the nodes comes into pods (decision 295).

Its program runs before the command whenever all replicas start. Without a report channel there is
no check, and the command starts at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.pods.command_wrapper import Target, Wrapper, wrap_command
from trainyard.payloads.node_check import FILES

WRAPPER = Wrapper("trainyard-node-check", "/t9k/node-check", FILES, "TRAINYARD_NODE_CHECK")
NO_CHANNEL = "runPolicy.nodeCheck is ignored: pods have no way to report here (channelAddress)"


def programs_for(spec: Any) -> Mapping[str, str]:
    """What the job's Secret must hold: file names and modules of `payloads`."""
    return FILES if is_asked(spec) else {}


def is_asked(spec: Any) -> bool:
    """Whether the run policy asks for the check."""
    return bool(spec.run_policy.node_check.enabled)


def checks_nodes(spec: Any, settings: Settings) -> bool:
    """`Workload.node_check`: whether the check is asked for and can report."""
    return bool(settings.channel_address) and not spec.run_mode.debug.enabled and is_asked(spec)


def node_check_warnings(spec: Any, settings: Settings) -> tuple[str, ...]:
    """What the job asks for and does not get."""
    is_lost = is_asked(spec) and not settings.channel_address and not spec.run_mode.debug.enabled
    return (NO_CHANNEL,) if is_lost else ()


def inject_node_check(target: Target, spec: Any, *, joins: bool) -> None:
    """Have the check start a container's command, where the job asks for it and the replica does
    not join others that run."""
    if not joins and checks_nodes(spec, target.settings):
        options = {
            "limit": spec.run_policy.node_check.timeout_seconds,
            "every": target.poll_seconds,
            "host": target.host,
        }
        wrap_command(target, WRAPPER, options)
