"""Finds out which volume or disk is full, as far as the failure and the pod show it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from trainyard.client.pod_views import PodView
from trainyard.diagnosis.log_meanings import VOLUME_FULL, Reading
from trainyard.diagnosis.situation import Situation
from trainyard.evidence.tracebacks import RaisedException

_PATH = re.compile(r"['\"](/[^'\"\n]+)['\"]")
_OWN = "the disk that holds the container's own files"


def name_full_volume(
    situation: Situation, pod_name: str, reading: Reading, raised: RaisedException | None
) -> Reading:
    """The reading of a failure for want of room, with what is full; any other as it is."""
    if reading.what != VOLUME_FULL:
        return reading
    pod = _pod(situation, pod_name)
    if not pod.container_names:
        return reading
    mounts = _mounts(pod, situation.job.training_container(pod))
    for path in _paths(reading.line, raised):
        inside = [at for at in mounts if f"{path}/".startswith(f"{at.rstrip('/')}/")]
        what = f"{mounts[max(inside, key=len)]} is full" if inside else f"{_OWN} is full"
        return replace(reading, what=f"{what}: {path} could not be written")
    others = ", ".join(f"{volume} at {at}" for at, volume in mounts.items())
    return replace(reading, what=f"{VOLUME_FULL}: {others}, or {_OWN}") if mounts else reading


def _paths(line: str, raised: RaisedException | None) -> Iterable[str]:
    """What was to be written: as the failure says, or as the user's own source does."""
    texts = [line, *((raised.message,) if raised else ())]
    texts += [frame.source for frame in reversed(raised.frames) if frame.is_own] if raised else []
    return (path for text in texts for path in _PATH.findall(text))


def _pod(situation: Situation, name: str) -> PodView:
    """The pod, or what it was made of where it is gone."""
    pod = situation.pod(name)
    template = situation.job.replica_spec(situation.replica(name)).get("template") or {}
    return pod or PodView(template)


def _mounts(pod: PodView, trains: str) -> dict[str, str]:
    """The volumes that the container that trains can write to, by where they are."""
    spec = pod.obj.get("spec") or {}
    volumes = {each.get("name"): each for each in spec.get("volumes") or ()}
    return {
        str(mount.get("mountPath")): text
        for container in spec.get("containers") or ()
        if container.get("name") == trains
        for mount in container.get("volumeMounts") or ()
        if not mount.get("readOnly")
        and (text := _volume_name(volumes.get(mount.get("name")) or {}))
    }


def _volume_name(volume: Mapping[str, Any]) -> str:
    """What a volume is called; "" for one that nobody writes to."""
    if claim := volume.get("persistentVolumeClaim"):
        return f"the claim {claim.get('claimName')}"
    if folder := volume.get("hostPath"):
        return f"the disk of the node with {folder.get('path')}"
    is_writable = any(key in volume for key in ("emptyDir", "ephemeral", "nfs", "csi"))
    return f"the volume {volume.get('name')}" if is_writable else ""
