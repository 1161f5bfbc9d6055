"""Where a pod may run: affinity, tolerations, spread, gates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainyard.schema.problems import REQUIRED, Path, Problem, error
from trainyard.schema.rules.common_rules import (
    MOST_INT32,
    Object,
    bounds,
    choice,
    label_name,
    label_value,
    labels,
    qualified,
    unique,
)
from trainyard.schema.rules.selector_rules import label_selector, node_selector, node_term

_HARD = "requiredDuringSchedulingIgnoredDuringExecution"
_SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
_TOLERATED = ("Exists", "Equal", "Lt", "Gt")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SPREAD = ("DoNotSchedule", "ScheduleAnyway")
_HONOURED = ("Honor", "Ignore")


def placement(spec: Object, path: Path) -> Iterator[Problem]:
    """Problems of everything in a pod's spec that the scheduler reads, beside resources."""
    yield from labels(spec.get("nodeSelector") or {}, (*path, "nodeSelector"))
    yield from _affinity(spec.get("affinity") or {}, (*path, "affinity"))
    for index, each in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(each, (*path, "tolerations", index))
    spread, here = spec.get("topologySpreadConstraints") or (), (*path, "topologySpreadConstraints")
    pairs = [(each["topologyKey"], each["whenUnsatisfiable"]) for each in spread]
    yield from unique(pairs, here, "topologyKey", "constraint for")
    for index, each in enumerate(spread):
        yield from _spread(each, (*here, index))
    gates, here = spec.get("schedulingGates") or (), (*path, "schedulingGates")
    yield from unique((each["name"] for each in gates), here, "name", "gate named")
    for index, each in enumerate(gates):
        yield from qualified(each["name"], (*here, index, "name"))
    for index, each in enumerate(spec.get("readinessGates") or ()):
        yield from qualified(
            each["conditionType"], (*path, "readinessGates", index, "conditionType")
        )


def _affinity(affinity: Object, path: Path) -> Iterator[Problem]:
    node, here = affinity.get("nodeAffinity") or {}, (*path, "nodeAffinity")
    if (required := node.get(_HARD)) is not None:
        yield from node_selector(required, (*here, _HARD))
    for index, each in enumerate(node.get(_SOFT) or ()):
        yield from bounds(each, (*here, _SOFT, index), "weight", 1, 100)
        yield from node_term(each["preference"], (*here, _SOFT, index, "preference"), strict=False)
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        for index, term in enumerate(rules.get(_HARD) or ()):
            yield from _pod_term(term, (*path, kind, _HARD, index))
        for index, each in enumerate(rules.get(_SOFT) or ()):
            place = (*path, kind, _SOFT, index)
            yield from bounds(each, place, "weight", 1, 100)
            yield from _pod_term(each["podAffinityTerm"], (*place, "podAffinityTerm"))


def _pod_term(term: Object, path: Path) -> Iterator[Problem]:
    yield from label_selector(term.get("labelSelector"), (*path, "labelSelector"))
    yield from label_selector(term.get("namespaceSelector"), (*path, "namespaceSelector"))
    for index, name in enumerate(term.get("namespaces") or ()):
        yield from label_name(name, (*path, "namespaces", index), "namespace")
    yield from _topology_key(term, path)
    keys = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    for field, found in zip(("matchLabelKeys", "mismatchLabelKeys"), keys, strict=True):
        yield from _label_keys(found, term, (*path, field))
    for key in set(keys[0]) & set(keys[1]):
        yield error((*path, "matchLabelKeys"), f"'{key}' is in mismatchLabelKeys as well")


def _label_keys(keys: Sequence[str], owner: Object, path: Path) -> Iterator[Problem]:
    if keys and owner.get("labelSelector") is None:
        yield error(path, "needs a labelSelector")
    selector = owner.get("labelSelector") or {}
    expressions = selector.get("matchExpressions") or () if keys else ()
    selected = {*(selector.get("matchLabels") or ()), *(each["key"] for each in expressions)}
    for index, key in enumerate(keys):
        yield from qualified(key, (*path, index))
        if key in selected:
            yield error((*path, index), f"'{key}' is in the labelSelector as well")


def _topology_key(owner: Object, path: Path) -> Iterator[Problem]:
    here = (*path, "topologyKey")
    if not owner.get("topologyKey"):
        yield error(here, REQUIRED)
    else:
        yield from qualified(owner["topologyKey"], here)


def _toleration(each: Object, path: Path) -> Iterator[Problem]:
    key, operator = each.get("key") or "", each.get("operator") or "Equal"
    yield from choice(each, path, "operator", _TOLERATED)
    yield from choice(each, path, "effect", _EFFECTS)
    if key:
        yield from qualified(key, (*path, "key"))
    elif operator != "Exists":
        yield error((*path, "operator"), "must be Exists where the key is empty, for all taints")
    if each.get("tolerationSeconds") is not None and each.get("effect") != "NoExecute":
        yield error((*path, "effect"), "must be NoExecute where tolerationSeconds is set")
    if operator == "Exists" and each.get("value"):
        yield error((*path, "value"), "must be empty for operator Exists")
    elif operator == "Equal":
        yield from label_value(each.get("value") or "", (*path, "value"))


def _spread(each: Object, path: Path) -> Iterator[Problem]:
    yield from bounds(each, path, "maxSkew", 1, MOST_INT32)
    yield from bounds(each, path, "minDomains", 1, MOST_INT32)
    yield from _topology_key(each, path)
    if not each["whenUnsatisfiable"]:
        yield error((*path, "whenUnsatisfiable"), REQUIRED)
    yield from choice(each, path, "whenUnsatisfiable", _SPREAD)
    if each.get("minDomains") is not None and each["whenUnsatisfiable"] != _SPREAD[0]:
        yield error((*path, "minDomains"), f"needs whenUnsatisfiable: {_SPREAD[0]}")
    yield from choice(each, path, "nodeAffinityPolicy", _HONOURED)
    yield from choice(each, path, "nodeTaintsPolicy", _HONOURED)
    yield from label_selector(each.get("labelSelector"), (*path, "labelSelector"))
    yield from _label_keys(each.get("matchLabelKeys") or [], each, (*path, "matchLabelKeys"))
