"""What whoever creates an object fills in: random keys, and values that the cluster knows."""

from __future__ import annotations

from trainyard.kinds.shared.scheduling.kueue_workload import PRIORITY_CLASSES
from trainyard.kinds.shared.workload import Generated, Manifest
from trainyard.kube.client import Client
from trainyard.lifecycle.actions import Create
from trainyard.operator.channel.report_channel import ReportChannel
from trainyard.operator.reconcile.ssh_keys import ssh_keys


async def complete_manifest(
    client: Client, action: Create, uid: str, channel: ReportChannel | None
) -> Manifest:
    """The whole manifest of an object of the job with that UID. Raises `ApiError` when the server
    does not know the rest."""
    manifest = action.manifest()
    match action.generated:
        case Generated.NOTHING:
            return manifest
        case Generated.SSH_KEYS:
            return {**manifest, "data": {**(manifest.get("data") or {}), **ssh_keys()}}
        case Generated.CHANNEL:
            files = channel.authority.pod_files(uid) if channel else {}
            return {**manifest, "data": {**(manifest.get("data") or {}), **files}}
        case Generated.KUEUE_PRIORITY:
            name = manifest["spec"]["priorityClassRef"]["name"]
            found = await client.get(PRIORITY_CLASSES, name)
            return {**manifest, "spec": {**manifest["spec"], "priority": found.get("value") or 0}}
