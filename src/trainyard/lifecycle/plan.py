"""One reconcile of one job: from everything observed to everything to be done.

It is always computed from the whole observed state, so that it does not matter which reconciles
were missed or cut short. The status in a plan says all that its actions rely on, and is written
first. What policies decide is in the table of `policies.py`; this file is the walk from one stage
to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import Any

from trainyard.kinds.shared import labels
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.reasons import ConditionReason, ConditionType, Phase
from trainyard.kinds.shared.workload import Workload
from trainyard.lifecycle import pause_resume, policies
from trainyard.lifecycle.actions import Action, Create, Delete, Plan
from trainyard.lifecycle.completion import verdicts
from trainyard.lifecycle.elastic import elastic_size
from trainyard.lifecycle.in_place import in_place_restart
from trainyard.lifecycle.internal_status import InternalStatus, final_phase
from trainyard.lifecycle.kueue import kueue_admission, kueue_writes
from trainyard.lifecycle.kueue.kueue_admission import Admission
from trainyard.lifecycle.observed import Observed
from trainyard.lifecycle.pods import dependents, pod_cleanup, pod_creation, pod_deletion
from trainyard.lifecycle.pods.blocked_creations import BlockedCreations
from trainyard.lifecycle.policy import Stage
from trainyard.lifecycle.reconcile_context import ReconcileContext, Verdict
from trainyard.lifecycle.replica_state import State
from trainyard.lifecycle.status import aggregate, not_running_reasons
from trainyard.lifecycle.status.status_builder import StatusBuilder
from trainyard.lifecycle.status.status_parsing import parse_status
from trainyard.schema.dataclass import dataclass
from trainyard.schema.times import earliest, parse


def plan(
    workload: Workload,
    status: Mapping[str, Any] | None,
    observed: Observed,
    now: datetime,
    settings: Settings,
) -> Plan:
    """What to do about a job now.

    `status` is the job's, as stored. The job must be valid (else `plan_invalid`) and not on its
    way out: then its objects go with it by their owner references.
    """
    before = parse_status(status or {}, policies.STATUS_PARSERS)
    has_ended = bool(final_phase(before))
    if has_ended and workload.elastic is not None:
        workload = elastic_size.at_reported_size(workload, before)
    admission = None if has_ended else kueue_admission.find_admission(workload, observed)
    if admission is not None and not workload.paused:
        workload = kueue_admission.at_admitted_size(workload, admission)
    context = ReconcileContext.create(
        workload, before, observed, now, settings, policies.INTERNAL_FIELDS
    )
    reconcile = _Reconcile(context, admission)
    if has_ended:
        reconcile.finished()
    elif workload.paused:
        reconcile.pause()
    elif admission is not None and not admission.is_admitted:
        reconcile.wait_for_admission(admission)
    else:
        reconcile.run()
    return reconcile.result()


@dataclass(slots=True)
class _Reconcile:
    """What a reconcile comes to, step by step."""

    context: ReconcileContext
    admission: Admission | None
    status: StatusBuilder = field(init=False)
    blocked: BlockedCreations = field(init=False)
    actions: list[Action] = field(default_factory=list)
    wake_at: datetime | None = None
    restart_reasons: tuple[str, ...] = ()
    evidence: tuple[Create, ...] = ()
    """Created whatever else follows."""

    def __post_init__(self) -> None:
        self.status = StatusBuilder(self.context.workload, self.context.before, self.context.now)
        self.blocked = BlockedCreations.from_observed(self.context.observed, self.context.settings)

    # The four situations of a job.

    def finished(self) -> None:
        """After the end, which is final (decision 27): clean up until it is done, then expire."""
        self._keep(replace(self.context.internal, ended=final_phase(self.context.before)))
        self.status.repair_finished(self.context.internal)
        failed = self.context.internal.ended == Phase.FAILED
        self._clean_up(failed=failed)
        self._report_replicas(
            aggregate.removed_by_clean_up(self.context.workload), has_recovered=not failed
        )

    def pause(self) -> None:
        """While paused: no pods, and no PodGroup."""
        self._begin()
        first = not self.context.internal.paused
        # Decision 22: a job that has succeeded is not paused any more.
        if first and self._end_if(verdicts.success_before_pause(self.context)):
            return
        if first:
            self._keep(pause_resume.pause(self.context.internal, self.context.now))
        self.status.set_paused(first=first)
        self._report_replicas(aggregate.removed_with_all_pods(self.context.workload))
        self.actions += pod_deletion.delete_pods(self.context.observed.pods)
        self.actions += dependents.delete_unpaused_only(
            self.context.workload, self.context.observed
        )
        self._force_deletions()
        needs = dependents.find_needs(self.context.workload, self.context.observed, paused=True)
        self.actions += [create for create in needs.creates if self._may_create(create)]
        if not self.context.observed.pods:
            self.actions += kueue_writes.delete_workloads(self.admission)

    def wait_for_admission(self, admission: Admission) -> None:
        """While a queue does not admit it, or has taken that back: no pods (decision 171)."""
        self._begin()
        context, internal = self.context, self.context.internal
        has_begun = any(r.pod is not None or r.entry is not None for r in context.view.replicas)
        evicted = has_begun and not internal.evicted and not internal.paused
        if evicted and self._end_if(verdicts.success_before_pause(context)):
            return
        if evicted or internal.paused:
            self._keep(pause_resume.evict(internal, context.now))
            # Sorted again, as what is taken from it from here on costs nothing.
            self.context = context = self.context.sorted_again()
        if internal.paused:
            self.status.set_resumed()
        self.actions += pod_deletion.delete_pods(context.observed.pods)
        self._force_deletions()
        needs = dependents.find_needs(context.workload, context.observed, paused=False)
        needs = self._create_dependents(admission, needs)
        if not context.observed.pods:
            self.actions += kueue_writes.return_quota(admission, context.now)
        reason = not_running_reasons.admission_reason(context, needs, admission, evicted)
        self.status.set_waiting_for_admission(reason, evicted=evicted)
        self._report_replicas(
            aggregate.removed_with_all_pods(context.workload)
            if self.context.internal.evicted
            else aggregate.none_removed
        )

    def run(self) -> None:
        """While it runs, or should."""
        self._begin()
        restarted = self._resume() | self._resize()
        self.context = self.context.with_new_attempts(restarted)
        if self._ends_at(Stage.START) or self._ends_at(Stage.REPORTS):
            return
        restarts = in_place_restart.decide(self.context)
        self._wake(restarts.wake_at)
        self.context = replace(self.context, decided=restarts)
        if self._ends_at(Stage.RESTARTS):
            return
        self.status.report_restarts(restarts)
        self.restart_reasons = tuple(incident.reason for incident in restarts.incidents)
        self._keep(restarts.internal)
        self.context = self.context.with_new_attempts(restarts.restarted)
        self._go_on(has_failures=bool(restarts.failed_for_good))

    # Steps of a pass.

    def _create_dependents(
        self, admission: Admission | None, needs: dependents.Needs
    ) -> dependents.Needs:
        """Create what is missing, and have the queue, if any, know what the job wants."""
        surplus = bool(self.context.view.surplus)
        asked = list(kueue_writes.request_quota(admission, surplus=surplus)) if admission else []
        more = [action for action in asked if isinstance(action, Create)]
        self.actions += [action for action in asked if not isinstance(action, Create)]
        needs = replace(needs, creates=(*needs.creates, *more))
        self.actions += [create for create in needs.creates if self._may_create(create)]
        return needs

    def _keep(self, internal: InternalStatus) -> None:
        self.context = self.context.with_internal(internal)

    def _begin(self) -> None:
        """Repair what others wrote into the status; begin a job that is seen for the first time."""
        workload = self.context.workload
        self.status.repair_unfinished(self.context.internal)
        internal, is_new = self.context.internal, not self.context.before.get("internal")
        if is_new:
            self.status.report_created()
        was_erased = not internal.attempts and not internal.paused
        # One that has pods has started, even if its status was erased.
        begins = not workload.paused or any(r.pod is not None for r in self.context.view.replicas)
        if begins and (is_new or was_erased):
            self._keep(internal.begin(self.context.now))
        warned = "\n".join(workload.warnings)
        if warned != self.context.internal.warned:
            self._keep(replace(self.context.internal, warned=warned))
            self.status.report_ignored_fields(workload.warnings)
        self.status.track_spec_hash()

    def _resume(self) -> frozenset[str]:
        before = self.context.internal
        if not before.paused and not before.evicted:
            return frozenset()
        internal, anew = pause_resume.resume(self.context)
        self._keep(internal)
        if before.paused:
            self.status.set_resumed()
        else:
            self.status.report_admitted()
        return anew

    def _resize(self) -> frozenset[str]:
        if self.context.workload.elastic is None:
            return frozenset()
        before, after = self.context.internal.size, self.context.workload.replicas
        internal, anew = elastic_size.resize(self.context)
        self._keep(internal)
        if before is not None and before != after:
            self.status.report_resized(before, after)
        return anew

    def _ends_at(self, stage: Stage) -> bool:
        """Evaluate the policies of a stage; whether one of them has ended the job."""
        return self._end_if(self._evaluate(stage))

    def _evaluate(self, stage: Stage) -> Verdict | None:
        """Take in what the policies of a stage answer; the first verdict among them."""
        verdict = None
        for evaluate in policies.BY_STAGE[stage]:
            result = evaluate(self.context, self.status)
            self.context = result.context or self.context
            self.evidence += result.evidence
            self._wake(result.wake_at)
            verdict = verdict or result.verdict
        return verdict

    def _go_on(self, *, has_failures: bool) -> None:
        """Bring the replicas to where they should be, and report where they are."""
        self.context, actions, wake_at = in_place_restart.continue_in_place(
            self.context, self.status
        )
        self.actions += actions
        self._wake(wake_at)
        self._force_deletions()
        self.actions += pod_cleanup.stop_sidecars(self.context.view)
        needs = dependents.find_needs(self.context.workload, self.context.observed, paused=False)
        needs = self._create_dependents(self.admission, needs)
        # Pods without the Service or keys that they rely on would fail (decision 26); and a job
        # that needs a gang scheduler where there is none must wait (decision 37).
        found = not needs.conflicts and all(map(self._may_create, needs.relied_on))
        if found and not self.context.workload.needs_gang:
            self._create_pods(needs.pod_group)
        is_up = self._report_running(needs)
        if self.admission is not None and self.admission.current is not None:
            self.actions += kueue_writes.report_pods_ready(
                self.admission.current, self.context.now, ready=is_up
            )
        has_recovered = is_up and not has_failures and elastic_size.has_recovered(self.context)
        self._report_replicas(has_recovered=has_recovered)

    def _create_pods(self, pod_group: str) -> None:
        places, unknown = kueue_admission.pod_placements(self.admission, self.context.observed)
        if unknown:
            return
        edits = [edit for each in policies.POD_EDITS if (edit := each(self.status.fields))]
        found, wake_at = pod_creation.pods_to_create(self.context, pod_group, places, edits)
        self._wake(wake_at)
        allowed = [(r, create) for r, create in found if self._may_create(create)]
        self.actions += [create for _, create in allowed]
        self.status.report_new_pods([replica for replica, _ in allowed], self.context.internal)

    def _may_create(self, create: Create) -> bool:
        if self.blocked.is_empty:  # asked for each of thousands
            return True
        may, until = self.blocked.may_create(create, self.context.now)
        self._wake(until)
        return may

    def _force_deletions(self) -> None:
        context = self.context
        deletes, wake_at = pod_deletion.force_deletions(
            context.observed.pods, context.now, context.settings
        )
        self.actions += deletes
        self._wake(wake_at)

    def _report_running(self, needs: dependents.Needs) -> bool:
        """Put into the status whether the job runs, and if not, why; whether it does."""
        if needs.complete and self._has_all_pods():
            self.status.set_initialized()
        self._settle()
        self._evaluate(Stage.REPLICAS)
        context = self.context
        is_running = elastic_size.is_running(context.workload, context.view)
        if is_running:
            self.status.set_running(context.view)
        else:
            reason = not_running_reasons.find_reason(context, needs)
            reason = reason or not_running_reasons.flavor_reason(context, self.admission)
            unknown = context.view.rank0_is(State.UNKNOWN)
            self.status.set_not_running(context.view, reason, unknown=unknown)
        self._evaluate(Stage.RUNNING)
        return is_running

    def _settle(self) -> None:
        """An incident is over when all replicas run again (decision 24)."""
        settles_at = elastic_size.settles_at(
            self.context, parse(self.status.fields.get("startTime"))
        )
        if settles_at is not None and settles_at > self.context.now:
            self._wake(settles_at)
        elif settles_at is not None and self.context.internal.ready_at is None:
            self._keep(replace(self.context.internal, ready_at=self.context.now))

    def _has_all_pods(self) -> bool:
        return all(r.pod is not None or r.ended for r in self.context.view.not_running)

    # The end.

    def _end_if(self, verdict: Verdict | None) -> bool:
        """End the job; whether there was a verdict.

        The terminal status is written before anything is cleaned up (decision 27). Whatever else
        this reconcile would have done is dropped.
        """
        if verdict is None:
            return False
        self.actions.clear()
        self.wake_at = None
        attempt_end = verdicts.final_attempt_end(self.context, verdict)
        self._keep(replace(self.context.internal.close(attempt_end), ended=verdict.phase.value))
        if self._has_all_pods():  # a quick end may be seen before anything else
            self.status.set_initialized()
        started = (pod.started for pod in self.context.observed.pods if pod.started is not None)
        self._evaluate(Stage.END)
        self.status.set_ended(verdict, min(started, default=self.context.now))
        self._clean_up(failed=not verdict.success)
        self._report_replicas(aggregate.removed_unless_ended, has_recovered=verdict.success)
        return True

    def _clean_up(self, *, failed: bool) -> None:
        workload = self.context.workload
        expiry = pod_cleanup.expires_at(workload, parse(self.status.fields.get("completionTime")))
        if expiry is not None and self.context.now >= expiry:
            self.actions.append(Delete(workload.resource, workload.name, workload.uid))
            return
        self._wake(expiry)
        reason = self.status.conditions.get(ConditionType.FAILED).get("reason")
        # Pods of earlier attempts go whatever the clean-up policy says: they were to go before.
        over = pod_deletion.superseded_pods(self.context.view)
        gone = {pod.uid for pod in over}
        self.actions += pod_deletion.delete_pods(over)
        self.actions += pod_cleanup.clean_up(
            workload,
            [pod for pod in self.context.observed.pods if pod.uid not in gone],
            failed=failed,
            overdue=reason == ConditionReason.DEADLINE_EXCEEDED,
        )
        self._force_deletions()
        text = str(self.status.conditions.get(ConditionType.COMPLETED).get("message", ""))
        self.actions += kueue_writes.finish_workloads(
            workload, self.context.observed, self.context.now, failed=failed, message=text
        )

    # What comes of it.

    def _wake(self, moment: datetime | None) -> None:
        self.wake_at = earliest(self.wake_at, moment)

    def _report_replicas(
        self,
        is_removed: aggregate.IsRemoved = aggregate.none_removed,
        *,
        has_recovered: bool = False,
    ) -> None:
        """Put replicas and counts into the status. `has_recovered`: what had failed is back."""
        tasks, counts = aggregate.build_tasks_and_aggregate(self.context, is_removed)
        self.status.fields |= {"tasks": tasks, "aggregate": counts}
        self.status.set_replica_failure(
            aggregate.own_failures(self.context, is_removed), counts, well=has_recovered
        )

    def result(self) -> Plan:
        """The plan; without a status when that is as it was."""
        workload, internal, new = self.context.workload, self.context.internal, self.status.fields
        new |= {"conditions": self.status.conditions.encode(), "internal": internal.encode()}
        new |= {"attempts": [*map(dict, internal.attempts)], "replicas": self.context.view.existing}
        new["observedGeneration"] = workload.generation
        new["selector"] = labels.selector(workload.uid)
        count = internal.backoff if workload.shared_budget else sum(internal.restarts.values())
        new["backoffCount" if workload.counts_backoff else "restartCount"] = count
        self._evaluate(Stage.FIELDS)
        is_new = new != self.context.before
        if is_new:
            self._evaluate(Stage.WRITE)
        actions, events = (*self.evidence, *self.actions), tuple(self.status.events)
        return Plan(new if is_new else None, actions, events, self.wake_at, self.restart_reasons)
