"""What Kubernetes' admission plugins add to pods: service account, priority, tolerations.

No field manager owns these fields: the plugins run after ownership is recorded. The plugins are
ServiceAccount (without a token, which no pod gets here), Priority and DefaultTolerationSeconds.
https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

_ACCOUNT = "default"
_PRIORITY = {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
"""Of a pod that names no class, where no class is every pod's."""
_AWAY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_AWAY_SECONDS = 300
_EVICTS = "NoExecute"


def complete_new(spec: Object) -> None:
    """Complete the spec of a new pod."""
    account = spec.get("serviceAccountName") or _ACCOUNT
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    if not spec.get("priorityClassName"):
        for field, value in _PRIORITY.items():
            spec.setdefault(field, value)
    _tolerate_absence(spec)


def complete_replaced(spec: Object, old: Object) -> None:
    """Complete the spec that replaces ``old``, which keeps its service account."""
    for field in _PRIORITY.keys() & old.keys():
        spec.setdefault(field, old[field])
    _tolerate_absence(spec)


def _tolerate_absence(spec: Object) -> None:
    """Tolerate an unreachable node for five minutes, unless the spec says how long."""
    given = spec.get("tolerations") or []
    of_evictions = [each for each in given if (each.get("effect") or _EVICTS) == _EVICTS]
    keys = {each.get("key") or "" for each in of_evictions}
    wait = {"operator": "Exists", "effect": _EVICTS, "tolerationSeconds": _AWAY_SECONDS}
    added = [{"key": key, **wait} for key in _AWAY if not keys & {key, ""}]
    if added:
        spec["tolerations"] = [*given, *added]
