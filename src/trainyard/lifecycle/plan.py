"""One pass over one job: from everything seen to everything to be done.

Always computed from the whole observed state, so that it does not matter which passes were missed
or cut short. The status that a plan holds says all that its actions rely on, and is written first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Any

from trainyard.kinds.shared import labels
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.reasons import ConditionReason, ConditionType, Phase
from trainyard.kinds.shared.workload import Workload
from trainyard.lifecycle import pause_resume
from trainyard.lifecycle.actions import Action, Create, Delete, Plan
from trainyard.lifecycle.completion import deadline, verdicts
from trainyard.lifecycle.completion.verdicts import Verdict
from trainyard.lifecycle.elastic import elastic_size
from trainyard.lifecycle.goodput import goodput_status
from trainyard.lifecycle.hang import hang_policy
from trainyard.lifecycle.in_place import in_place_restart
from trainyard.lifecycle.kueue import kueue_admission, kueue_writes
from trainyard.lifecycle.launch import launch_policy
from trainyard.lifecycle.ledger import Ledger, final_phase
from trainyard.lifecycle.node_check import node_check_avoidance, node_check_policy
from trainyard.lifecycle.observed import Observed
from trainyard.lifecycle.outcomes import State
from trainyard.lifecycle.pods import dependents, pod_cleanup, pod_creation, pod_deletion
from trainyard.lifecycle.pods.blocked_creations import BlockedCreations
from trainyard.lifecycle.progress import progress_status
from trainyard.lifecycle.reconcile_context import ReconcileContext, RestartDecision
from trainyard.lifecycle.status import (
    aggregate,
    not_running_reasons,
    status_parsing,
)
from trainyard.lifecycle.status.status_builder import StatusBuilder
from trainyard.lifecycle.straggler import straggler_status
from trainyard.lifecycle.viewer import viewer_links
from trainyard.schema.dataclass import dataclass
from trainyard.schema.times import earliest, parse

ENDS: Sequence[Callable[[ReconcileContext, RestartDecision], Verdict | None]] = (
    verdicts.success_after_restarts,
    verdicts.removed_by_queue,
    verdicts.failure_by_pod_failure_rule,
    verdicts.failure_for_good,
    verdicts.pod_refused_as_invalid,
)
"""The policies that may end a running job, the first one that does decides."""


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
    before = status_parsing.parse_status(status or {})
    has_ended = bool(final_phase(before))
    if has_ended and workload.elastic is not None:
        workload = elastic_size.at_reported_size(workload, before)
    standing = None if has_ended else kueue_admission.find_admission(workload, observed)
    if standing is not None and not workload.paused:
        workload = kueue_admission.at_admitted_size(workload, standing)
    steps = _Reconcile(ReconcileContext.begin(workload, before, observed, now, settings), standing)
    if has_ended:
        steps.finished()
    elif workload.paused:
        steps.pause()
    elif standing is not None and not standing.is_admitted:
        steps.wait(standing)
    else:
        steps.run()
    return steps.result()


@dataclass(slots=True)
class _Reconcile:
    """What comes of a pass, step by step."""

    job: ReconcileContext
    standing: kueue_admission.Admission | None
    report: StatusBuilder = field(init=False)
    blocked: BlockedCreations = field(init=False)
    actions: list[Action] = field(default_factory=list)
    wake_at: datetime | None = None
    restarted: tuple[str, ...] = ()
    found: tuple[Create, ...] = ()  # evidence: kept whatever else follows

    def __post_init__(self) -> None:
        self.report = StatusBuilder(self.job.workload, self.job.before, self.job.now)
        self.blocked = BlockedCreations.of(self.job.observed, self.job.settings)

    # The four situations of a job.

    def finished(self) -> None:
        """After the end, which is final (decision 27): clean up until it is done, then expire."""
        self._keep(replace(self.job.ledger, ended=final_phase(self.job.before)))
        self.report.remains(self.job.ledger)
        failed = self.job.ledger.ended == Phase.FAILED
        self._clean_up(failed=failed)
        self._compile(aggregate.removed_unless_ended, well=not failed)

    def pause(self) -> None:
        """While paused: no pods, and no PodGroup."""
        self._welcome()
        first = not self.job.ledger.paused
        # Decision 22: a job that has succeeded is not paused any more.
        if first and self._end_if(verdicts.success_before_pause(self.job)):
            return
        if first:
            self._keep(pause_resume.pause(self.job.ledger, self.job.now))
        self.report.paused(first=first)
        self._compile(aggregate.removed_with_all_pods(self.job.workload))
        self.actions += pod_deletion.delete_pods(self.job.observed.pods)
        self.actions += dependents.delete_unpaused_only(self.job.workload, self.job.observed)
        self._force_deletions()
        needs = dependents.find_needs(self.job.workload, self.job.observed, paused=True)
        self.actions += [create for create in needs.creates if self._may_create(create)]
        if not self.job.observed.pods:
            self.actions += kueue_writes.delete_workloads(self.standing)

    def wait(self, standing: kueue_admission.Admission) -> None:
        """While a queue does not admit it, or has taken that back: no pods (decision 171)."""
        self._welcome()
        job, ledger = self.job, self.job.ledger
        has_begun = any(r.pod is not None or r.entry is not None for r in job.view.replicas)
        evicted = has_begun and not ledger.held and not ledger.paused
        if evicted and self._end_if(verdicts.success_before_pause(job)):
            return
        if evicted or ledger.paused:
            self._keep(pause_resume.evict(ledger, job.now))
            self.job = job = self.job.sorted_anew()  # what is taken from it now costs nothing
        if ledger.paused:
            self.report.resumed()
        self.actions += pod_deletion.delete_pods(job.observed.pods)
        self._force_deletions()
        needs = self._ask(standing, dependents.find_needs(job.workload, job.observed, paused=False))
        if not job.observed.pods:
            self.actions += kueue_writes.return_quota(standing, job.now)
        self.report.waits(
            not_running_reasons.admission_reason(job, needs, standing, evicted), evicted=evicted
        )
        self._compile(
            aggregate.removed_with_all_pods(job.workload)
            if self.job.ledger.held
            else aggregate.none_removed
        )

    def run(self) -> None:
        """While it runs, or should."""
        self._welcome()
        anew = self._resume() | self._resize()
        self.job = launch_policy.fail_overdue(self.job.look_again(anew))
        if self._has_decided() or self._end_if(self._overdue()) or self._hangs():
            return
        response = in_place_restart.decide(self.job)
        self._wake(response.wake_at)
        if any(self._end_if(policy(self.job, response)) for policy in ENDS):
            return
        self.report.restarts(response)
        self.restarted = tuple(incident.reason for incident in response.incidents)
        self._keep(response.ledger)
        self.job = self.job.look_again(response.restarted)
        self._go_on(well=not response.failed_for_good)

    # Steps of a pass.

    def _ask(
        self, standing: kueue_admission.Admission | None, needs: dependents.Needs
    ) -> dependents.Needs:
        """Create what is missing, and have the queue, if any, know what the job wants."""
        surplus = bool(self.job.view.surplus)
        asked = list(kueue_writes.request_quota(standing, surplus=surplus)) if standing else []
        more = [action for action in asked if isinstance(action, Create)]
        self.actions += [action for action in asked if not isinstance(action, Create)]
        needs = replace(needs, creates=(*needs.creates, *more))
        self.actions += [create for create in needs.creates if self._may_create(create)]
        return needs

    def _keep(self, ledger: Ledger) -> None:
        self.job = self.job.having(ledger)

    def _welcome(self) -> None:
        """What is told, and begun, when a job is seen for the first time."""
        workload = self.job.workload
        self.report.goes_on(self.job.ledger)
        ledger, is_new = self.job.ledger, not self.job.before.get("internal")
        if is_new:
            self.report.created()
        was_erased = not ledger.attempts and not ledger.paused
        # One that has pods has started, even if its status was erased.
        begins = not workload.paused or any(r.pod is not None for r in self.job.view.replicas)
        if begins and (is_new or was_erased):
            self._keep(ledger.begin(self.job.now))
        warned = "\n".join(workload.warnings)
        if warned != self.job.ledger.warned:
            self._keep(replace(self.job.ledger, warned=warned))
            self.report.ignored(workload.warnings)
        self.report.admitted_spec()

    def _resume(self) -> frozenset[str]:
        before = self.job.ledger
        if not before.paused and not before.held:
            return frozenset()
        ledger, anew = pause_resume.resume(self.job)
        self._keep(ledger)
        if before.paused:
            self.report.resumed()
        else:
            self.report.admitted()
        return anew

    def _resize(self) -> frozenset[str]:
        if self.job.workload.elastic is None:
            return frozenset()
        before, after = self.job.ledger.size, self.job.workload.replicas
        ledger, anew = elastic_size.resize(self.job)
        self._keep(ledger)
        if before is not None and before != after:
            self.report.resized(before, after)
        return anew

    def _has_decided(self) -> bool:
        """Where one replica decides, its exit 0 ends the job before anything else is looked at."""
        if self.job.workload.decides is None:
            return False
        return self._end_if(verdicts.success(self.job, self.job.ledger, frozenset()))

    def _overdue(self) -> Verdict | None:
        due = self._due()
        if due is not None and self.job.now >= due:
            return deadline.deadline_verdict(self.job.workload)
        self._wake(due)
        return None

    def _hangs(self) -> bool:
        """Whether the job ends since its ranks get nowhere."""
        seen = hang_policy.observe(self.job)
        self.report.events += hang_policy.report_hang(seen, self.report.conditions)
        straggler_status.report_stragglers(self.job, self.report)
        self.found, self.job = (
            hang_policy.evidence_to_create(self.job, seen),
            hang_policy.fail_culprit(self.job, seen),
        )
        self.job, due = node_check_policy.evaluate(self.job, self.report)
        self._wake(earliest(seen.due, due))
        return self._end_if(hang_policy.hang_verdict(self.job, seen))

    def _due(self) -> datetime | None:
        return deadline.deadline_of(self.job.workload, parse(self.report.status.get("startTime")))

    def _go_on(self, *, well: bool) -> None:
        """Bring the replicas to where they should be, and tell where they are."""
        self.job, actions, wake_at = in_place_restart.continue_in_place(self.job, self.report)
        self.actions += actions
        self._wake(wake_at)
        self._force_deletions()
        self.actions += pod_cleanup.stop_sidecars(self.job.view)
        needs = dependents.find_needs(self.job.workload, self.job.observed, paused=False)
        needs = self._ask(self.standing, needs)
        # Pods without the Service or keys that they rely on would fail (decision 26); and a job
        # that needs a gang scheduler where there is none must wait (decision 37).
        found = not needs.conflicts and all(map(self._may_create, needs.relied_on))
        if found and not self.job.workload.needs_gang:
            self._create_pods(needs.pod_group)
        is_up = self._tell_progress(needs)
        if self.standing is not None and self.standing.current is not None:
            self.actions += kueue_writes.report_pods_ready(
                self.standing.current, self.job.now, ready=is_up
            )
        self._compile(well=well and is_up and elastic_size.has_recovered(self.job))

    def _create_pods(self, pod_group: str) -> None:
        places, unknown = kueue_admission.pod_placements(self.standing, self.job.observed)
        if unknown:
            return
        avoided = node_check_avoidance.avoided_nodes(self.report.status)
        found, wake_at = pod_creation.pods_to_create(self.job, pod_group, places, avoided)
        self._wake(wake_at)
        allowed = [(r, create) for r, create in found if self._may_create(create)]
        self.actions += [create for _, create in allowed]
        self.report.new_pods([replica for replica, _ in allowed], self.job.ledger)

    def _may_create(self, create: Create) -> bool:
        if self.blocked.none:  # asked for each of thousands
            return True
        may, until = self.blocked.judge(create, self.job.now)
        self._wake(until)
        return may

    def _force_deletions(self) -> None:
        job = self.job
        deletes, wake_at = pod_deletion.force_deletions(job.observed.pods, job.now, job.settings)
        self.actions += deletes
        self._wake(wake_at)

    def _tell_progress(self, needs: dependents.Needs) -> bool:
        """Whether the job runs."""
        if needs.complete and self._has_all_pods():
            self.report.initialized()
        self._settle()
        self._wake(launch_policy.report_launch(self.job, self.report))
        job = self.job
        if elastic_size.is_running(job.workload, job.view):
            self.report.up(job.view)
            self._wake(self._due())
            return True
        trouble = not_running_reasons.find_reason(job, needs) or not_running_reasons.flavor_reason(
            job, self.standing
        )
        self.report.down(job.view, trouble, unknown=job.view.rank0_is(State.UNKNOWN))
        return False

    def _settle(self) -> None:
        """An incident is over when all replicas run again (decision 24)."""
        settles_at = elastic_size.settles_at(self.job, parse(self.report.status.get("startTime")))
        if settles_at is not None and settles_at > self.job.now:
            self._wake(settles_at)
        elif settles_at is not None and self.job.ledger.ready_at is None:
            self._keep(replace(self.job.ledger, ready_at=self.job.now))

    def _has_all_pods(self) -> bool:
        return all(r.pod is not None or r.ended for r in self.job.view.not_running)

    # The end.

    def _end_if(self, verdict: Verdict | None) -> bool:
        """End the job; the terminal status is written before anything is cleaned up (decision 27).
        What this pass would have done else is forgotten."""
        if verdict is None:
            return False
        self.actions.clear()
        self.wake_at = None
        words = verdicts.final_attempt_end(self.job, verdict)
        self._keep(replace(self.job.ledger.close(words), ended=verdict.phase.value))
        if self._has_all_pods():  # a quick end may be seen before anything else
            self.report.initialized()
        started = (pod.started for pod in self.job.observed.pods if pod.started is not None)
        self.report.events += hang_policy.ranks_never_met_event(
            self.job, verdict
        )  # before the event of the end
        self.report.ended(verdict, min(started, default=self.job.now))
        self._clean_up(failed=not verdict.success)
        self._compile(aggregate.removed_unless_ended, well=verdict.success)
        return True

    def _clean_up(self, *, failed: bool) -> None:
        workload = self.job.workload
        expiry = pod_cleanup.expires_at(workload, parse(self.report.status.get("completionTime")))
        if expiry is not None and self.job.now >= expiry:
            self.actions.append(Delete(workload.resource, workload.name, workload.uid))
            return
        self._wake(expiry)
        reason = self.report.conditions.get(ConditionType.FAILED).get("reason")
        over = pod_deletion.superseded_pods(
            self.job.view
        )  # whatever the policy: they were to go before
        gone = {pod.uid for pod in over}
        self.actions += pod_deletion.delete_pods(over)
        self.actions += pod_cleanup.clean_up(
            workload,
            [pod for pod in self.job.observed.pods if pod.uid not in gone],
            failed=failed,
            overdue=reason == ConditionReason.DEADLINE_EXCEEDED,
        )
        self._force_deletions()
        text = str(self.report.conditions.get(ConditionType.COMPLETED).get("message", ""))
        self.actions += kueue_writes.finish_workloads(
            workload, self.job.observed, self.job.now, failed=failed, message=text
        )

    # What comes of it.

    def _wake(self, moment: datetime | None) -> None:
        self.wake_at = earliest(self.wake_at, moment)

    def _compile(
        self, is_removed: aggregate.IsRemoved = aggregate.none_removed, *, well: bool = False
    ) -> None:
        """Tell of the replicas. `well`: what had failed before is back."""
        tasks, counts = aggregate.build_tasks_and_aggregate(self.job, is_removed)
        self.report.status |= {"tasks": tasks, "aggregate": counts}
        self.report.replicas(aggregate.own_failures(self.job, is_removed), counts, well=well)

    def result(self) -> Plan:
        """The plan; without a status when that is as it was."""
        workload, ledger, new = self.job.workload, self.job.ledger, self.report.status
        new |= {"conditions": self.report.conditions.encode(), "internal": ledger.encode()}
        new |= {"attempts": [*map(dict, ledger.attempts)], "replicas": self.job.view.existing}
        new["observedGeneration"] = workload.generation
        new["selector"] = labels.selector(workload.uid)
        count = ledger.backoff if workload.counts_backoff else sum(ledger.restarts.values())
        new["backoffCount" if workload.counts_backoff else "restartCount"] = count
        new |= viewer_links.viewer_status_fields(workload, self.job.observed)
        if not final_phase(self.job.before):  # what is said after the end changes nothing
            self._wake(progress_status.put_progress(new, self.job))
        status = (
            goodput_status.account_time(self.job, dict(new)) if new != self.job.before else None
        )
        actions, events = (*self.found, *self.actions), tuple(self.report.events)
        return Plan(status, actions, events, self.wake_at, self.restarted)
