"""The pod template of a launcher that has no container: its workers', but what cannot be.

All that a cluster asks of the workers' pods, or gives them, is asked of it and given to it. It does
not train: devices, and what holds the place or the room of a training, stay out (decision 7).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.kinds.colossalai.spec import LAUNCHER

_TRAINS = "the launcher does not train"
_NAMES_WORKER = "says what one worker's pod is called"
_ONE_NODE = "may be mounted on one node alone, which is the worker's"
POD_FIELDS_LEFT_OUT: Mapping[str, str] = {
    "initContainers": "they prepare what the training needs",
    "ephemeralContainers": "no template has them",
    "hostIPC": _TRAINS,
    "hostPID": _TRAINS,
    "hostNetwork": "its sshd would meet that of a worker on the same node",
    "hostnameOverride": _NAMES_WORKER,
    "readinessGates": "nobody would answer them for the launcher",
    "resourceClaims": "devices",
    "resources": "the room of a training; a launcher needs next to none",
    "schedulingGroup": "it counts workers",
    "shareProcessNamespace": "there is one container",
    "topologySpreadConstraints": "they spread workers",
}
"""Fields of a PodSpec and why they are not taken over; all others are."""
AFFINITIES_LEFT_OUT: Mapping[str, str] = {
    "podAffinity": "its terms choose among workers",
    "podAntiAffinity": "workers that keep apart would leave the launcher no node",
}
CONTAINER_FIELDS_LEFT_OUT: Mapping[str, str] = {
    **dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"), _TRAINS),
    **dict.fromkeys(("ports", "stdin", "stdinOnce", "tty", "volumeDevices"), _TRAINS),
    **dict.fromkeys(("restartPolicy", "restartPolicyRules"), "the controller restarts replicas"),
    "resizePolicy": "there are no resources",
    "resources": "the room of a training; a launcher needs next to none",
}
VOLUMES_LEFT_OUT: Mapping[str, str] = {
    "awsElasticBlockStore": _ONE_NODE,
    "azureDisk": _ONE_NODE,
    "cinder": _ONE_NODE,
    "downwardAPI": "tells of the worker's container",
    "ephemeral": "would be claimed a second time",
    "fc": _ONE_NODE,
    "gcePersistentDisk": _ONE_NODE,
    "iscsi": _ONE_NODE,
    "persistentVolumeClaim": _ONE_NODE,
    "photonPersistentDisk": _ONE_NODE,
    "rbd": _ONE_NODE,
    "vsphereVolume": _ONE_NODE,
}
"""Sources of volumes. The launcher needs no data, and would wait for ever for such a volume."""


def default_launcher(
    own: Mapping[str, Any], worker: Mapping[str, Any], training: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The launcher's template: `own`, which has no container, over what `worker` has.

    `training` is the container of the worker's template that trains.
    """
    given, pod = worker.get("spec") or {}, own.get("spec") or {}
    taken = {key: value for key, value in given.items() if key not in POD_FIELDS_LEFT_OUT}
    affinity = taken.pop("affinity", None) or {}
    if left := {k: v for k, v in affinity.items() if k not in AFFINITIES_LEFT_OUT}:
        taken["affinity"] = left
    volumes = list(_volumes(taken.pop("volumes", None) or ()))
    if volumes:
        taken["volumes"] = volumes
    known = {volume["name"] for volume in (*volumes, *(pod.get("volumes") or ()))}
    return {**own, "spec": {**taken, **pod, "containers": [_container(training, known)]}}


def _volumes(given: Any) -> Iterator[Mapping[str, Any]]:
    for volume in given:
        sources = (volume.get("projected") or {}).get("sources") or ()
        describes_pod = any("downwardAPI" in source for source in sources)
        if not describes_pod and not VOLUMES_LEFT_OUT.keys() & volume.keys():
            yield volume


def _container(training: Mapping[str, Any], volumes: set[str]) -> dict[str, Any]:
    taken = {k: v for k, v in training.items() if k not in CONTAINER_FIELDS_LEFT_OUT}
    for field in ("command", "args"):  # ours take their place
        taken.pop(field, None)
    taken["name"] = LAUNCHER
    if "env" in taken:  # such variables name a container, or mean the resources that are left out
        taken["env"] = [
            each for each in taken["env"] if "resourceFieldRef" not in (each.get("valueFrom") or {})
        ]
    if "volumeMounts" in taken:
        taken["volumeMounts"] = [m for m in taken["volumeMounts"] if m["name"] in volumes]
    return taken
