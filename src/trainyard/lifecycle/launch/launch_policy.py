"""A launch over ssh that does not start: what is told of it, and when it has taken too long.

The container that launches says by its startup probe whether the training has begun, and what it
waits for until then (decision 100). The clock starts when all replicas run, as none can be waited
for before, and not when the launching one does (decision 101).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from trainyard.kinds.shared.reasons import LAUNCH_TIMEOUT, preflight_difference
from trainyard.lifecycle import texts
from trainyard.lifecycle.elastic import elastic_size
from trainyard.lifecycle.observed import Container
from trainyard.lifecycle.policy import NOTHING, PolicyResult
from trainyard.lifecycle.reconcile_context import ReconcileContext
from trainyard.lifecycle.replica_state import Exit, State
from trainyard.lifecycle.replica_view import Replica
from trainyard.lifecycle.status.status_builder import StatusBuilder
from trainyard.schema.dataclass import dataclass

NOTICE_AFTER = timedelta(seconds=15)
"""Waiting for as long is worth a word; by then the probe has told what for."""
LOOK_AGAIN = timedelta(seconds=15)
"""How often the words are asked for."""


@dataclass(frozen=True, slots=True)
class PendingLaunch:
    """A launch under way: by which replica, since when, what it waits for, until when it may."""

    replica: Replica
    since: datetime
    due: datetime
    probe_output: str


def has_started(context: ReconcileContext) -> bool:
    """Whether the launching container says so."""
    replica = _launching_replica(context)
    return replica is not None and _replica_has_started(context, replica) is True


def host_differences(context: ReconcileContext) -> str:
    """In what the hosts of a launch that has started differ; "" if nothing is known."""
    replica = _launching_replica(context)
    return preflight_difference(_probe_output(context, replica)) if replica is not None else ""


def pending_launch(context: ReconcileContext) -> PendingLaunch | None:
    """The launch that all replicas wait for; None when it has started, or cannot start yet."""
    replica = _launching_replica(context)
    if replica is None or _replica_has_started(context, replica) is not False:
        return None
    if not elastic_size.is_running(context.workload, context.view):
        return None
    assert context.workload.launch_timeout_seconds is not None
    running = (_main_container(r) for r in context.view.replicas if r.state is State.RUNNING)
    since = max((each.since for each in running if each and each.since), default=context.now)
    due = since + timedelta(seconds=context.workload.launch_timeout_seconds)
    return PendingLaunch(replica, since, due, _probe_output(context, replica))


def time_out(context: ReconcileContext, _: StatusBuilder) -> PolicyResult:
    """Take a launch that has taken too long for a failure of the launching replica."""
    launch = pending_launch(context)
    if launch is None or context.now < launch.due:
        return NOTHING
    message = texts.launch_overdue(context.workload, launch.probe_output)
    # Without a time: any other failure goes before it, and nothing is waited for (decision 54).
    end = Exit(reason=LAUNCH_TIMEOUT, message=message)
    failed = launch.replica._replace(state=State.FAILED, exit=end)
    return PolicyResult(context=context.with_replicas({failed.name: failed}))


def report_launch(context: ReconcileContext, status: StatusBuilder) -> PolicyResult:
    """Put into the status how the launch stands; wakes when there may be more to say."""
    launch = pending_launch(context)
    if launch is not None:
        look_again = launch.since + NOTICE_AFTER
        if context.now >= look_again:
            status.set_not_launched(launch.probe_output)
            look_again = context.now + LOOK_AGAIN
        return PolicyResult(wake_at=min(launch.due, look_again))
    if has_started(context):
        status.set_launched(host_differences(context))
    else:
        status.set_not_launched(None)
    return NOTHING


def _launching_replica(context: ReconcileContext) -> Replica | None:
    if context.workload.launch_timeout_seconds is None:
        return None
    for replica in context.view.replicas:
        if replica.key == context.workload.deciding_replica:
            return replica if replica.state is State.RUNNING else None
    return None


def _main_container(replica: Replica) -> Container | None:
    name = replica.type.main_container
    return replica.pod.container(name) if replica.pod is not None and name is not None else None


def _probe_output(context: ReconcileContext, replica: Replica) -> str:
    return context.observed.probe_output.get(replica.pod.uid, "") if replica.pod is not None else ""


def _replica_has_started(context: ReconcileContext, replica: Replica) -> bool | None:
    """None: it does not say."""
    main = _main_container(replica)
    if (
        main is not None
        and main.started is False
        and preflight_difference(_probe_output(context, replica))
    ):
        return True  # its probe fails once more, to tell that
    return main.started if main is not None else None
