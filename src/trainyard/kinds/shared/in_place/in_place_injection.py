"""How the supervisor of in-place restart comes into pods (decision 283).

It stays in the pod when the command has failed, and starts it again. Without a report channel every
restart makes new pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.pods.command_wrapper import Target, Wrapper, wrap_command
from trainyard.payloads.in_place import FILES
from trainyard.schema.rules.pod_spec_rules import grace_seconds

WRAPPER = Wrapper("trainyard-hold", "/t9k/hold", FILES, "TRAINYARD_HOLD")


def programs_for(spec: Any) -> Mapping[str, str]:
    """What the job's Secret must hold: file names and modules of `payloads`."""
    return FILES if is_in_place(spec) else {}


def is_in_place(spec: Any) -> bool:
    """Whether the run policy asks for in-place restarts."""
    return bool(spec.run_policy.restart_mode == "InPlace")


def in_place_grace_seconds(
    spec: Any, settings: Settings, templates: Iterable[Mapping[str, Any]]
) -> int | None:
    """`Workload.in_place`: seconds that processes have to end; None: restarts make new pods."""
    can_report = settings.channel_address and not spec.run_mode.debug.enabled
    return longest_grace_seconds(templates) if can_report and is_in_place(spec) else None


def longest_grace_seconds(templates: Iterable[Mapping[str, Any]]) -> int:
    """The longest grace period of pods or templates, in seconds."""
    return max((grace_seconds(each.get("spec") or {}) for each in templates), default=0)


def inject_supervisor(target: Target, preload: Sequence[str]) -> None:
    """Have the supervisor start a container's command.

    `preload`: modules that a second Python imports while it waits for the next attempt.
    """
    options: dict[str, object] = {
        "grace": longest_grace_seconds([target.pod]),
        "every": target.poll_seconds,
    }
    if preload:
        options["preload"] = "+".join(preload)
    wrap_command(target, WRAPPER, options)
