"""Judges of texts about `runPolicy.podFailurePolicy`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.simulation import policies
from tests.simulation.judges import (
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
    says,
)
from tests.simulation.telling import Told

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


def _decides(told: Told, found: re.Match[str], action: str) -> Iterator[str]:
    """Whether there is such a rule, which matches what it says, and none before it does."""
    rules = told.spec["runPolicy"]["podFailurePolicy"]["rules"]
    index = int(found["index"])
    rule = rules[index]
    yield from _if(rule["action"] != action, f"the rule is {rule}")
    if found["matched"]:
        code = int(found["matched"])
        yield from _if(not policies.matches_exit(rule, code), f"the rule is {rule}")
        if not found["container"]:
            plain = [r for r in rules[:index] if "replicaTypes" not in r]
            sooner = [r for r in plain if policies.matches_exit(r, code)]
            yield from _if(bool(sooner), f"{sooner} match before")
    elif found["named"]:
        yield from _if(found["named"] not in rule.get("onReasons", ()), f"the rule is {rule}")
    else:
        kinds = [condition["type"] for condition in rule.get("onPodConditions", ())]
        yield from _if(found["condition"] not in kinds, f"the rule is {rule}")


@says(
    "event Restart",
    "Normal",
    rf"{FAILURE}\nRestarting {WHAT}{DELAY}, at no cost: {RULE}ignores this failure\.",
)
def _ignored(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _failure(told, found)
    yield from _decides(told, found, "Ignore")
    yield from _restarted(told, found)
    others = sum(1 for event in told.events if event.reason == "Restart") > 1
    before, after = (status.get("backoffCount") or 0 for status in (told.before, told.after))
    yield from _if(after > before and not others, f"backoffCount {before}, then {after}")


@says("event Restart", "Warning", FAILURE + CHARGED)
def _charged(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _failure(told, found)
    yield from _paid(told, found)


@says("event Restart", "Warning", TAKEN + CHARGED)
def _charged_loss(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _if(not told.was_taken(found["pod"]), _seen(told, found["pod"]))
    yield from _paid(told, found)


def _paid(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _decides(told, found, DEEDS[f"{found['deed']} this failure"])
    yield from _restarted(told, found)
    yield from _spent(told, found)


@says("ReplicaFailure=True", "ErrorInPod", TAKEN, once=True)
@says("event ReplicaFailure", "Warning", TAKEN)
def _taken(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _if(not told.was_taken(found["pod"]), _seen(told, found["pod"]))
    yield from _if(not policies.may_charge_losses(told.job), "no rule makes that a failure")


TAKEN_JOB = rf"{NAMED} has failed: (?P<pod>[a-z0-9-]+) was taken away \((?P<why>[^()]+)\)"


@says(WHILE_FAILED, "Failed|BackoffLimitExceeded", TAKEN_JOB, once=True)
@says("event Failed", "Warning", TAKEN_JOB)
def _lost_for_good(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _named(told, found)
    yield from _taken(told, found)


FATAL = (
    rf"{NAMED} has failed: (?P<pod>[a-z0-9-]+) "
    rf"(?:failed with exit code (?P<told>\d+)|was taken away \([^()]+\)|failed \([^()]+\)); "
    rf"{RULE}fails the job"
)


@says(WHILE_FAILED, "PodFailurePolicy", FATAL, once=True)
@says("event Failed", "Warning", FATAL)
def _fatal(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _named(told, found)
    yield from _decides(told, found, "FailJob")
    if found["matched"] and not found["container"]:
        yield from _if(found["told"] != found["matched"], "another exit code is told")
