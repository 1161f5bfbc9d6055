"""How replicas ended that were asked to: who got SIGTERM when, what was saved, who was killed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from trainyard.client.job_events import event_time
from trainyard.diagnosis.situation import Cause, Situation, listed
from trainyard.kinds.shared.pods import pod_template_rules, shell_signal_rules
from trainyard.kinds.shared.reasons import ENDED_FROM_OUTSIDE, Phase
from trainyard.kube.embedded_contract import GRACE_IS_OVER
from trainyard.schema.rules.pod_spec_rules import grace_seconds
from trainyard.schema.times import duration, parse

_ASKED = "Stopping container"
"""As kubelets and the embedded cluster say it when they send SIGTERM."""


def asked_to_end(situation: Situation) -> Iterator[Cause]:
    """The story of the last end, of a job that somebody has ended or some of whose replicas had to
    be killed."""
    asked = _asked(situation)
    killed = [name for name in asked if _was_killed(situation, name, asked[name])]
    is_wanted = situation.job.phase == Phase.PAUSED or (
        situation.job.phase == Phase.FAILED
        and (killed or situation.job.condition("Failed").get("reason") in ENDED_FROM_OUTSIDE)
    )
    if not asked or not is_wanted:
        return
    first = min(asked.values())
    ago = duration((situation.now - first).total_seconds())
    evidence = [f"at {first:%H:%M:%S} UTC, {ago} ago: {listed(sorted(asked))}"]
    if killed:
        evidence.append(f"killed after their grace period: {listed(sorted(killed))}")
    evidence += _saved(situation, first)
    yield Cause(
        "its replicas were asked to end (SIGTERM)",
        tuple(evidence),
        tuple(_advice(situation, sorted(asked), sorted(killed))),
    )


def _asked(situation: Situation) -> dict[str, datetime]:
    """When each replica of the last attempt was last asked."""
    attempts = situation.job.attempts
    began = parse(attempts[-1].get("startTime")) if attempts else None
    found: dict[str, datetime] = {}
    for event in situation.events:
        about = event.get("involvedObject") or {}
        if about.get("kind") == "Pod" and str(event.get("message")).startswith(_ASKED):
            at = event_time(event)
            if began is None or at >= began.replace(microsecond=0):
                found[situation.replica(str(about.get("name")))] = at
    return found


def _was_killed(situation: Situation, replica: str, asked: datetime) -> bool:
    """Whether its grace period was over before it had ended."""
    return any(
        GRACE_IS_OVER in str(event.get("message")) and event_time(event) >= asked
        for event in situation.events
        if situation.replica(str((event.get("involvedObject") or {}).get("name"))) == replica
    )


def _saved(situation: Situation, asked: datetime) -> Iterator[str]:
    """What the training says to have saved."""
    made = situation.job.progress.get("checkpoint") or {}
    if (at := parse(made.get("time"))) is None:
        return
    step = f", step {made['step']}" if "step" in made else ""
    seconds = (at - asked).total_seconds()
    if seconds >= 0:
        yield f"saved {duration(seconds)} after that: {made.get('path')}{step}"
    else:
        yield f"nothing was saved after that; {duration(-seconds)} before: {made.get('path')}{step}"


def _advice(situation: Situation, asked: list[str], killed: list[str]) -> Iterator[str]:
    types: dict[str, str] = {name.rpartition("-")[0] or name: name for name in (*asked, *killed)}
    for name in types.values():
        template = situation.job.replica_spec(name).get("template") or {}
        swallowed = [
            problem.message
            for container in pod_template_rules.containers(template)
            for problem in shell_signal_rules.check_shell(container, ())
        ]
        yield from swallowed
        if not swallowed and name in killed:
            seconds = grace_seconds(template.get("spec") or {})
            yield (
                f"{name}: save in less than terminationGracePeriodSeconds ({seconds} s), or raise "
                "it; a program that ignores SIGTERM is killed, too"
            )
