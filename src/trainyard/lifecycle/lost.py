"""Pods that nobody finishes deleting: their node is gone, or the kubelet is stuck."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from trainyard.kinds.shared.settings import Settings
from trainyard.kube.resources import PODS
from trainyard.lifecycle.actions import Delete
from trainyard.lifecycle.observed import Pod
from trainyard.schema.times import earliest


def force(
    pods: Iterable[Pod], now: datetime, settings: Settings
) -> tuple[list[Delete], datetime | None]:
    """Forced deletions of pods stuck beyond their grace period plus a limit; when to look again.

    A deletionTimestamp already includes the grace period.
    """
    limit = timedelta(seconds=settings.force_delete_seconds)
    deletes, wake_at = [], None
    for pod in pods:
        if pod.deleting is None or pod.grace_seconds == 0:
            continue  # deleted by force already: only a finalizer can hold it
        if now >= pod.deleting + limit:
            deletes.append(Delete(PODS, pod.name, pod.uid, grace_seconds=0))
        else:
            wake_at = earliest(wake_at, pod.deleting + limit)
    return deletes, wake_at
