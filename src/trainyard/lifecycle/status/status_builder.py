"""What a pass tells: the parts of the status that people and tools read, and events.

Nothing here decides anything. Events go with the change of the status that they tell of, so that
each is told once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from trainyard.kinds.shared.reasons import (
    ConditionReason,
    ConditionType,
    EventReason,
    Phase,
    preflight_failure,
)
from trainyard.kinds.shared.workload import Workload
from trainyard.lifecycle import texts
from trainyard.lifecycle.actions import Event
from trainyard.lifecycle.internal_status import InternalStatus
from trainyard.lifecycle.observed import Pod
from trainyard.lifecycle.reconcile_context import RestartDecision, Verdict
from trainyard.lifecycle.replica_state import State
from trainyard.lifecycle.replica_view import Replica, View
from trainyard.lifecycle.status import aggregate, conditions
from trainyard.lifecycle.status.conditions import Conditions
from trainyard.lifecycle.status.not_running_reasons import NotRunningReason
from trainyard.schema.times import render

_FAILURE_EVENTS = {
    ConditionReason.DEADLINE_EXCEEDED: EventReason.DEADLINE_EXCEEDED,
    ConditionReason.INVALID_SPEC: EventReason.INVALID_SPEC,
}


class StatusBuilder:
    """The new status in the making (`status`), with its conditions, and the events."""

    def __init__(self, workload: Workload, before: Mapping[str, Any], now: datetime) -> None:
        self._workload = workload
        self._now = now
        self.fields: dict[str, Any] = dict(before)
        self.conditions = Conditions(before.get("conditions") or (), now)
        self.events: list[Event] = []

    @property
    def phase(self) -> str:
        """Phase of the job; "" for one that has not been seen before."""
        return str(self.fields.get("phase", ""))

    def _event(self, reason: EventReason, message: str, *, warning: bool = False) -> None:
        self.events.append(Event("Warning" if warning else "Normal", reason.value, message))

    # What others may have written into the status (decision 105).

    def repair_unfinished(self, internal: InternalStatus) -> None:
        """The job has not ended, whatever its status says, and may never have been paused."""
        self.conditions.drop(ConditionType.FAILED)
        self.fields.pop("completionTime", None)
        if not internal.paused and self.conditions.is_true(ConditionType.PAUSED):
            self._set_not_paused()
        resumes = internal.resumed and "startTime" not in self.fields
        if self.phase == Phase.RESUMING and not resumes:
            self.fields["phase"] = Phase.PENDING.value

    def repair_finished(self, internal: InternalStatus) -> None:
        """The job has ended, as its internal status says, whatever the rest of it says."""
        self.fields["phase"] = internal.ended
        if "completionTime" not in self.fields:
            last = internal.attempts[-1] if internal.attempts else {}
            self.fields["completionTime"] = last.get("endTime", render(self._now))
        message = texts.has_failed(self._workload)
        conditions.restore_final_conditions(
            self.conditions, internal.ended, ConditionReason.FAILED, message
        )

    # The beginning, and what is wrong from the beginning.

    def report_created(self) -> None:
        """The job is seen for the first time."""
        self._event(EventReason.CREATED, texts.created(self._workload))

    def report_ignored_fields(self, warnings: Sequence[str]) -> None:
        """The spec asks for what it does not get."""
        for warning in warnings:
            self._event(EventReason.IGNORED_FIELD, warning, warning=True)

    def track_spec_hash(self) -> None:
        """Remember what was admitted, and tell when that was changed behind our back."""
        # Decision 9: CEL rules cannot see into pod templates.
        known = self.fields.get("specHash")
        self.fields["specHash"] = self._workload.spec_hash
        if known is not None and known != self._workload.spec_hash:
            self._event(EventReason.SPEC_DRIFT, texts.SPEC_DRIFT, warning=True)

    def set_initialized(self) -> None:
        """Everything that the job needs has been created."""
        first = not self.conditions.is_true(ConditionType.INITIALIZED)
        self.conditions.set(
            ConditionType.INITIALIZED, True, ConditionReason.NONE, texts.INITIALIZED
        )
        if first:
            self._event(EventReason.START, texts.INITIALIZED)

    def report_new_pods(self, replicas: Sequence[Replica], internal: InternalStatus) -> None:
        """Pods are created: one event, since one for each would cost as much as the pod."""
        attempts = [(replica.name, internal.wanted(replica.name)) for replica in replicas]
        if len(attempts) > 1:
            self._event(EventReason.NEW_REPLICA, texts.new_replicas(attempts))
        for name, attempt in attempts if len(attempts) == 1 else ():
            text = texts.new_replica(name, attempt, grown=internal.is_first(name))
            self._event(EventReason.NEW_REPLICA, text)

    def report_in_place_start(self, attempts: Sequence[tuple[str, int]]) -> None:
        """The next attempt starts in pods that are there."""
        self._event(EventReason.NEW_REPLICA, texts.in_place(attempts))

    def report_not_in_place(self, pods: Sequence[Pod | Replica], *, is_lost: bool) -> None:
        """It does not, because of these."""
        text = texts.not_in_place([each.name for each in pods], is_lost=is_lost)
        self._event(EventReason.RESTART, text, warning=True)

    # Changes of mode and size.

    def set_paused(self, *, first: bool) -> None:
        """The job is paused; the deadline's clock stops."""
        if first:
            self._event(EventReason.PAUSED, texts.PAUSED)
        self.conditions.set(ConditionType.PAUSED, True, ConditionReason.PAUSED, texts.PAUSED)
        conditions.set_not_finished(self.conditions, runs=False)
        conditions.set_not_running(self.conditions, ConditionReason.PAUSED, texts.PAUSED)
        self._set_nothing_runs()
        self.fields.pop("startTime", None)
        self.fields["phase"] = Phase.PAUSED.value

    def _set_nothing_runs(self) -> None:
        """What was told of replicas that ran."""
        self.set_not_launched(None)
        self.conditions.drop(ConditionType.HUNG)
        self.conditions.drop(ConditionType.RANKS_APART)

    def set_resumed(self) -> None:
        """The pause is over."""
        self._set_not_paused()
        self._event(EventReason.RESUMED, texts.RESUMED)
        self.fields["phase"] = Phase.RESUMING.value

    def _set_not_paused(self) -> None:
        self.conditions.set(ConditionType.PAUSED, False, ConditionReason.RESUMED, texts.RESUMED)

    def set_waiting_for_admission(self, reason: NotRunningReason, *, evicted: bool) -> None:
        """A queue does not admit the job. `evicted`: it has taken that back; as in a pause, the
        deadline's clock stops."""
        if evicted:
            self._event(EventReason.EVICTED, texts.evicted(reason.message))
        elif reason.event and self._is_new_text(reason.message):
            self._event(reason.event, reason.message, warning=True)
        conditions.set_not_running(self.conditions, reason.reason, reason.message)
        conditions.set_not_finished(self.conditions, runs=False)
        self._set_nothing_runs()
        self.fields.pop("startTime", None)
        if self.phase != Phase.RESUMING:
            self.fields["phase"] = Phase.PENDING.value

    def report_admitted(self) -> None:
        """After an eviction, the queue has admitted the job again."""
        self._event(EventReason.ADMITTED, texts.ADMITTED)

    def report_resized(self, before: int, after: int) -> None:
        """An elastic job changes its size."""
        self._event(EventReason.SCALED, texts.resized(before, after))

    # Failures of replicas.

    def report_restarts(self, response: RestartDecision) -> None:
        """Replicas are restarted."""
        for incident in response.incidents:
            seconds = (incident.start - self._now).total_seconds()
            budget = self._budget_text(response.internal, incident.cause)
            self._preflight(incident.cause)
            if incident.members_changed:
                text = texts.followed_membership_change(incident.cause, incident.restarted, seconds)
                self._event(EventReason.RESTART, text)
                continue
            text = texts.restart(incident.cause, incident.restarted, seconds, budget)
            same = response.same(incident.cause)
            again = f"\n{texts.same_again(same)}" if same else ""
            blamed = not incident.exit.free and incident.exit.code != 0
            self._event(EventReason.RESTART, text + again, warning=blamed)
            if blamed:
                failure = texts.replica_failure(incident.cause) + again
                conditions.set_replica_failure(self.conditions, failure)
        self.report_failed_for_good(response.failed_for_good)

    def report_failed_for_good(self, replicas: Sequence[Replica]) -> None:
        """The job goes on without these."""
        for replica in replicas:
            text = texts.replica_failure(replica)
            if replica.entry is None or replica.entry.get("phase") != "Failed":
                self._event(EventReason.REPLICA_FAILURE, text, warning=True)
        if replicas:
            conditions.set_replica_failure(self.conditions, texts.replica_failure(replicas[0]))

    def set_replica_failure(
        self, failed: Sequence[Replica], counts: Mapping[str, int], *, well: bool
    ) -> None:
        """ReplicaFailure, by what the status tells of the replicas (decision 104).

        `failed`: those told as failed by their own end. `well`: what had failed before is back.
        """
        is_reported = self.conditions.is_true(ConditionType.REPLICA_FAILURE)
        if failed:
            if not is_reported:
                text = texts.replica_failure(failed[0])
                conditions.set_replica_failure(self.conditions, text)
        elif well or not is_reported:
            conditions.set_no_replica_failure(self.conditions, self._no_failure_text(counts))

    def _no_failure_text(self, counts: Mapping[str, int]) -> str:
        if counts["failed"]:
            return texts.stopped(counts["failed"])
        if self.phase == Phase.SUCCEEDED:
            return (
                texts.ALL_FINISHED
                if self._workload.failure_condition_reports_success
                else texts.RUNNING
            )
        are_well = counts["running"] + counts["succeeded"] == sum(counts.values())
        return texts.RUNNING if are_well else texts.NO_FAILURE

    def _budget_text(self, internal: InternalStatus, replica: Replica) -> str:
        spent = internal.spent(replica.name, is_shared=self._workload.shared_budget)
        return texts.budget(spent, replica.type.limit)

    # Running or not.

    def set_running(self, view: View) -> None:
        """The job runs."""
        # Decision 28: from here on the deadline's clock runs.
        if "startTime" not in self.fields:
            self.fields["startTime"] = render(self._now)
            self._event(EventReason.RUNNING, texts.began_running(self._now))
        self.fields["phase"] = Phase.RUNNING.value
        conditions.set_running(self.conditions, _progress_text(view))
        conditions.set_not_finished(self.conditions, runs=True)

    def set_not_running(
        self, view: View, blocker: NotRunningReason | None, *, unknown: bool
    ) -> None:
        """Not all replicas run that should. `unknown`: nor can it be told whether they do."""
        if blocker is not None:
            reason, text = blocker.reason, blocker.message
            if blocker.event and self._is_new_text(text):
                self._event(blocker.event, text, warning=True)
        else:
            reason, text = ConditionReason.NONE, _progress_text(view)
        conditions.set_not_running(self.conditions, reason, text)
        if unknown:
            self.fields["phase"] = Phase.UNKNOWN.value
        elif self.phase != Phase.RESUMING:
            begun = _count_well(view) > 0 and "startTime" in self.fields
            self.fields["phase"] = (Phase.RUNNING if begun else Phase.PENDING).value
        runs = self.phase in (Phase.RUNNING, Phase.UNKNOWN)
        conditions.set_not_finished(self.conditions, runs=runs)

    def _is_new_text(self, text: str) -> bool:
        return self.conditions.get(ConditionType.RUNNING).get("message") != text

    def set_launched(self, differences: str) -> None:
        """The training has begun on the replicas, as far as the launch can tell.

        `differences`: in what these differ; "" if that is not told (any more).
        """
        kind, before = ConditionType.LAUNCHED, self.conditions.get(ConditionType.LAUNCHED)
        if not differences:
            if before.get("reason") != ConditionReason.HOSTS_DIFFER:
                self.conditions.set(kind, True, ConditionReason.NONE, texts.LAUNCHED)
            return
        text = texts.hosts_differ(differences)
        if before.get("message") != text:
            self._event(EventReason.HOSTS_DIFFER, text, warning=True)
        self.conditions.set(kind, True, ConditionReason.HOSTS_DIFFER, text)

    def set_not_launched(self, probe_output: str | None) -> None:
        """It has not. `probe_output`: what it waits for; None: for replicas that do not run, so
        that only what the status said before is put right."""
        kind = ConditionType.LAUNCHED
        if probe_output is None:
            reason = self.conditions.get(kind).get("reason", ConditionReason.PREFLIGHT_FAILED)
            if reason != ConditionReason.PREFLIGHT_FAILED:
                self.conditions.set(kind, False, ConditionReason.NONE, texts.TO_BE_LAUNCHED)
            return
        if self.conditions.get(kind).get("reason") != ConditionReason.LAUNCH_WAITS:
            self._event(EventReason.LAUNCH_WAITS, texts.launch_waits(probe_output), warning=True)
        reason = ConditionReason.LAUNCH_WAITS
        self.conditions.set(kind, False, reason, texts.launch_waits(probe_output))

    def _preflight(self, cause: Replica) -> None:
        """What a replica that failed says of the launch."""
        missing = preflight_failure(cause.exit.message) if cause.exit is not None else ""
        if missing:
            kind, reason = ConditionType.LAUNCHED, ConditionReason.PREFLIGHT_FAILED
            self.conditions.set(kind, False, reason, texts.preflight_failed(missing))

    # The end.

    def set_ended(self, verdict: Verdict, first_start: datetime) -> None:
        """The job has ended."""
        self.fields.setdefault("startTime", render(first_start))
        self.fields["completionTime"] = render(self._now)
        if verdict.success:
            self.fields["phase"] = Phase.SUCCEEDED.value
            self.set_initialized()
            conditions.set_succeeded(self.conditions)
            self._event(EventReason.SUCCEEDED, texts.FINISHED)
            return
        self.fields["phase"] = Phase.FAILED.value
        conditions.set_failed(self.conditions, verdict.reason, verdict.message)
        if verdict.cause is not None and verdict.cause.state is State.FAILED:
            text = texts.replica_failure(verdict.cause)
            text += f"\n{texts.same_again(verdict.same)}" if verdict.same else ""
            conditions.set_replica_failure(self.conditions, text)
            self._event(EventReason.REPLICA_FAILURE, text, warning=True)
            self._preflight(verdict.cause)
        event = _FAILURE_EVENTS.get(ConditionReason(verdict.reason), EventReason.FAILED)
        self._event(event, verdict.message, warning=True)


def _count_well(view: View) -> int:
    """How many replicas run or have completed."""
    return len(view.replicas) - sum(1 for r in view.not_running if r.state is not State.SUCCEEDED)


def _progress_text(view: View) -> str:
    failed = len(aggregate.reported_as_failed(view))
    return texts.progress(len(view.replicas), _count_well(view), failed)
