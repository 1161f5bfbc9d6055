"""One pass over one job: from everything seen to everything to be done.

Always computed from the whole observed state, so that it does not matter which passes were missed
or cut short. The status that a plan holds says all that its actions rely on, and is written first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from trainyard.kinds.shared import labels
from trainyard.kinds.shared.reasons import ConditionReason, ConditionType, Phase
from trainyard.kinds.shared.settings import Settings
from trainyard.kinds.shared.workload import Scope, Workload
from trainyard.lifecycle import (
    aggregate,
    cleanup,
    creation,
    deadline,
    dependents,
    elastic,
    lost,
    pause,
    restarts,
    rules,
    troubles,
    verdicts,
    viewers,
)
from trainyard.lifecycle.actions import Action, Create, Delete, Plan
from trainyard.lifecycle.ledger import Ledger, ending
from trainyard.lifecycle.observed import Observed
from trainyard.lifecycle.outcomes import State
from trainyard.lifecycle.replicas import View, entries_of, look
from trainyard.lifecycle.report import Report
from trainyard.lifecycle.verdicts import Verdict
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
    before = dict(status or {})
    has_ended = before.get("phase") in (Phase.SUCCEEDED, Phase.FAILED)
    if has_ended and workload.elastic is not None:
        workload = elastic.as_told(workload, before)
    job = _Pass(workload, before, observed, now, settings)
    if has_ended:
        job.finished()
    elif workload.paused:
        job.pause()
    else:
        job.run()
    return job.result()


@dataclass(slots=True)
class _Pass:
    """The state of one pass: what was before, and what comes of it."""

    workload: Workload
    before: dict[str, Any]
    observed: Observed
    now: datetime
    settings: Settings
    ledger: Ledger = field(init=False)
    hurdles: creation.Hurdles = field(init=False)
    view: View = field(init=False)
    report: Report = field(init=False)
    actions: list[Action] = field(default_factory=list)
    wake_at: datetime | None = None

    def __post_init__(self) -> None:
        self.ledger = Ledger.decode(self.before)
        self.view = look(self.workload, self.ledger, entries_of(self.before), self.observed)
        self.report = Report(self.workload, self.before, self.now)
        self.hurdles = creation.Hurdles.of(self.observed, self.settings)

    # The three situations of a job.

    def finished(self) -> None:
        """After the end: clean up until it is done, then expire."""
        self._clean_up(failed=self.before["phase"] == Phase.FAILED)
        self._compile(aggregate.unless_ended)

    def pause(self) -> None:
        """While paused: no pods, and no PodGroup."""
        self._welcome()
        first = not self.ledger.paused
        if first and self._end_if(self._success(self._run_again())):
            return
        if first:
            self.ledger = pause.begin(self.ledger, self.now)
        self.report.paused(first=first)
        one_by_one = self.workload.scope is Scope.REPLICA
        self._compile(aggregate.unless_ended_by_itself if one_by_one else aggregate.always)
        self.actions += creation.delete_all(self.observed.pods)
        self.actions += dependents.unpaused_only(self.workload, self.observed)
        self._force_deletions()
        needs = dependents.needs(self.workload, self.observed, paused=True)
        self.actions += [create for create in needs.creates if self._may_create(create)]

    def run(self) -> None:
        """While it runs, or should."""
        self._welcome()
        self._look_again(self._resume() | self._resize())
        if self._decided() or self._end_if(self._overdue()):
            return
        response = restarts.respond(self.workload, self.ledger, self.view, self.now, self.settings)
        self._wake(response.wake_at)
        if (
            self._end_if(self._success(response.bumped))
            or self._end_if(verdicts.removed_by_queue(self.workload, self.view))
            or self._end_if(verdicts.failure(self.workload, self.view, response))
            or self._end_if(verdicts.refused(self.workload, self.observed.refusals))
        ):
            return
        self.report.restarts(response)
        self.report.lost(response.lost)
        self.ledger = response.ledger
        self._look_again(response.bumped)
        self._go_on(well=not response.lost)

    # Steps of a pass.

    def _welcome(self) -> None:
        """What is told, and begun, when a job is seen for the first time."""
        if not self.report.phase:
            self.report.created()
            if not self.workload.paused:
                self.ledger = self.ledger.begin(self.now)
        warned = "\n".join(self.workload.warnings)
        if warned != self.ledger.warned:
            self.ledger = replace(self.ledger, warned=warned)
            self.report.ignored(self.workload.warnings)
        self.report.admitted_spec()

    def _resume(self) -> frozenset[str]:
        if not self.ledger.paused:
            return frozenset()
        self.ledger, anew = pause.end(self.workload, self.ledger, self.view, self.now)
        self.report.resumed()
        return anew

    def _resize(self) -> frozenset[str]:
        if self.workload.elastic is None:
            return frozenset()
        before = self.ledger.size
        self.ledger, anew = elastic.resize(self.workload, self.ledger, self.view, self.now)
        if before is not None and before != self.workload.replicas:
            self.report.resized(before, self.workload.replicas)
        return anew

    def _look_again(self, anew: frozenset[str]) -> None:
        """Sort the pods once more after replicas were given a new attempt."""
        if not anew:
            return
        entries = entries_of(self.before)
        for name in anew:
            entries.pop(name, None)
        self.view = look(self.workload, self.ledger, entries, self.observed)

    def _decided(self) -> bool:
        """Where one replica decides, its exit 0 ends the job before anything else is looked at."""
        return self.workload.decides is not None and self._end_if(self._success())

    def _success(self, bumped: frozenset[str] = frozenset()) -> Verdict | None:
        """`bumped`: replicas that run again, so that their exit 0 does not count yet."""
        done = {
            r.key for r in self.view.idle if r.state is State.SUCCEEDED and r.name not in bumped
        }
        return verdicts.SUCCESS if rules.succeeded(self.workload, done) else None

    def _run_again(self) -> frozenset[str]:
        return frozenset(
            r.name for r in self.view.idle if restarts.runs_again(self.workload, self.ledger, r)
        )

    def _overdue(self) -> Verdict | None:
        due = deadline.due(self.workload, parse(self.report.status.get("startTime")))
        if due is not None and self.now >= due:
            text = deadline.message(self.workload)
            return Verdict(False, ConditionReason.DEADLINE_EXCEEDED, text)
        self._wake(due)
        return None

    def _go_on(self, *, well: bool) -> None:
        """Bring the replicas to where they should be, and tell where they are."""
        needs = dependents.needs(self.workload, self.observed, paused=False)
        self.actions += creation.removals(self.view)
        self._force_deletions()
        self._stop_helpers()
        self.actions += [create for create in needs.creates if self._may_create(create)]
        if not needs.conflicts and not self.workload.needs_gang:
            self._create_pods(needs.pod_group)
        self._tell_progress(needs, well=well)
        self._compile()

    def _create_pods(self, pod_group: str) -> None:
        found, wake_at = creation.creations(
            self.workload, self.ledger, self.view, pod_group, self.now
        )
        self._wake(wake_at)
        allowed = [(r, create) for r, create in found if self._may_create(create)]
        self.actions += [create for _, create in allowed]
        self.report.new_pods([replica for replica, _ in allowed], self.ledger)

    def _may_create(self, create: Create) -> bool:
        if self.hurdles.none:
            return True
        may, until = self.hurdles.judge(create, self.now)
        self._wake(until)
        return may

    def _force_deletions(self) -> None:
        deletes, wake_at = lost.force(self.observed.pods, self.now, self.settings)
        self.actions += deletes
        self._wake(wake_at)

    def _stop_helpers(self) -> None:
        for replica in self.view.idle:
            if replica.ended and replica.pod is not None:
                patch = cleanup.stop_helpers(replica.pod)
                self.actions += [patch] if patch else []

    def _tell_progress(self, needs: dependents.Needs, *, well: bool) -> None:
        workload, view = self.workload, self.view
        self.report.unfinished()
        if needs.complete and self._has_all_pods():
            self.report.initialized()
        started = parse(self.report.status.get("startTime"))
        settles_at = elastic.settles_at(
            workload, self.ledger, view, self.now, self.settings, started=started
        )
        if settles_at is not None and settles_at > self.now:
            self._wake(settles_at)
        elif settles_at is not None and self.ledger.ready_at is None:
            self.ledger = replace(self.ledger, ready_at=self.now)
        if elastic.is_up(workload, view):
            together = workload.scope is Scope.JOB and self.ledger.ready_at is not None
            self.report.up(well=well and (together or all(r.ended for r in view.idle)))
            self._wake(deadline.due(workload, parse(self.report.status["startTime"])))
            return
        trouble = troubles.find(workload, needs, self.observed, view.idle)
        unknown = view.rank0_is(State.UNKNOWN)
        self.report.down(view, trouble, unknown=unknown)

    def _has_all_pods(self) -> bool:
        return all(r.pod is not None or r.ended for r in self.view.idle)

    # The end.

    def _end_if(self, verdict: Verdict | None) -> bool:
        """End the job; the terminal status is written before anything is cleaned up."""
        if verdict is None:
            return False
        self.actions.clear()
        self.wake_at = None
        self.ledger = self.ledger.close(self._last_words(verdict))
        if self._has_all_pods():  # a quick end may be seen before anything else
            self.report.initialized()
        started = (pod.started for pod in self.observed.pods if pod.started is not None)
        self.report.ended(verdict, min(started, default=self.now))
        self._clean_up(failed=not verdict.success)
        self._compile(aggregate.unless_ended)
        return True

    def _last_words(self, verdict: Verdict) -> dict[str, Any]:
        cause = verdict.cause
        if cause is None or cause.exit is None:
            return ending(self.now, verdict.reason)
        if self.workload.scope is Scope.REPLICA:
            return restarts.last_attempt(self.ledger, cause, self.now)
        return ending(self.now, cause.exit.reason or "Error", cause.name, cause.exit)

    def _clean_up(self, *, failed: bool) -> None:
        expiry = cleanup.expiry(self.workload, parse(self.report.status.get("completionTime")))
        if expiry is not None and self.now >= expiry:
            self.actions.append(
                Delete(self.workload.resource, self.workload.name, self.workload.uid)
            )
            return
        self._wake(expiry)
        reason = self.report.conditions.get(ConditionType.FAILED).get("reason")
        over = creation.superseded(self.view)  # whatever the policy: they were to go before
        gone = {pod.uid for pod in over}
        self.actions += creation.delete_all(over)
        self.actions += cleanup.clean_up(
            self.workload,
            [pod for pod in self.observed.pods if pod.uid not in gone],
            failed=failed,
            overdue=reason == ConditionReason.DEADLINE_EXCEEDED,
        )
        self._force_deletions()

    # What comes of it.

    def _wake(self, moment: datetime | None) -> None:
        self.wake_at = earliest(self.wake_at, moment)

    def _compile(self, is_removed: aggregate.IsRemoved = aggregate.never) -> None:
        tasks, counts = aggregate.compile_tasks(
            self.workload, self.view, self.ledger.restarts, is_removed
        )
        self.report.status |= {"tasks": tasks, "aggregate": counts}

    def result(self) -> Plan:
        """The plan; without a status when that is as it was."""
        workload, new = self.workload, self.report.status
        new["conditions"] = self.report.conditions.encode()
        new["internal"] = self.ledger.encode()
        new["attempts"] = [dict(attempt) for attempt in self.ledger.attempts]
        new["observedGeneration"] = workload.generation
        new["replicas"] = self.view.existing
        new["selector"] = labels.selector(workload.uid)
        if workload.counts_backoff:
            new["backoffCount"] = self.ledger.backoff
        else:
            new["restartCount"] = sum(self.ledger.restarts.values())
        if viewer := viewers.dependent_status(workload, self.observed):
            new["tensorboard"] = viewer
        changed = new if new != self.before else None
        return Plan(changed, tuple(self.actions), tuple(self.report.events), self.wake_at)
