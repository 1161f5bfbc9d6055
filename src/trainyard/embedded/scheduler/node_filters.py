"""Whether a node takes a pod at all, before resources are looked at: taints, selectors, affinity.

Messages are those of kube-scheduler (pkg/scheduler/framework/plugins); the first that applies is
reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Object = Mapping[str, Any]

REPELLING_EFFECTS = ("NoSchedule", "NoExecute")
"""Effects of taints that keep a pod off; another only makes a node the second choice."""
_CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def rejection_reason(pod: Object, node: Object, *, is_strict: bool) -> str:
    """Why the node of a cluster that has no other does not take a pod; "" if it does.

    Labels that a manifest asks for count where `is_strict` (decision 39).
    """
    reason = _reason(pod, node, is_strict)
    return f"0/1 nodes are available: 1 node(s) {reason}." if reason else ""


def _reason(pod: Object, node: Object, is_strict: bool) -> str:
    spec, node_spec = pod["spec"], node.get("spec") or {}
    tolerations = spec.get("tolerations") or ()
    if node_spec.get("unschedulable") and not tolerates(tolerations, _CORDONED):
        return "were unschedulable"
    for taint in node_spec.get("taints") or ():
        if taint.get("effect") in REPELLING_EFFECTS and not tolerates(tolerations, taint):
            return f"had untolerated taint {{{taint['key']}: {taint.get('value') or ''}}}"
    if is_strict and not matches_node(pod, node):
        return "didn't match Pod's node affinity/selector"
    return ""


def tolerates(tolerations: Iterable[Object], taint: Object) -> bool:
    """Whether one of them is about this taint."""
    return any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: Object, taint: Object) -> bool:
    """`ToleratesTaint` of k8s.io/component-helpers."""
    effect, key = toleration.get("effect"), toleration.get("key")
    if (effect and effect != taint.get("effect")) or (key and key != taint.get("key")):
        return False
    operator, value = toleration.get("operator") or "Equal", toleration.get("value") or ""
    if operator in ("Lt", "Gt"):
        return _compares(operator, taint.get("value") or "", value)
    return operator == "Exists" or value == (taint.get("value") or "")


def matches_node(pod: Object, node: Object) -> bool:
    """Whether a node is among those that a pod asks for, by labels or name."""
    metadata, spec = node.get("metadata") or {}, pod["spec"]
    labels = metadata.get("labels") or {}
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    if (wanted := affinity.get(_REQUIRED)) is None:
        return True
    names = {"metadata.name": metadata.get("name", "")}
    return any(_matches_term(term, labels, names) for term in wanted.get("nodeSelectorTerms") or ())


def _matches_term(term: Object, labels: Mapping[str, str], names: Mapping[str, str]) -> bool:
    """An empty alternative is none."""
    by_label, by_name = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not by_label and not by_name:
        return False
    return all(_matches_requirement(each, labels) for each in by_label) and all(
        _matches_requirement(each, names) for each in by_name
    )


def _matches_requirement(requirement: Object, values: Mapping[str, str]) -> bool:
    operator, wanted = requirement["operator"], list(requirement.get("values") or ())
    found = values.get(requirement["key"])
    match operator:
        case "In":
            return found is not None and found in wanted
        case "NotIn":
            return found is None or found not in wanted
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
    return found is not None and bool(wanted) and _compares(operator, found, wanted[0])


def _compares(operator: str, found: str, limit: str) -> bool:
    """Whole numbers; what is none never does."""
    try:
        return int(found) > int(limit) if operator == "Gt" else int(found) < int(limit)
    except ValueError:
        return False
