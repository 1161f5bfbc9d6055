"""How the check of the nodes comes into pods (decision 295).

Its program runs before the command whenever all replicas start. Without a report channel there is
no check, and the command starts at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.pods.command_wrapper import Target, Wrapper, wrap_command
from trainyard.payloads.shipping import NODE_CHECK

WRAPPER = Wrapper("trainyard-node-check", "/t9k/node-check", NODE_CHECK, "TRAINYARD_NODE_CHECK")
NO_CHANNEL = "runPolicy.nodeCheck is ignored: pods have no way to report here (channelAddress)"


def programs_for(spec: object) -> Mapping[str, str]:
    """What the job's Secret must hold: file names and modules of `payloads`."""
    return NODE_CHECK if is_asked(spec) else {}


def is_asked(spec: object) -> bool:
    """Whether the run policy, if it knows of it, asks for the check."""
    policy = getattr(getattr(spec, "run_policy", None), "node_check", None)
    return policy is not None and bool(policy.enabled)


def checks_nodes(spec: Any, settings: Settings) -> bool:
    """`Workload.checks_nodes`: whether the check is asked for and can report."""
    return bool(settings.channel_address) and not spec.run_mode.debug.enabled and is_asked(spec)


def node_check_warnings(spec: Any, settings: Settings) -> tuple[str, ...]:
    """What the job asks for and does not get."""
    is_lost = is_asked(spec) and not settings.channel_address and not spec.run_mode.debug.enabled
    return (NO_CHANNEL,) if is_lost else ()


def inject_node_check(target: Target, spec: Any) -> None:
    """Have the check start a container's command, where the job asks for it."""
    if checks_nodes(spec, target.settings):
        options = {
            "limit": spec.run_policy.node_check.timeout_seconds,
            "every": target.poll_seconds,
            "host": target.host,
        }
        wrap_command(target, WRAPPER, options)
