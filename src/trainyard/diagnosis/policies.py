"""What a job's spec says about restarts, whatever its kind."""

from __future__ import annotations

from trainyard.diagnosis.situation import Object, Situation

PER_REPLICA = frozenset({"GenericJob", "ColossalAIJob"})
"""Kinds whose `restartPolicy` is an object with a limit of its own."""
_DEFAULTS = {"PyTorchTrainingJob": "Never"}
_BACKOFF_LIMIT = 3


def of(situation: Situation, replica: str) -> tuple[str, int]:
    """Restart policy and budget of a replica such as `worker-0`."""
    told = _replica_spec(situation, replica).get("restartPolicy")
    if situation.kind in PER_REPLICA:
        told = told or {}
        return str(told.get("policy") or "OnFailure"), int(told.get("limit") or 0)
    policy = str(told or _DEFAULTS.get(situation.kind, "OnFailure"))
    return policy, int(situation.run_policy.get("backoffLimit", _BACKOFF_LIMIT))


def _replica_spec(situation: Situation, replica: str) -> Object:
    kind = replica.rpartition("-")[0] or replica
    for spec in situation.spec.get("replicaSpecs") or ():
        if spec.get("type") == kind:
            return dict(spec)
    return dict(situation.spec.get(kind) or {})
