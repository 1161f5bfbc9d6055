"""What a job's podFailurePolicy says of an end, by the simulation's own reading of it."""

from __future__ import annotations

from tests.simulation.server import Obj

FAIL_JOB, IGNORE = "FailJob", "Ignore"


def of_exit(job: Obj, code: int) -> str:
    """The action for a container that ended by itself; "" where no rule is about it."""
    for rule in _rules(job):
        codes = rule.get("onExitCodes")
        if codes and (code in codes["values"]) == (codes["operator"] == "In"):
            return str(rule["action"])
    return ""


def of_disruption(job: Obj) -> str:
    """The action for a pod that the cluster takes away; "" where no rule is about it."""
    return next((str(rule["action"]) for rule in _rules(job) if "onPodConditions" in rule), "")


def _rules(job: Obj) -> list[Obj]:
    policy = (job["spec"].get("runPolicy") or {}).get("podFailurePolicy") or {}
    return list(policy.get("rules") or ())
