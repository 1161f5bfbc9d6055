"""The simulation notices what is told and is not so, and what others wrote and is believed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.simulation.test_planted_bugs import SEEDS, TERMINAL, found
from trainyard import diagnosis
from trainyard.diagnosis import (
    Cause,
    Situation,
    exit_meanings,
    failure_card,
    finished_jobs,
    job_blockers,
    replica_failures,
)
from trainyard.diagnosis.first_failure import Grade
from trainyard.diagnosis.log_meanings import Reading
from trainyard.kinds.kind import Kind
from trainyard.kinds.shared.viewer import ViewerPhase, ViewerReason
from trainyard.lifecycle import texts
from trainyard.lifecycle.launch import launch_policy
from trainyard.lifecycle.replica_view import Replica
from trainyard.lifecycle.status import aggregate, status_builder
from trainyard.lifecycle.viewer import viewer_links, viewer_states

Lie = tuple[object, str, Any, str]
"""A module, its function, what is put in its place, and what the violation says."""

_PLAN = sys.modules["trainyard.lifecycle.plan"]
_NEW_REPLICA = texts.new_replica


def _taken_at_no_cost(replica: Replica, *_: Any, **__: Any) -> str:
    return f"{texts.taken_away(replica)}; it will be created again, at no cost."


def _another_attempt(pod: str, attempt: int, *, grown: bool) -> str:
    return _NEW_REPLICA(pod, attempt + 1, grown=grown)


def _phase_as_written(status: Mapping[str, Any]) -> str:
    phase = str(status.get("phase", ""))
    return phase if phase in TERMINAL else ""


def _told(what: str) -> Callable[[Situation], list[Cause]]:
    return lambda _: [Cause(what)]


def _rule(name: str, rule: Callable[[Situation], list[Cause]], says: str) -> Lie:
    """Another rule in its place in the table of all."""
    rules = tuple(rule if each.__name__ == name else each for each in diagnosis._RULES)
    return diagnosis, "_RULES", rules, says


LIES: Mapping[str, Lie] = {
    "always say that all run": (
        texts,
        "progress",
        lambda total, well, failed: texts.RUNNING,
        "Running=.* says 'All pods are running|no judge knows",
    ),
    "count failed replicas as well": (
        status_builder,
        "_count_well",
        lambda view: sum(1 for r in view.replicas if r not in view.not_running or r.ended),
        "well, all and failed are|says 'All pods",
    ),
    "hide what failed": (aggregate, "own_failures", lambda *_: [], "failed"),
    "call any failure taken away": (texts, "restart", _taken_at_no_cost, "taken away"),
    "tell a wrong budget": (
        texts,
        "budget",
        lambda spent, limit: f"{spent + 1} of {limit} restarts",
        "status.internal has|more than there is",
    ),
    "tell a wrong attempt": (texts, "new_replica", _another_attempt, "its attempt is"),
    "tell a wrong exit code": (
        texts,
        "replica_failure",
        lambda replica: f"Pod[{replica.name}] exited with error code 77",
        "it did not end so",
    ),
    "say what nobody judges": (
        texts,
        "resized",
        lambda before, after: "The job has another size.",
        "no judge knows this text",
    ),
    "call a viewer's pod missing": (
        viewer_states,
        "_starting",
        lambda pod: viewer_states.ViewerState(
            ViewerPhase.PENDING, ViewerReason.STARTING, f"Pod[{pod.name}] is being created."
        ),
        "it is there",
    ),
    "hide why a viewer cannot be used": (
        viewer_links,
        "find_condition",
        lambda *_: {},
        "tensorboard tells",
    ),
    "hide how hosts differ": (
        launch_policy,
        "host_differences",
        lambda _: "",
        "the words are|no container says",
    ),
    "say that nothing restarts for nothing": (
        Kind,
        "restarts",
        lambda kind, status: int(status.get(kind.budget) or 0) + 1,
        "restarts",
    ),
    "call all peers stopped": (
        failure_card,
        "_ends_of_others",
        lambda situation, death: [Grade.STOPPED] * 9,
        "others are",
    ),
    "call all peers failed": (
        failure_card,
        "_ends_of_others",
        lambda situation, _: [Grade.CAUSE for _ in situation.job.replicas[1:]],
        "others are|failed by themselves",
    ),
    "blame another replica": (
        replica_failures,
        "_blamed_name",
        lambda *_: "worker-77",
        "there is no replica worker-77",
    ),
    "read every end as SIGTERM": (
        exit_meanings,
        "explain_exit",
        lambda *_: Reading("it was ended by SIGTERM"),
        "the code is|no judge knows the reading",
    ),
    "quote what nobody wrote": (
        finished_jobs,
        "quote_failure",
        lambda _: ("| all is well",),
        "no pod has written it",
    ),
    "quote a sentence of the controller's": (
        Situation,
        "last_output",
        lambda situation, _: "a restart will not help.",
        "no pod has written it",
    ),
    "advise a command that is none": (
        finished_jobs,
        "_logs_advice",
        lambda situation, _="": (f"`trainyard log-of {situation.job.name}` shows what it wrote",),
        "there is no such command|no judge knows",
    ),
    "advise the logs of another job": (
        finished_jobs,
        "_logs_advice",
        lambda situation, _="": ("`trainyard logs another` shows what it wrote",),
        "is about",
    ),
    "have the lost join": (
        job_blockers,
        "_joining",
        lambda number: f"the other {number + 1} join",
        "may come",
    ),
    "say why nothing is restarted at random": (
        finished_jobs,
        "_why_not_restarted",
        lambda *_: ("its restarts are used up: 7 so far",),
        "restarts|failed for",
    ),
    "believe the phase": (_PLAN, "final_phase", _phase_as_written, ""),
    "explain in words that nobody judges": _rule(
        "resuming", _told("it is on its way"), "no judge knows this text"
    ),
    "see a hang in every job": _rule(
        "starting", _told("it hangs, as is known for 3s: no rank works"), "the condition says"
    ),
    "see no hang": _rule("hanging", lambda _: [], "it hangs"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_planted_lie_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, function, lie, judges = LIES[name]

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(owner, function, lie)

    _, violation = found(monkeypatch, plant)
    assert violation, f"{name}: not found in {SEEDS} seeds"
    assert re.search(judges, violation), violation
    print(f"{name}: {violation}")
