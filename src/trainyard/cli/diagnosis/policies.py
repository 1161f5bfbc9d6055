"""What a job's spec says about restarts, whatever its kind."""

from __future__ import annotations

from trainyard.cli.diagnosis.situation import Object, Situation

_DEFAULTS = {"PyTorchTrainingJob": "Never", "DeepSpeedJob": "OnFailure"}
_BACKOFF_LIMIT = 3


def of(situation: Situation, replica: str) -> tuple[str, int]:
    """Restart policy and budget of a replica such as `worker-0`; ("", 0) where unknown."""
    told = _replica_spec(situation, replica).get("restartPolicy")
    if isinstance(told, dict):
        return str(told.get("policy") or ""), int(told.get("limit") or 0)
    policy = str(told or _DEFAULTS.get(situation.kind, ""))
    return policy, int(situation.run_policy.get("backoffLimit", _BACKOFF_LIMIT))


def _replica_spec(situation: Situation, replica: str) -> Object:
    kind = replica.rpartition("-")[0] or replica
    for spec in situation.spec.get("replicaSpecs") or ():
        if spec.get("type") == kind:
            return dict(spec)
    return dict(situation.spec.get(kind) or {})
