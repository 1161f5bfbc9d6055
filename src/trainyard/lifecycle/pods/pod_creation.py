"""Which pods to create, so that each replica has the pod of its attempt.

Pod names are the replicas' names: the pod of an attempt cannot exist before the last one's is
gone, so there are never two pods for one replica.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import MappingProxyType

from trainyard.kinds.shared.workload import Manifest
from trainyard.kube.resources import PODS
from trainyard.lifecycle.actions import Create
from trainyard.lifecycle.internal_status import InternalStatus
from trainyard.lifecycle.kueue.kueue_admission import PodPlacement
from trainyard.lifecycle.policy import PodEdit
from trainyard.lifecycle.reconcile_context import ReconcileContext
from trainyard.lifecycle.replica_state import State
from trainyard.lifecycle.replica_view import Replica, View
from trainyard.schema.times import earliest


def pods_to_create(
    context: ReconcileContext,
    pod_group: str,
    places: Mapping[str, PodPlacement] = MappingProxyType({}),
    edits: Sequence[PodEdit] = (),
) -> tuple[list[tuple[Replica, Create]], datetime | None]:
    """Pods to create now; when the delay of others is over.

    `places`: by type, where a queue has given the job some. `edits`: what policies change in pods.
    """
    internal, view = context.internal, context.view
    # What was taken away comes back once its restart is decided, which may wait for the cause.
    wanted = (r for r in view.not_running if r.state is State.CREATING)
    missing = [r for r in wanted if r.pod is None and r.old is None]
    if missing and _waits_for_old_pods(internal, view):
        missing = [r for r in missing if r.type.restarts_alone]
    wake_at, ready = None, []
    for replica in missing:
        start = _starts_at(internal, replica.name)
        if start is not None and context.now < start:
            wake_at = earliest(wake_at, start)
            continue
        build: Callable[[], Manifest] = partial(
            context.workload.build_pod,
            replica.key,
            internal.wanted(replica.name),
            pod_group=pod_group,
            resumed=internal.resumed,
            joins=internal.wanted(replica.name) > internal.floor,
        )
        if place := places.get(replica.type.name):
            build = partial(_with_placement, build, place)
        for edit in edits:
            build = partial(_edited, build, edit)
        ready.append((replica, Create(PODS, replica.name, build)))
    return ready, wake_at


def _edited(build: Callable[[], Manifest], edit: PodEdit) -> Manifest:
    return edit(build())


def _with_placement(build: Callable[[], Manifest], place: PodPlacement) -> Manifest:
    return place.put(build())


def _starts_at(internal: InternalStatus, name: str) -> datetime | None:
    record = internal.records.get(name)
    if record is not None and record.not_before is not None:
        return record.not_before
    return internal.not_before


def _waits_for_old_pods(internal: InternalStatus, view: View) -> bool:
    """When all start anew, nobody starts before the last of the old ones is gone.

    A new process that meets an old one joins a group that is about to end.
    """
    # Survivors of an incident, and replicas that restart one by one, have nobody to wait for.
    if internal.floor != internal.attempt:
        return False
    apart = {r.name for r in view.replicas if r.type.restarts_alone} if internal.records else set()
    if set(internal.records) - apart:
        return False
    return any(r.old is not None for r in view.not_running if not r.type.restarts_alone)
