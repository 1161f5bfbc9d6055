"""Judges of texts about `runPolicy.podFailurePolicy`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.simulation import job_policies
from tests.simulation.reconcile_result import ReconcileResult
from tests.simulation.text_judges import (
    BUDGET,
    DELAY,
    FAILURE,
    NAMED,
    POD,
    WHAT,
    WHILE_FAILED,
    _failure,
    _if,
    _named,
    _restarted,
    _seen,
    _spent,
    judges,
)

RULE = (
    r"podFailurePolicy\.rules\[(?P<index>\d+)\] "
    r"\((?:exit code (?P<matched>-?\d+)(?: of container (?P<container>[\w-]+))?"
    r"|condition (?P<condition>\S+)(?: (?:False|Unknown))?|reason (?P<named>\w+))\) "
)
DEEDS = {
    "fails the job": "FailJob",
    "ignores this failure": "Ignore",
    "counts this failure": "Count",
    "restarts after this failure": "Restart",
}
TAKEN = rf"{POD} was taken away \((?P<why>[^()]+)\)"
CHARGED = (
    rf"\nRestarting {WHAT}{DELAY} {BUDGET}: {RULE}(?P<deed>counts|restarts after) this failure\."
)


def _decides(result: ReconcileResult, found: re.Match[str], action: str) -> Iterator[str]:
    """Whether there is such a rule, which matches what it says, and none before it does."""
    rules = result.spec["runPolicy"]["podFailurePolicy"]["rules"]
    index = int(found["index"])
    rule = rules[index]
    yield from _if(rule["action"] != action, f"the rule is {rule}")
    if found["matched"]:
        code = int(found["matched"])
        yield from _if(not job_policies.matches_exit(rule, code), f"the rule is {rule}")
        if not found["container"]:
            plain = [r for r in rules[:index] if "replicaTypes" not in r]
            sooner = [r for r in plain if job_policies.matches_exit(r, code)]
            yield from _if(bool(sooner), f"{sooner} match before")
    elif found["named"]:
        yield from _if(found["named"] not in rule.get("onReasons", ()), f"the rule is {rule}")
    else:
        kinds = [condition["type"] for condition in rule.get("onPodConditions", ())]
        yield from _if(found["condition"] not in kinds, f"the rule is {rule}")


@judges(
    "event Restart",
    "Normal",
    rf"{FAILURE}\nRestarting {WHAT}{DELAY}, at no cost: {RULE}ignores this failure\.",
)
def _ignored(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _failure(result, found)
    yield from _decides(result, found, "Ignore")
    yield from _restarted(result, found)
    others = sum(1 for event in result.events if event.reason == "Restart") > 1
    before, after = (status.get("backoffCount") or 0 for status in (result.before, result.after))
    yield from _if(after > before and not others, f"backoffCount {before}, then {after}")


@judges("event Restart", "Warning", FAILURE + CHARGED)
def _charged(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _failure(result, found)
    yield from _paid(result, found)


@judges("event Restart", "Warning", TAKEN + CHARGED)
def _charged_loss(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _if(not result.was_taken(found["pod"]), _seen(result, found["pod"]))
    yield from _paid(result, found)


def _paid(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _decides(result, found, DEEDS[f"{found['deed']} this failure"])
    yield from _restarted(result, found)
    yield from _spent(result, found)


@judges("ReplicaFailure=True", "ErrorInPod", TAKEN, once=True)
@judges("event ReplicaFailure", "Warning", TAKEN)
def _taken(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _if(not result.was_taken(found["pod"]), _seen(result, found["pod"]))
    yield from _if(not job_policies.may_charge_losses(result.job), "no rule makes that a failure")


TAKEN_JOB = rf"{NAMED} has failed: (?P<pod>[a-z0-9-]+) was taken away \((?P<why>[^()]+)\)"


@judges(WHILE_FAILED, "Failed|BackoffLimitExceeded", TAKEN_JOB, once=True)
@judges("event Failed", "Warning", TAKEN_JOB)
def _lost_for_good(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _named(result, found)
    yield from _taken(result, found)


FATAL = (
    rf"{NAMED} has failed: (?P<pod>[a-z0-9-]+) "
    rf"(?:failed with exit code (?P<told>\d+)|was taken away \([^()]+\)|failed \([^()]+\)); "
    rf"{RULE}fails the job"
)


@judges(WHILE_FAILED, "PodFailurePolicy", FATAL, once=True)
@judges("event Failed", "Warning", FATAL)
def _fatal(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _named(result, found)
    yield from _decides(result, found, "FailJob")
    if found["matched"] and not found["container"]:
        yield from _if(found["told"] != found["matched"], "another exit code is told")
