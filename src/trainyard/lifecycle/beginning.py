"""The first status of a job: its account and no more, since its pods wait until it is stored.

A server takes twice as long for a whole one. What people read is in the second, which the new pods
call for at once (decision 200).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.kube.resources import PODS
from trainyard.lifecycle.actions import Action, Create
from trainyard.lifecycle.passes import Pass

_FIRST = ("phase", "observedGeneration", "specHash", "attempts", "internal")


def begins(job: Pass, actions: Sequence[Action]) -> bool:
    """Whether a pass creates the first pods of a job that nothing has been told of yet.

    Trouble is told at once; and so is which replicas an elastic job has, since what it has not told
    is a newcomer.
    """
    observed = job.observed
    if job.before or observed.pods or observed.conflicts or observed.refusals:
        return False
    if job.workload.elastic is not None:
        return False
    return any(isinstance(each, Create) and each.resource == PODS for each in actions)


def first(status: Mapping[str, Any]) -> dict[str, Any]:
    """What of a whole status is written before there are pods."""
    return {name: status[name] for name in _FIRST}
