"""Which claims of jobs are empty folders on the embedded cluster, as its node agent would find."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from trainyard.client.cluster_target import ClusterTarget
from trainyard.client.job_view import Job
from trainyard.kinds.shared import labels
from trainyard.kube.embedded_contract import CLAIMS_FOLDER, empty_claim_message
from trainyard.kube.errors import KubeError
from trainyard.kube.resources import PERSISTENT_VOLUME_CLAIMS
from trainyard.machine.state_folder import find_cluster


async def empty_claims(target: ClusterTarget, jobs: Iterable[Job]) -> list[str]:
    """A sentence for each claim that no folder stands for and that nothing has been put into;
    nothing of a cluster of Kubernetes, or of somebody else's."""
    cluster = find_cluster(target.folder) if target.folder and not target.is_guest else None
    if cluster is None or target.folder is None:
        return []
    mapping = cluster.settings.get("volumes", {})
    found = []
    wanted = {(job.namespace, claim) for job in jobs for claim in _claims(job.obj.get("spec"))}
    for namespace, claim in sorted(wanted):
        kept = target.folder / CLAIMS_FOLDER / namespace / claim
        is_named = mapping.get(f"{namespace}/{claim}") or mapping.get(claim)
        if is_named or _has_entries(kept) or await _has_folder(target, namespace, claim):
            continue
        found.append(empty_claim_message(claim, str(kept)))
    return found


def _claims(part: Any) -> Iterator[str]:
    """The claims that volumes in a part of a job name."""
    if isinstance(part, dict):
        claim = part.get("persistentVolumeClaim")
        if isinstance(claim, dict) and isinstance(claim.get("claimName"), str):
            yield claim["claimName"]
    for inner in part.values() if isinstance(part, dict) else part:
        if isinstance(inner, dict | list):
            yield from _claims(inner)


def _has_entries(folder: os.PathLike[str]) -> bool:
    try:
        return bool(os.listdir(folder))
    except FileNotFoundError:
        return False
    except OSError:  # what is in it is not known
        return True


async def _has_folder(target: ClusterTarget, namespace: str, claim: str) -> bool:
    """Whether the claim itself names a folder."""
    try:
        found = await target.client.get(PERSISTENT_VOLUME_CLAIMS, claim, namespace)
    except KubeError:
        return False
    return bool((found["metadata"].get("annotations") or {}).get(labels.FOLDER))
