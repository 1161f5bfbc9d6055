"""What a job's policies say, by the simulation's own reading of them."""

from __future__ import annotations

from tests.simulation.server import Obj

FAIL_JOB, IGNORE = "FailJob", "Ignore"
OUT_OF_MEMORY = 137
"""What the model ends with this was killed for want of memory, where a rule may name that."""


def needs_all(job: Obj) -> bool:
    """Whether all replicas have to succeed."""
    return (job["spec"].get("runPolicy") or {}).get("successPolicy") == "AllReplicas"


def apart(job: Obj) -> set[str]:
    """Replica types that restart one by one in a job whose others restart together."""
    scopes = _scopes(job)
    alone = {name for name, scope in scopes.items() if scope == "Replica"}
    return alone if len(alone) < len(scopes) else set()


def restarts_one_by_one(job: Obj) -> bool:
    """Whether each replica of the job restarts for itself."""
    return job["kind"] == "GenericJob" or set(_scopes(job).values()) == {"Replica"}


def _scopes(job: Obj) -> dict[str, str]:
    spec = job["spec"]
    overall = (spec.get("runPolicy") or {}).get("restartScope") or "Job"
    types = spec.get("replicaSpecs") or [{"type": "worker"}]
    return {each["type"]: each.get("restartScope") or overall for each in types}


def matches_exit(rule: Obj, code: int) -> bool:
    """Whether a rule is about this exit code, or what it is the code of."""
    codes = rule.get("onExitCodes")
    if "onReasons" in rule:
        return code == OUT_OF_MEMORY and "OOMKilled" in rule["onReasons"]
    return bool(codes) and (code in codes["values"]) == (codes["operator"] == "In")


def may_charge_losses(job: Obj) -> bool:
    """Whether a rule may make a failure of what the cluster took away."""
    return any("onExitCodes" not in r and r["action"] != IGNORE for r in _rules(job))


def index_of_exit(job: Obj, code: int) -> int | None:
    """The rule about a container that ended by itself; None where there is none."""
    return next((i for i, rule in enumerate(_rules(job)) if matches_exit(rule, code)), None)


def of_exit(job: Obj, code: int) -> str:
    """The action for a container that ended by itself; "" where no rule is about it."""
    return _action(job, index_of_exit(job, code))


def of_disruptions(job: Obj) -> set[str]:
    """The actions that may follow when the cluster takes a pod away: which reason is given, and
    whether the condition holds, depends on who takes it."""
    return {str(rule["action"]) for rule in _rules(job) if "onExitCodes" not in rule}


def _action(job: Obj, index: int | None) -> str:
    return "" if index is None else str(_rules(job)[index]["action"])


def has_rules(job: Obj) -> bool:
    """Whether rules say what follows from a failure."""
    return bool(_rules(job))


def _rules(job: Obj) -> list[Obj]:
    policy = (job["spec"].get("runPolicy") or {}).get("podFailurePolicy") or {}
    return list(policy.get("rules") or ())
