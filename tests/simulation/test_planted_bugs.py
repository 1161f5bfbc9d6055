"""The simulation can fail: each of these mistakes, planted into the real code, is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.__main__ import main
from tests.simulation.replay import Difference, replay
from tests.simulation.run import simulate
from tests.simulation.scenario import draw
from tests.simulation.shrink import invariant, shrink, violated
from trainyard.kinds.shared.goodput.goodput_parts import GoodputPart
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.workload import HangAction, Workload
from trainyard.lifecycle import plan as plan_of_a_job
from trainyard.lifecycle import reconcile_context, replica_state
from trainyard.lifecycle.actions import Delete, Plan
from trainyard.lifecycle.elastic import elastic_restarts
from trainyard.lifecycle.goodput import goodput_status
from trainyard.lifecycle.hang import hang_detector, hang_policy, hang_texts
from trainyard.lifecycle.in_place import in_place_pods, in_place_restart
from trainyard.lifecycle.internal_status import InternalStatus
from trainyard.lifecycle.kueue import kueue_writes
from trainyard.lifecycle.node_check import node_check_avoidance
from trainyard.lifecycle.observed import Observed
from trainyard.lifecycle.pods import dependents
from trainyard.lifecycle.progress import progress_status
from trainyard.lifecycle.progress.progress_since_restart import TrainingPosition
from trainyard.lifecycle.reconcile_context import ReconcileContext, RestartDecision
from trainyard.lifecycle.replica_state import Exit, State
from trainyard.lifecycle.replica_view import Replica
from trainyard.lifecycle.restart import (
    group_restarts,
    pod_failure_rules,
    repeated_failures,
    restart_policies,
)
from trainyard.lifecycle.status.status_builder import StatusBuilder
from trainyard.operator.reconcile import planner
from trainyard.operator.reconcile.executor import Executor, ReconcileResult
from trainyard.operator.reconcile.job_records import JobRecord
from trainyard.operator.reconcile.object_cache import ObjectCache
from trainyard.operator.reconcile.work_queue import WorkQueue

SEEDS = 400
TERMINAL = ("Succeeded", "Failed")

Plant = Callable[[pytest.MonkeyPatch], None]


def found(monkeypatch: pytest.MonkeyPatch, plant: Plant, first: int = 0) -> tuple[int, str]:
    """The first violation that the planted bug leads to from that seed on, after its own seed."""
    plant(monkeypatch)
    seeds = range(first, first + SEEDS)
    return next(((seed, text) for seed in seeds if (text := violated(seed))), (-1, ""))


def drop_the_expectation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache does not take in the controller's own writes."""
    monkeypatch.setattr(ObjectCache, "record_own_write", lambda store, item: None)


def delete_first(is_meant: Callable[[Plan], bool]) -> Plant:
    """Pods are deleted before the status is written."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        execute = Executor.execute

        async def hasty(self: Executor, job: JobRecord, plan: Plan) -> ReconcileResult:
            if plan.status is not None and is_meant(plan):
                await self._act(job, [a for a in plan.actions if isinstance(a, Delete)])
            return await execute(self, job, plan)

        monkeypatch.setattr(Executor, "execute", hasty)

    return plant


def ends_the_job(plan: Plan) -> bool:
    """Whether a plan writes the terminal status."""
    return plan.status is not None and plan.status.get("phase") in TERMINAL


def ignore_409(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conflict on the status does not void the plan."""
    write_status = Executor._write_status

    async def stubborn(self: Executor, job: JobRecord, plan: Plan) -> JobRecord | ReconcileResult:
        stored = await write_status(self, job, plan)
        return job if stored is ReconcileResult.STALE else stored

    monkeypatch.setattr(Executor, "_write_status", stubborn)


def restart_after_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner does not ask first whether the job has ended."""

    def amnesiac(
        workload: Workload,
        status: Mapping[str, Any] | None,
        observed: Observed,
        now: datetime,
        settings: Settings,
    ) -> Plan:
        if status and status.get("phase") in TERMINAL:
            account = {k: v for k, v in status["internal"].items() if k != "ended"}
            status = {**status, "phase": "Running", "internal": account}
        return plan_of_a_job(workload, status, observed, now, settings)

    monkeypatch.setattr(planner, "plan", amnesiac)


def lose_a_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delayed wake-ups never fire."""
    monkeypatch.setattr(WorkQueue, "set_wakeup", lambda queue, key, when: None)


def act_on_a_stale_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new list after 410 does not remove what has gone in between."""

    def replace(store: ObjectCache[Any], items: Sequence[Any], resource_version: str) -> None:
        for item in items:
            store.upsert(item)

    monkeypatch.setattr(ObjectCache, "replace", replace)


def count_an_eviction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that the cluster took away counts as failed by itself."""
    monkeypatch.setattr(replica_state, "is_disruption", lambda pod: False)


