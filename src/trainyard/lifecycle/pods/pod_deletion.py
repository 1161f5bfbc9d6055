"""Which pods are deleted: gracefully where they are not wanted, by force where they are stuck."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from trainyard.kinds.shared.job_settings import Settings
from trainyard.kube.resources import PODS
from trainyard.lifecycle.actions import Delete
from trainyard.lifecycle.observed import Pod
from trainyard.lifecycle.replica_view import View
from trainyard.schema.times import earliest


def delete_unwanted(view: View) -> list[Delete]:
    """Pods of attempts that are over, and of replicas that are not wanted any more."""
    return delete_pods([*superseded_pods(view), *view.surplus])


def superseded_pods(view: View) -> list[Pod]:
    """Pods of attempts that are over."""
    return [replica.old for replica in view.not_running if replica.old is not None]


def delete_pods(pods: Sequence[Pod]) -> list[Delete]:
    """Graceful deletions of those pods that are not being deleted yet."""
    return [Delete(PODS, pod.name, pod.uid) for pod in pods if pod.deleting is None]


def force_deletions(
    pods: Iterable[Pod], now: datetime, settings: Settings
) -> tuple[list[Delete], datetime | None]:
    """Forced deletions of pods that nobody finishes deleting; when to look again.

    Decision 26: their node is gone or the kubelet is stuck, for longer than their grace period
    plus a limit. A deletionTimestamp already includes the grace period:
    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/
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
