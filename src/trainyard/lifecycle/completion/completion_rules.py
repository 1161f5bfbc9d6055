"""Whether a job has succeeded or failed, by the rules of decisions 22 and 23.

Where one replica decides (rank 0, worker-0, the launcher), its exit 0 is the job's success under
any policy, unless `successPolicy` asks for all of them (decision 116). Else rules decide, and
without rules all replicas must succeed. When success and failure hold together, success wins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from trainyard.kinds.shared.workload import ReplicaKey, Rule, SuccessPolicy, Workload


def has_succeeded(
    workload: Workload, done: AbstractSet[ReplicaKey], out: AbstractSet[ReplicaKey] = frozenset()
) -> bool:
    """Whether the job has done what it was made for, given the replicas that succeeded.

    Under Always a replica counts as one once its budget is spent: before, it runs again. `out` are
    those without which an elastic job has come to its end.
    """
    if workload.success_policy is SuccessPolicy.ALL_REPLICAS:
        least = workload.elastic.min_replicas if workload.elastic else workload.replicas
        everybody = all(key in done or key in out for key in workload.keys)
        return everybody and workload.deciding_replica in done and len(done) >= least
    if workload.deciding_replica is not None:
        return workload.deciding_replica in done
    if workload.success_rules:
        return any(is_met(rule, done) for rule in workload.success_rules)
    return len(done) == workload.replicas


def first_failed_rule(workload: Workload, lost: AbstractSet[ReplicaKey]) -> Rule | None:
    """The first failure rule all of whose replicas failed for good."""
    return next((rule for rule in workload.failure_rules if is_met(rule, lost)), None)


def is_success_impossible(workload: Workload, lost: AbstractSet[ReplicaKey]) -> bool:
    """Whether no success rule can be met any more."""
    if workload.deciding_replica is not None:
        return workload.deciding_replica in lost
    if not workload.success_rules:
        return bool(lost)
    return all(_needs_any(rule, lost) for rule in workload.success_rules)


def concerns(rule: Rule, key: ReplicaKey) -> bool:
    """Whether a rule is about this replica."""
    return key.ordinal in rule.get(key.type, ())


def is_met(rule: Rule, keys: AbstractSet[ReplicaKey]) -> bool:
    """Whether all replicas of the rule are among these. A rule without any never holds."""
    named = [ReplicaKey(name, index) for name, indexes in rule.items() for index in indexes]
    return bool(named) and all(key in keys for key in named)


def format_rule(rule: Mapping[str, Sequence[int]]) -> str:
    """As documented, with indexes as strings: `{"worker":["0"]}`."""
    texts = {name: [str(index) for index in indexes] for name, indexes in rule.items()}
    return json.dumps(texts, separators=(",", ":"))


def _needs_any(rule: Rule, lost: AbstractSet[ReplicaKey]) -> bool:
    return any(
        ReplicaKey(name, index) in lost for name, indexes in rule.items() for index in indexes
    )
