"""The first status of a job: its account and no more, since its pods wait until it is stored.

A server takes twice as long for a whole one. What people read is in the second, which the new pods
call for at once (decision 200).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.kube.resources import PODS
from trainyard.lifecycle.actions import Action, Create
from trainyard.lifecycle.goodput import goodput_status
from trainyard.lifecycle.reconcile_context import ReconcileContext

_FIELDS = ("phase", "observedGeneration", "specHash", "attempts", "internal")


def status_to_write(
    status: Mapping[str, Any], context: ReconcileContext, actions: Sequence[Action]
) -> tuple[dict[str, Any] | None, bool]:
    """What of a whole status is written, None where nothing is new; whether the job begins."""
    if _is_first_creation(context, actions):
        return {name: status[name] for name in _FIELDS}, True
    return goodput_status.account_time(
        context, dict(status)
    ) if status != context.before else None, False


def _is_first_creation(context: ReconcileContext, actions: Sequence[Action]) -> bool:
    """Whether a pass creates the first pods of a job that nothing has been told of yet.

    Trouble is told at once.
    """
    observed = context.observed
    if context.before or observed.pods or observed.conflicts or observed.refusals:
        return False
    return any(isinstance(each, Create) and each.resource == PODS for each in actions)
