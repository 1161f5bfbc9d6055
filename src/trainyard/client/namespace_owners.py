"""To whom the namespaces of a cluster belong, where several people share it (decision 88)."""

from __future__ import annotations

import os
from collections.abc import Mapping

from trainyard.client.cluster_target import ClusterTarget
from trainyard.kinds.shared import labels
from trainyard.kube.errors import Forbidden
from trainyard.kube.resources import NAMESPACES
from trainyard.machine.users import user_with_uid


async def owners(target: ClusterTarget) -> Mapping[str, str]:
    """The owner of each namespace by name; empty where all have the same, or one may not look."""
    marks = await _marks(target)
    named = {name: mark.get(labels.OWNER, "") for name, mark in marks.items()}
    if not any(named.values()):
        return {}
    others = user_with_uid(os.stat(target.socket).st_uid).name if target.socket else ""
    return {name: owner or others for name, owner in named.items()}


async def own_namespaces(target: ClusterTarget) -> frozenset[str]:
    """The namespaces that belong to this user; of the cluster's owner, all."""
    marks = await _marks(target)
    if not target.is_guest:
        return frozenset(marks)
    uid = str(os.geteuid())
    return frozenset(name for name, mark in marks.items() if mark.get(labels.OWNER_UID) == uid)


async def _marks(target: ClusterTarget) -> dict[str, Mapping[str, str]]:
    try:
        namespaces, _ = await target.client.list(NAMESPACES)
    except Forbidden:
        return {}
    meta = [namespace["metadata"] for namespace in namespaces]
    return {each["name"]: each.get("annotations") or {} for each in meta}
