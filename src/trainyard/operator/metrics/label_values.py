"""Bounds the values of labels: a reason that is not in a known list counts as `Other`.

Kubelets, and whoever may write a pod's status, can invent reasons; each new one would be a series.
"""

from __future__ import annotations

from trainyard.kinds.shared.reasons import ConditionReason
from trainyard.lifecycle.internal_status import COMPLETED
from trainyard.lifecycle.replica_state import DISRUPTIONS, VANISHED

# https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
_DISRUPTION_CONDITIONS = (
    *("PreemptionByScheduler", "DeletionByTaintManager", "EvictionByEvictionAPI"),
    *("DeletionByPodGC", "TerminationByKubelet"),
)
RESTART_REASONS = frozenset(
    {
        *("Error", "OOMKilled", "ContainerCannotRun", "StartError", "DeadlineExceeded"),
        *("Deleted", "MaxDuration", "MembersChanged", COMPLETED),
        *(*DISRUPTIONS, *VANISHED, *_DISRUPTION_CONDITIONS),
    }
)
END_REASONS = frozenset(ConditionReason)
OTHER = "Other"


def known_or_other(known: frozenset[str] | frozenset[ConditionReason], reason: str) -> str:
    """The reason if it is known or empty, else `Other`."""
    return reason if not reason or reason in known else OTHER