def count_what_a_rule_ignores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule of podFailurePolicy that ignores a failure does not keep it from being counted."""

    def strict(*given: Any) -> tuple[State, Exit]:
        state, end = judge(*given)
        return state, replace(end, free=False) if end.ruling else end

    judge = pod_failure_rules.apply_rules
    monkeypatch.setattr(pod_failure_rules, "apply_rules", strict)


def go_on_after_a_fatal_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule of podFailurePolicy that fails the job is not heeded."""
    monkeypatch.setattr(restart_policies, "fails_job", lambda replica: False)


def restart_others_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an elastic job the others start anew too where one fails that has just come."""
    monkeypatch.setattr(elastic_restarts, "decide", group_restarts.decide)


def forgive_newcomers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer's failure costs nothing."""

    def forgiving(
        context: ReconcileContext, down: Sequence[Replica]
    ) -> tuple[list[Replica], list[Replica]]:
        excused, own = split(context, down)
        ends = ((r, replace(r.exit or Exit(), free=True)) for r in own)
        return excused, [replica._replace(exit=end) for replica, end in ends]

    split = elastic_restarts._split
    monkeypatch.setattr(elastic_restarts, "_split", forgiving)


def charge_survivors(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails because members of an elastic job changed is counted."""

    def charging(context: ReconcileContext, excused: Sequence[Replica]) -> RestartDecision:
        response = take_in(context, excused)
        internal = response.internal
        return replace(
            response, internal=replace(internal, backoff=internal.backoff + len(excused))
        )

    take_in = elastic_restarts._excuse
    monkeypatch.setattr(elastic_restarts, "_excuse", charging)


def rely_on_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods are created though a Service of their job is refused."""

    def needs(*given: Any, **named: Any) -> dependents.Needs:
        return replace(look(*given, **named), relied_on=())

    look = dependents.find_needs
    monkeypatch.setattr(dependents, "find_needs", needs)


def write_nothing(name: str) -> Plant:
    """What this function of `kueue_writes` writes into a job's Workload of Kueue is not written."""
    return lambda monkeypatch: monkeypatch.setattr(kueue_writes, name, lambda *given, **named: ())


def call_every_job_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pass says that the job has been created."""
    repair = StatusBuilder.repair_unfinished

    def welcome(self: StatusBuilder, internal: InternalStatus) -> None:
        repair(self, internal)
        self.report_created()

    monkeypatch.setattr(StatusBuilder, "repair_unfinished", welcome)


def forget_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader begins a job's progress anew."""
    monkeypatch.setattr(progress_status, "_stored_progress", lambda status: {})


def act_on_a_suspicion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is found of ranks is a hang."""
    monkeypatch.setattr(hang_detector.Finding, "is_hang", property(lambda finding: True))


def declare_a_hang_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that wait are not given the time that the job gives them."""
    timed = hang_policy._with_due_time

    def hasty(ranks: Any, verdict: Any, policy: Any, now: datetime) -> hang_policy.HangObservation:
        return timed(ranks, verdict, replace(policy, after_seconds=0), now)

    monkeypatch.setattr(hang_policy, "_with_due_time", hasty)


def call_work_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that works, and for which others wait, is to blame."""
    monkeypatch.setattr(hang_detector, "BUSY", "-")


def take_reports_of_pods_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of pods that are gone are taken for those of their successors."""
    monkeypatch.setattr(hang_policy, "_is_current", lambda replica, rank: replica is not None)


def blame_another_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank after the one that hangs is named."""
    monkeypatch.setattr(
        hang_texts, "describe_rank", lambda rank: f"{rank.pod} (rank {rank.rank + 1})"
    )


def keep_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the ranks of a job that hangs were doing is not written."""
    monkeypatch.setattr(hang_policy, "evidence_to_create", lambda *_: ())


def start_in_place_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt starts in pods whose processes have not ended."""
    monkeypatch.setattr(in_place_restart, "_is_waiting", lambda job, pod: True)


def take_reports_of_attempts_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """How an attempt ended is taken for the end of the one that follows in the same pod."""
    monkeypatch.setattr(in_place_pods, "current_report", lambda pod, report: report)


def account_for(seconds: Callable[[float], float]) -> Plant:
    """Time that passes is accounted for as something else."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        add = goodput_status._add_seconds
        monkeypatch.setattr(
            goodput_status, "_add_seconds", lambda known, part, s: add(known, part, seconds(s))
        )

    return plant


def train_while_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause is taken for training."""
    state = goodput_status._current_part

    def busy(status: Mapping[str, Any], internal: InternalStatus) -> GoodputPart | None:
        return GoodputPart.TRAINING if internal.paused else state(status, internal)

    monkeypatch.setattr(goodput_status, "_current_part", busy)


def throw_lost_work_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """What turns out to be lost is taken from training, and told nowhere."""
    move = goodput_status._move_seconds

    def careless(
        told: Any, attempts: Any, one: GoodputPart, other: GoodputPart, seconds: float
    ) -> float:
        moved = move(told, attempts, one, other, seconds)
        for each in (told, *attempts) if other is GoodputPart.LOST else ():
            each.pop(other.value, None)
        return moved

    monkeypatch.setattr(goodput_status, "_move_seconds", careless)


def judge_the_first_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came once is taken for what always comes."""
    for module in (reconcile_context, repeated_failures):
        monkeypatch.setattr(module, "REPEATS_IN_VAIN", 1)


def take_what_passes_for_lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures that may pass are all one, and last."""
    cause = repeated_failures.describe_lasting_cause
    monkeypatch.setattr(
        repeated_failures,
        "describe_lasting_cause",
        lambda end: cause(end) if end is None or end.free or cause(end)[1] else ("it", "passes"),
    )


def keep_off_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods are not kept off the nodes that their job avoids."""
    monkeypatch.setattr(node_check_avoidance, "add_node_affinity", lambda pod, avoided: pod)


def stay_on_bad_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a check came to moves no pod."""
    monkeypatch.setattr(node_check_avoidance, "pods_leaving", lambda status: {})


def charge_for_bad_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that leaves its node costs a restart."""
    found = node_check_avoidance._on_bad_nodes

    def charged(context: ReconcileContext, leaving: Mapping[str, str]) -> dict[str, Exit]:
        return {name: replace(end, free=False) for name, end in found(context, leaving).items()}

    monkeypatch.setattr(node_check_avoidance, "_on_bad_nodes", charged)


def insist_on_other_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What finds no other node waits for ever."""
    monkeypatch.setattr(node_check_avoidance, "UNSCHEDULABLE_LIMIT", timedelta(days=9))


def give_restarts_back_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not asked whether a job has got further."""
    monkeypatch.setattr(TrainingPosition, "is_further_than", lambda now, before: True)


def give_restarts_back_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not asked whether a job wants them back."""
    refilled = repeated_failures.with_refilled_budget

    def generous(context: ReconcileContext) -> ReconcileContext:
        given = refilled(
            replace(context, workload=replace(context.workload, resets_budget_on_progress=True))
        )
        return replace(given, workload=context.workload)

    monkeypatch.setattr(repeated_failures, "with_refilled_budget", generous)


def restart_for_every_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not asked what is to follow from a hang."""
    give_up = hang_policy.fail_culprit

    def hasty(context: ReconcileContext, seen: hang_policy.HangObservation) -> ReconcileContext:
        if context.workload.hang is None:
            return context
        policy = replace(context.workload.hang, action=HangAction.RESTART)
        acted = give_up(replace(context, workload=replace(context.workload, hang=policy)), seen)
        return replace(acted, workload=context.workload)

    monkeypatch.setattr(hang_policy, "fail_culprit", hasty)


def count_other_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any failure goes on with the row of the one before."""
    cause = repeated_failures.describe_lasting_cause
    monkeypatch.setattr(
        repeated_failures, "describe_lasting_cause", lambda end: (cause(end)[0], "the same")
    )


BUGS: Mapping[str, tuple[Plant, str]] = {
    "drop the expectation": (drop_the_expectation, "is asked for again"),
    "delete before counting": (delete_first(lambda plan: True), "before the status says why"),
    "ignore 409": (ignore_409, ""),
    "restart after terminal": (restart_after_terminal, ""),
    "lose a delayed wake-up": (lose_a_wake_up, "has not ended"),
    "act on a stale list after 410": (act_on_a_stale_list, ""),
    "count an eviction": (count_an_eviction, "is [0-9]+, really"),
    "count what a rule ignores": (
        count_what_a_rule_ignores,
        "is [0-9]+, really|ignores this failure",
    ),
    "go on after a fatal exit": (
        go_on_after_a_fatal_exit,
        "and another came|is created again|fails the job",
    ),
    "restart others along": (restart_others_along, "though its elastic job needs it"),
    "forgive newcomers": (forgive_newcomers, "was taken away|spent 0 restarts"),
    "charge survivors": (
        charge_survivors,
        "spent [1-9] restarts|above the limit|backoffCount \\d+, then",
    ),
    "rely on nothing": (rely_on_nothing, "do not come to be"),
    "keep a paused job in its queue": (write_nothing("delete_workloads"), "Workload .* is left"),
    "keep the quota of a job that has ended": (
        write_nothing("finish_workloads"),
        "Workload .* is left",
    ),
    "call every job new": (call_every_job_new, "it was there before"),
    "forget what was told": (forget_progress, "that was told is gone"),
    "act on a suspicion": (act_on_a_suspicion, "no judge knows this text"),
    "declare a hang at once": (declare_a_hang_at_once, "have done so for less than"),
    "call work a hang": (call_work_a_hang, "are at work"),
    "hear those before": (take_reports_of_pods_before, "have reported|no rank has reported"),
    "blame another rank": (
        blame_another_rank,
        "have reported|for less than|are at work|wait for themselves",
    ),
    "keep no evidence of a hang": (keep_no_evidence, "no evidence of it is kept"),
    "start in place at once": (start_in_place_at_once, "is to start attempt .* while one runs"),
    "hear an earlier attempt": (take_reports_of_attempts_before, "."),
    "account for half of the time": (account_for(lambda s: s / 2), "goodput has .* s of"),
    "account for no short times": (account_for(lambda s: s if s > 1 else 0), "goodput has .* s of"),
    "train while paused": (train_while_paused, "phase Paused, time goes to training"),
    "throw lost work away": (throw_lost_work_away, "goodput (has|fell)"),
    "judge the first failure": (judge_the_first_failure, "what came once|once is not again"),
    "take what passes for lasting": (
        take_what_passes_for_lasting,
        "ended by its judge for|the last attempt|before were",
    ),
    "count other causes": (
        count_other_causes,
        "ended by its judge for|the last attempt|before were",
    ),
    "give restarts back for nothing": (give_restarts_back_for_nothing, "are given back at"),
    "give restarts back to all": (give_restarts_back_to_all, "backoffCount fell"),
    "restart for every hang": (restart_for_every_hang, r"did not end so|runPolicy\.hang says"),
    "keep off nothing": (keep_off_nothing, "and not kept off"),
    "stay on bad nodes": (stay_on_bad_nodes, "stays on"),
    "charge for bad nodes": (
        charge_for_bad_nodes,
        "is [0-9]+, really|did not end so|has failed: .*BadNode",
    ),
    "insist on other nodes": (insist_on_other_nodes, "has not ended"),
    "clean up before the terminal write": (
        delete_first(ends_the_job),
        "before the status says why",
    ),
}


RARE = {
    "start in place at once": 400,
    "call work a hang": 400,
    "keep a paused job in its queue": 1650,
}
"""Seeds from which on bugs are looked for that take much to show."""


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, kind = BUGS[name]
    _, violation = found(monkeypatch, plant, RARE.get(name, 0))
    assert violation, f"{name}: not found in {SEEDS} seeds"
    assert re.search(kind, violation), violation
    print(f"{name}: {violation}")


@pytest.mark.parametrize("name", ["count an eviction", "lose a delayed wake-up"])
def test_a_failing_run_is_made_small(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seed, violation = found(monkeypatch, BUGS[name][0])
    small = shrink(seed)
    assert small is not None
    assert invariant(small.violation) == invariant(violation)
    assert violated(seed, small.without) == small.violation
    assert 2 * len(small.kept) <= len(draw(seed).elements())
    without_one = [violated(seed, (*small.without, name)) for name in small.kept]
    assert invariant(violation) not in map(invariant, without_one)  # nothing more can go
    print(small)


def test_the_command_makes_a_failing_run_small_and_replays_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed, violation = found(monkeypatch, count_an_eviction)
    trace, again = tmp_path / "diary.jsonl", tmp_path / "again.jsonl"
    assert main(["--seed", str(seed), "--shrink", "--trace", str(trace)]) == 1
    told = capsys.readouterr().out
    assert told.startswith(violation)
    assert "evict" in told
    command = told.split("replay: python -m tests.simulation ")[1].split()
    assert command[-2:] == ["--trace", "diary.jsonl"]
    assert main([*command[:-1], str(again)]) == 1
    assert again.read_bytes() == trace.read_bytes()
    monkeypatch.undo()
    assert main(["--seed", str(seed)]) == 0


class Lines(list[bytes]):
    """A reconcile log in memory."""

    def begin(self, head: bytes) -> None:
        self.append(head)

    def write(self, line: bytes) -> None:
        self.append(line)


def test_a_record_replays_and_shows_where_a_decision_has_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(20):
        record = Lines()
        simulate(seed, sink=record, replayable=True)
        assert replay(record) == sum(b'"input":' in line for line in record)
    seed, _ = found(monkeypatch, count_an_eviction)
    monkeypatch.undo()
    record = Lines()
    simulate(seed, sink=record, replayable=True)
    file = tmp_path / "record.jsonl"
    file.write_bytes(b"".join(record))
    count_an_eviction(monkeypatch)
    difference = replay(record)
    assert isinstance(difference, Difference)
    assert main(["--replay", str(file)]) == 1
    assert str(difference) in capsys.readouterr().out
    print(difference)
