"""How the supervisor of in-place restart comes into pods (decision 283).

It stays in the pod when the command has failed, and starts it again. Without a report channel every
restart makes new pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.pods.command_wrapper import Target, Wrapper, wrap_command
from trainyard.payloads.shipping import IN_PLACE

WRAPPER = Wrapper("trainyard-hold", "/t9k/hold", IN_PLACE, "TRAINYARD_HOLD")
_GRACE_SECONDS = 30
"""Kubernetes' own default of `terminationGracePeriodSeconds`."""


def programs_for(spec: object) -> Mapping[str, str]:
    """What the job's Secret must hold: file names and modules of `payloads`."""
    return IN_PLACE if is_in_place(spec) else {}


def is_in_place(spec: object) -> bool:
    """Whether the run policy, if it knows of it, asks for in-place restarts."""
    return getattr(getattr(spec, "run_policy", None), "restart_mode", "Recreate") == "InPlace"


def in_place_grace_seconds(
    spec: Any, settings: Settings, templates: Iterable[Mapping[str, Any]]
) -> int | None:
    """`Workload.in_place`: seconds that processes have to end; None: restarts make new pods."""
    can_report = settings.channel_address and not spec.run_mode.debug.enabled
    return longest_grace_seconds(templates) if can_report and is_in_place(spec) else None


def longest_grace_seconds(templates: Iterable[Mapping[str, Any]]) -> int:
    """Seconds that the processes of a job have to end, by their pods' templates."""
    given = ((each.get("spec") or {}).get("terminationGracePeriodSeconds") for each in templates)
    return max((_GRACE_SECONDS if each is None else int(each) for each in given), default=0)


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
