"""Kueue's pod groups, played by a test: what its Pod integration does about finalizers.

As its documentation and its source say: every pod of a group carries a finalizer, and a pod that
has failed keeps it until a replacement is observed, another pod of the group that is beyond the
group's count of pods that have not failed, or until the group is over.
https://kueue.sigs.k8s.io/docs/tasks/run/plain_pods/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Object = dict[str, Any]

FINALIZER = "kueue.x-k8s.io/managed"
GROUP = "kueue.x-k8s.io/pod-group-name"
COUNT = "kueue.x-k8s.io/pod-group-total-count"


def marked(pod: Object, group: str, count: int) -> Object:
    """A pod as a member of a group, as users and controllers write it."""
    metadata = pod["metadata"]
    labels = {**(metadata.get("labels") or {}), GROUP: group}
    annotations = {**(metadata.get("annotations") or {}), COUNT: str(count)}
    more = {"labels": labels, "annotations": annotations, "finalizers": [FINALIZER]}
    return {**pod, "metadata": {**metadata, **more}}


def released(pods: Sequence[Object]) -> list[Object]:
    """The pods of one group whose finalizer Kueue takes away now."""
    held = [pod for pod in pods if FINALIZER in (pod["metadata"].get("finalizers") or ())]
    if not held:
        return []
    count = int(held[0]["metadata"]["annotations"][COUNT])
    active = [pod for pod in pods if pod["status"].get("phase") in ("Pending", "Running")]
    active = [pod for pod in active if "deletionTimestamp" not in pod["metadata"]]
    succeeded = [pod for pod in pods if pod["status"].get("phase") == "Succeeded"]
    if len(succeeded) >= count:
        return held
    # Each place of the group is somebody's; a failed pod whose place is taken again may go.
    gone = [pod for pod in held if pod not in active and pod not in succeeded]
    unreplaced = count - len(active) - len(succeeded)
    gone.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    return gone[: max(0, len(gone) - unreplaced)]
