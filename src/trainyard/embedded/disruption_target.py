"""The condition DisruptionTarget, which says on a pod why it is about to be deleted.

https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
"""

from __future__ import annotations

from trainyard.embedded.clock import now_text
from trainyard.embedded.storage.journal import Object
from trainyard.kube.object_conditions import find_condition

_TYPE = "DisruptionTarget"


def with_disruption_target(pod: Object, reason: str, message: str) -> Object:
    """`pod` with the condition in its status; an existing one keeps its lastTransitionTime."""
    conditions = pod.get("status", {}).get("conditions") or ()
    had = find_condition(pod.get("status"), _TYPE)
    since = had.get("lastTransitionTime") if had.get("status") == "True" else None
    target = {
        "type": _TYPE,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": since or now_text(),
    }
    kept = [each for each in conditions if each["type"] != _TYPE]
    return {**pod, "status": {**pod.get("status", {}), "conditions": [*kept, target]}}
