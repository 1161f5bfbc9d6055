"""The first status of a job: its account and no more, since its pods wait until it is stored.

A server takes twice as long for a whole one. What people read is in the second, which the new pods
call for at once (decision 200).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.kube.resources import PODS
from trainyard.lifecycle import goodput
from trainyard.lifecycle.actions import Action, Create
from trainyard.lifecycle.passes import Pass

_FIRST = ("phase", "observedGeneration", "specHash", "attempts", "internal")


def written(
    status: Mapping[str, Any], job: Pass, actions: Sequence[Action]
) -> tuple[dict[str, Any] | None, bool]:
    """What of a whole status is written, None where nothing is new; whether the job begins."""
    if _begins(job, actions):
        return {name: status[name] for name in _FIRST}, True
    return goodput.accounted(job, dict(status)) if status != job.before else None, False


def _begins(job: Pass, actions: Sequence[Action]) -> bool:
    """Whether a pass creates the first pods of a job that nothing has been told of yet.

    Trouble is told at once.
    """
    observed = job.observed
    if job.before or observed.pods or observed.conflicts or observed.refusals:
        return False
    return any(isinstance(each, Create) and each.resource == PODS for each in actions)
