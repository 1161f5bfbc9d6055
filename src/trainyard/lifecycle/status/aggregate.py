"""`status.tasks` and `status.aggregate`: every replica's state, and how many are in each.

Decision 33: the sum of the aggregate is always the number of replicas wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainyard.kinds.shared.reasons import GIVEN_UP, STOPPED
from trainyard.kinds.shared.workload import Scope, Workload
from trainyard.lifecycle.observed import Pod
from trainyard.lifecycle.pods import pod_cleanup
from trainyard.lifecycle.reconcile_context import ReconcileContext
from trainyard.lifecycle.replica_state import DEADLINE_EXCEEDED, State
from trainyard.lifecycle.replica_view import Entry, Replica, View, has_failed

_COUNTED = {state.value: state.value.lower() for state in State}
"""Field of the aggregate per phase, in the order documented."""

IsRemoved = Callable[[Replica], bool]


def none_removed(_: Replica) -> bool:
    """A pod that is not there is created."""
    return False


def all_removed(_: Replica) -> bool:
    """Whatever had ended before, starts anew."""
    return True


def _is_gone(replica: Replica) -> bool:
    return replica.pod is None or replica.pod.deleting is not None


def removed_unless_ended(replica: Replica) -> bool:
    """A pod that is not there, or on its way out, was removed."""
    return _is_gone(replica) and not replica.ended


def removed_unless_ended_by_itself(replica: Replica) -> bool:
    """And so was one that was taken away, as far as the replica is concerned."""
    return removed_unless_ended(replica) or (replica.exit is not None and replica.exit.free)


def removed_with_all_pods(workload: Workload) -> IsRemoved:
    """What goes with all pods of the job, while it is paused or held."""
    return removed_unless_ended_by_itself if workload.scope is Scope.REPLICA else all_removed


def removed_by_clean_up(workload: Workload) -> IsRemoved:
    """What goes after the job's end, also what had ended where such pods are deleted."""

    def is_removed(replica: Replica) -> bool:
        deletes_it = pod_cleanup.deletes_ended(workload, replica.type)
        return _is_gone(replica) if deletes_it else removed_unless_ended(replica)

    return is_removed


def build_tasks_and_aggregate(
    context: ReconcileContext, is_removed: IsRemoved = none_removed
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Tasks and aggregate. `is_removed`: which replicas count as deleted by an end or a pause."""
    counts = dict.fromkeys(_COUNTED.values(), 0)
    by_type: dict[str, list[Entry]] = {t.name: [] for t in context.workload.types}
    for replica in context.view.replicas:
        entry = _removed_entry(replica) if is_removed(replica) else _replica_entry(replica)
        counts[_COUNTED[entry["phase"]]] += 1
        by_type[replica.type.name].append(entry)
    tasks = [
        {"type": name, "restartCount": context.internal.restarts.get(name, 0), "replicas": entries}
        for name, entries in by_type.items()
    ]
    return tasks, counts


_FINAL_PHASES = (State.FAILED.value, State.SUCCEEDED.value, State.TAKEN.value)


def own_failures(context: ReconcileContext, is_removed: IsRemoved = none_removed) -> list[Replica]:
    """Replicas that are told as failed, but for those that only their job's end has stopped."""
    is_over = bool(context.internal.ended)  # whose failures stay, wherever their pods are
    failed = []
    for replica in reported_as_failed(context.view):
        if not is_removed(replica):
            entry = _replica_entry(replica)
        elif is_over:
            entry = _removed_entry(replica)
        else:
            continue
        if has_failed(entry) and entry.get("reason") != STOPPED:
            failed.append(replica)
    return failed


def reported_as_failed(view: View) -> list[Replica]:
    """Not those whose end was not seen: they are told as taken away, though a rule fails them."""
    failed = (r for r in view.not_running if r.state is State.FAILED)
    return [r for r in failed if has_failed(_replica_entry(r))]


def _empty_entry(name: str, phase: str) -> Entry:
    return {"name": name, "uid": "", "phase": phase, "containers": []}


def _removed_entry(replica: Replica) -> Entry:
    entry = replica.entry
    deleted = State.TAKEN.value
    return _empty_entry(replica.name, deleted) if entry is None else {**entry, "phase": deleted}


def _replica_entry(replica: Replica) -> Entry:
    """The replica's entry; the one that status has already, where nothing changed."""
    pod, before = replica.pod, replica.entry
    phase = replica.state.value
    if pod is None:
        if before is None:
            return _empty_entry(replica.name, phase)
        # An end that was not seen is told as taken away, not by a state that is over.
        return before if before["phase"] in _FINAL_PHASES else _removed_entry(replica)
    if (
        before is not None
        and before["uid"] == pod.uid
        and before["phase"] == phase
        and before["containers"] == pod.container_statuses
    ):
        return before
    entry: Entry = {
        "name": replica.name,
        "uid": pod.uid,
        "phase": phase,
        "containers": pod.container_statuses,
    }
    if replica.state is State.FAILED and replica.exit is not None and replica.exit.reason:
        reason = replica.exit.reason
        is_stopped = _was_stopped(pod, reason) and reason not in GIVEN_UP
        entry["reason"] = STOPPED if is_stopped else reason
    return entry


def _was_stopped(pod: Pod, reason: str) -> bool:
    return DEADLINE_EXCEEDED in (pod.reason, reason) and pod_cleanup.is_stop_requested(pod)
