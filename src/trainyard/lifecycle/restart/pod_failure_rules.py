"""What `runPolicy.podFailurePolicy` says of a replica's end (decision 114).

Its rules are asked in order, and the first that matches decides, before the restart policy. Their
answer is part of how the replica stands: what follows from it is decided where everything is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainyard.kinds.shared.pods.container_roles import SIDECAR
from trainyard.kinds.shared.workload import ExitCodes, FailureAction, FailureRule, ReplicaType
from trainyard.lifecycle.observed import Pod
from trainyard.lifecycle.replica_state import DISRUPTIONS, Exit, Ruling, State, is_disruption

_DISRUPTION_TARGET = "DisruptionTarget"
_FALLOUT_EXIT_CODE = 1
"""With which peers of a rank that died end (decision 24)."""

Containers = Iterable[Mapping[str, Any]]
"""As a job's status tells them."""


def apply_rules(
    rules: Sequence[FailureRule],
    replica_type: ReplicaType,
    state: State,
    end: Exit,
    pod: Pod | None,
    containers: Containers,
) -> tuple[State, Exit]:
    """How a replica that failed or was taken away stands by the rules.

    One that was taken away and is not to come back for free counts as failed.
    """
    ruling = _find_ruling(rules, replica_type, end, pod, containers)
    if ruling is None:
        return state, end
    if ruling.action is FailureAction.IGNORE:  # what was taken away is free without a rule
        return state, end if end.free else replace(end, free=True, ruling=ruling)
    return State.FAILED, replace(end, free=False, ruling=ruling)


def _find_ruling(
    rules: Sequence[FailureRule],
    replica_type: ReplicaType,
    end: Exit,
    pod: Pod | None,
    containers: Containers,
) -> Ruling | None:
    for index, rule in enumerate(rules):
        if rule.types and replica_type.name not in rule.types:
            continue
        if rule.codes is not None:
            found = _match_exit_code(rule.codes, replica_type, end, containers)
            is_cause = rule.codes.is_in and found is not None and found[0] != _FALLOUT_EXIT_CODE
            what = f"exit code {found[0]}{found[1]}" if found else ""
        else:
            what, is_cause = _match_pod(rule, replica_type, end, pod, containers), True
        if what:
            text = f"podFailurePolicy.rules[{index}] ({what})"
            by_code = rule.codes is not None
            return Ruling(rule.action, text, is_cause=is_cause, by_code=by_code, taken=end.free)
    return None


def _match_exit_code(
    codes: ExitCodes, replica_type: ReplicaType, end: Exit, containers: Containers
) -> tuple[int, str] | None:
    """The exit code that matches, and of which container where that needs saying."""
    if end.free:  # the exit code of what was taken away says nothing of the training
        return None
    if codes.container is None and replica_type.main_container is not None:
        own = [(end.code, "")]  # decision 21: sidecars do not decide
    else:
        own = [
            (each.get("exitCode"), f" of container {each['name']}")
            for each in containers
            if (codes.container == each["name"] if codes.container else not _is_sidecar(each))
        ]
    for code, where in own:
        if code and (code in codes.values) is codes.is_in:
            return code, where
    return None


def _match_pod(
    rule: FailureRule,
    replica_type: ReplicaType,
    end: Exit,
    pod: Pod | None,
    containers: Containers,
) -> str:
    """What of the pod matches: a condition or a reason; "" if nothing does."""
    conditions = dict(pod.conditions) if pod is not None else {}
    reasons = {end.reason, pod.reason if pod is not None else ""}
    if end.free:
        if end.reason in DISRUPTIONS or (pod is not None and is_disruption(pod)):
            conditions[_DISRUPTION_TARGET] = "True"
        reasons.add(pod.disruption if pod is not None else "")
    else:  # taken away after its own end, if at all
        if conditions.get(_DISRUPTION_TARGET) == "True":
            del conditions[_DISRUPTION_TARGET]
        reasons -= DISRUPTIONS
        if replica_type.main_container is None:
            reasons |= {
                str(each.get("reason"))
                for each in containers
                if each.get("exitCode") and not _is_sidecar(each)
            }
    for kind, status in rule.conditions:
        if conditions.get(kind) == status:
            return f"condition {kind}" if status == "True" else f"condition {kind} {status}"
    return next((f"reason {reason}" for reason in rule.reasons if reason in reasons), "")


def _is_sidecar(container: Mapping[str, Any]) -> bool:
    """It is ended with its pod: what it ends with says nothing of the replica (decision 108)."""
    return container.get("role") == SIDECAR
