"""What must hold in every status that is written, whatever happened: it does not contradict itself.

Reads the documented fields only, and holds them against the definition that a server would apply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import jsonschema_rs

from tests.simulation import job_policies
from tests.simulation.server import Obj
from trainyard.kinds.kind_registry import KINDS

CONDITIONS = (
    "Initialized",
    "Running",
    "Failed",
    "Completed",
    "ReplicaFailure",
    "Paused",
    "Launched",
    "Hung",
    "RanksApart",
)
REPLICA_PHASES = ("creating", "pending", "running", "succeeded", "failed", "unknown", "deleted")
ENDS = ("Succeeded", "Failed")
MOST_ATTEMPTS = 10


def contradictions(old: Obj, new: Obj, job: Obj) -> Iterator[str]:
    """Problems of a status (`new`) that follows another."""
    for error in _validator(job["kind"]).iter_errors(new):
        yield f"a server would refuse or prune it: {error.message} at {error.instance_path}"
    if "tasks" not in new or "conditions" not in new:
        return  # an invalid job has neither replicas nor attempts
    yield from _of_conditions(old, new)
    yield from _of_phase(new)
    one_by_one = job_policies.restarts_one_by_one(job) or bool(job_policies.apart(job))
    yield from _of_attempts(new, one_by_one=one_by_one)
    yield from _of_counts(old, new)


@cache
def _validator(kind: str) -> jsonschema_rs.Draft202012Validator:
    schema = _closed(KINDS[kind].schema["properties"]["status"])
    return jsonschema_rs.Draft202012Validator(schema)


def _closed(schema: Any) -> Any:
    """The schema, such that a field that a server would prune is an error too."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "type" in schema:
        closed.setdefault("additionalProperties", False)
    return closed


def _of_conditions(old: Obj, new: Obj) -> Iterator[str]:
    types = [condition["type"] for condition in new["conditions"]]
    if types != [type_ for type_ in CONDITIONS if type_ in types]:
        yield f"conditions in the order {types}"
    before = {condition["type"]: condition for condition in old.get("conditions") or ()}
    for condition in new["conditions"]:
        was = before.get(condition["type"], {})
        same = was.get("status") == condition["status"]
        time = condition["lastTransitionTime"]
        if same and was.get("lastTransitionTime", time) != time:  # a forged one may have none
            yield f"condition {condition['type']} has not changed, but its transition time has"


def _of_phase(new: Obj) -> Iterator[str]:
    phase = new["phase"]
    conditions = {condition["type"]: condition["status"] for condition in new["conditions"]}
    if (phase == "Paused") != (conditions.get("Paused") == "True"):
        yield f"phase {phase}, condition Paused {conditions.get('Paused')}"
    if conditions.get("Running") == "True" and phase != "Running":
        yield f"phase {phase}, condition Running True"
    if phase == "Running" and not new.get("startTime"):
        yield "phase Running without a startTime"
    if (phase in ENDS) != bool(new.get("completionTime")):
        yield f"phase {phase}, completionTime {new.get('completionTime')}"
    if phase in ENDS and not new.get("startTime"):
        yield f"phase {phase} without a startTime"


def _of_attempts(new: Obj, *, one_by_one: bool) -> Iterator[str]:
    attempts, phase = new.get("attempts") or [], new["phase"]
    if not attempts:
        if phase != "Paused":
            yield f"phase {phase} without attempts"
        return
    if len(attempts) > MOST_ATTEMPTS:
        yield f"{len(attempts)} attempts"
    if not all("startTime" in attempt for attempt in attempts):
        yield f"an attempt without a start: {attempts}"
    if not all("endTime" in attempt for attempt in attempts[:-1]):
        yield f"two attempts under way: {attempts}"
    evicted = bool(new["internal"].get("held"))
    if ("endTime" in attempts[-1]) != (phase in ENDS or phase == "Paused" or evicted):
        yield f"phase {phase}, last attempt {attempts[-1]}"
    numbers = [attempt["number"] for attempt in attempts]
    if not one_by_one and any(later < earlier for earlier, later in pairwise(numbers)):
        yield f"attempts numbered {numbers}"


def _of_counts(old: Obj, new: Obj) -> Iterator[str]:
    aggregate = new.get("aggregate") or {}
    if tuple(aggregate) != REPLICA_PHASES:
        yield f"aggregate {aggregate}"
    replicas = (replica for task in new["tasks"] for replica in task["replicas"])
    counted = Counter(replica["phase"].lower() for replica in replicas)
    if counted != Counter({phase: number for phase, number in aggregate.items() if number}):
        yield f"aggregate {aggregate}, really {dict(counted)}"
    before = {task["type"]: task["restartCount"] for task in old.get("tasks") or ()}
    for task in new["tasks"]:
        if task["restartCount"] < before.get(task["type"], 0):
            yield f"restartCount of {task['type']} fell"


def differences(job: Obj, pods: Mapping[str, Obj]) -> Iterator[str]:
    """What a status says and is not so, once all has calmed down. `pods` are those there, by
    name."""
    status, generation = job["status"], job["metadata"]["generation"]
    if status.get("observedGeneration") != generation:
        yield f"observedGeneration {status.get('observedGeneration')} of {generation}"
    if "tasks" not in status:
        return
    if status["replicas"] != len(pods):
        yield f"replicas {status['replicas']}, really {len(pods)}"
    for task in status["tasks"]:
        for replica in task["replicas"]:
            pod = pods.get(replica["name"])
            phase = pod["status"]["phase"] if pod else "Deleted"
            if pod and phase == "Pending" and not pod["spec"].get("nodeName"):
                phase = "Creating"  # for want of a node that is not avoided
            # Its main container's end is the replica's, and stays so when the pod goes.
            if replica["phase"] not in (phase, *ENDS):
                yield f"{replica['name']} is told as {replica['phase']}, and is {phase}"


def failed_by_rule(status: Obj) -> bool:
    """Whether it says that a rule of podFailurePolicy has failed the job."""
    failed = (c for c in status.get("conditions") or () if c["type"] == "Failed")
    return any(c["reason"] == "PodFailurePolicy" for c in failed)
