"""What a TensorBoard turns into: a pod that runs the real `tensorboard`, and a Service before it.

Claims are mounted whole and read-only, never by `subPath`: Kubernetes would create a folder that is
not there yet, as root, and the training that is to make it could then not write to it. Several
sources are shown side by side, by a folder of links. What is not in a claim is fetched into that
folder by containers beside, one for each set of credentials (decision 59).
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from functools import cache
from typing import Any

from trainyard.kinds.shared import child_names, labels
from trainyard.kinds.shared.child_services import service
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.owner_identity import OwnerIdentity, annotations_of_pods
from trainyard.kinds.shared.scheduling.gang_scheduling import Membership, queue_membership
from trainyard.kinds.shared.viewer import Viewer
from trainyard.kinds.shared.workload import Dependent, Manifest
from trainyard.kinds.tensorboard.log_sources import Folder, Remote, Sources, folder_name, sources
from trainyard.kinds.tensorboard.spec import TensorBoard, TensorBoardSpec
from trainyard.payloads import shipping

PROGRAM = "tensorboard"
"""The command, and the name of the container that runs it."""
PORT = 6006
LOGS = "/logs"
CLAIMS = "/claims"
GRACE_SECONDS = 5
FETCHED = ".fetched"
"""As in `payloads/event_file_fetcher.py`."""
FETCH_SECONDS = 6 * 3600
"""Seconds that the first round of fetching may take."""
START_SECONDS = 300
"""Seconds that tensorboard may take to start, with all its imports."""


def describe(board: TensorBoard, settings: Settings) -> Viewer:
    """The pod and the Service of a valid TensorBoard."""
    meta = board.metadata
    identity = OwnerIdentity(
        kind=board.kind,
        api_version=board.api_version,
        namespace=meta.namespace or "default",
        name=meta.name,
        uid=meta.uid,
        base=child_names.board_name(meta.name),
        annotations=annotations_of_pods(meta.annotations),
    )
    found = sources(board.spec)
    image = board.spec.image or settings.boards.image
    return Viewer(
        kind=board.kind,
        namespace=identity.namespace,
        name=identity.name,
        uid=identity.uid,
        generation=meta.generation,
        suspended=board.spec.suspend,
        image=image,
        program=PROGRAM,
        port=PORT,
        installation="pip install tensorboard",
        logs_field="logDir",
        pod=_pod(identity, board.spec, found, image, settings),
        service=_service(identity, settings),
        unserved=found.unserved,
        has_logs=found.any,
        fetchers=tuple(_fetcher_names(found)),
    )


def _service(identity: OwnerIdentity, settings: Settings) -> Dependent:
    # What is in claims can be looked at while other logs are not fetched yet.
    spec = {
        "type": "NodePort" if settings.boards.node_port_host else "ClusterIP",
        "ports": [{"name": "http", "port": PORT, "targetPort": "http"}],
    }
    return service(identity, identity.base, spec)


def _pod(
    identity: OwnerIdentity, spec: TensorBoardSpec, found: Sources, image: str, settings: Settings
) -> Manifest:
    metadata = identity.metadata(identity.base)
    pod_spec: dict[str, Any] = {
        # The kubelet restarts a viewer, which loses nothing by that (decision 60).
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [_container(spec, found, image, settings), *_fetchers(found, image)],
        "volumes": _volumes(found),
    }
    scheduler = spec.scheduler.t9k_scheduler if spec.scheduler else None
    waits = queue_membership(settings.gang_backend, scheduler.queue) if scheduler else Membership()
    pod_spec |= waits.spec
    metadata["labels"] |= waits.labels
    annotations = {**waits.annotations, **identity.annotations}
    annotations[labels.REVISION] = _revision(pod_spec, metadata["labels"], annotations)
    metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}


def _container(
    spec: TensorBoardSpec, found: Sources, image: str, settings: Settings
) -> dict[str, Any]:
    mounts = [
        # Whole: of a `subPath` that is missing the kubelet makes a folder of root's (decision 58).
        {"name": volume, "mountPath": f"{CLAIMS}/{claim}", "readOnly": True}
        for claim, volume in _claim_volumes(found).items()
    ]
    container: dict[str, Any] = {
        "name": PROGRAM,
        "image": image,
        "command": _command(found, settings),
        "ports": [{"name": "http", "containerPort": PORT}],
        "startupProbe": {
            "httpGet": {"path": "/", "port": "http"},
            "periodSeconds": 1,
            "failureThreshold": START_SECONDS,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    if _is_combined(found):
        mounts.append({"name": "logs", "mountPath": LOGS})
    if settings.plain_processes:
        address = {"fieldRef": {"fieldPath": "status.podIP"}}
        container["env"] = [{"name": "POD_IP", "valueFrom": address}]
    if spec.resources:
        container["resources"] = _resources(spec.resources, settings)
    return container


def _resources(given: Mapping[str, Any], settings: Settings) -> Mapping[str, Any]:
    # On one machine a viewer must not take the room of the job that it shows (decision 64).
    if not settings.boards.yields:
        return given
    asked = {**(given.get("limits") or {}), **(given.get("requests") or {})}
    nothing = {name: "0" for name in ("cpu", "memory") if name in asked}
    return {**given, "requests": {**asked, **nothing}}


def _command(found: Sources, settings: Settings) -> list[str]:
    # Pods without a network of their own must not listen where others do.
    listen = "--host=$(POD_IP)" if settings.plain_processes else "--bind_all"
    if not _is_combined(found):
        logs = _path(found.folders[0]) if found.folders else LOGS
        return [PROGRAM, f"--logdir={logs}", f"--port={PORT}", listen]
    links = zip(_names(found), found.folders, strict=False)
    script = [f"ln -sfn {shlex.quote(_path(folder))} {LOGS}/{name}" for name, folder in links]
    script.append(f"exec {PROGRAM} --logdir={LOGS} --port={PORT} {listen}")
    return ["/bin/sh", "-c", " && ".join(script)]


def _is_combined(found: Sources) -> bool:
    return len(found.folders) > 1 or bool(found.remotes)


def _names(found: Sources) -> list[str]:
    """Names of the links, then of what is fetched; they become parts of run names."""
    wanted = [folder_name(folder.claim, folder.path) for folder in found.folders]
    wanted += [
        folder_name("s3", remote.secret) if remote.secret else "http" for remote in found.remotes
    ]
    names: dict[str, None] = {}
    for plain in wanted:
        name, number = plain, 2
        while name in names:
            name, number = f"{plain}-{number}", number + 1
        names[name] = None
    return list(names)


def _fetcher_names(found: Sources) -> list[str]:
    return [f"fetch-{number}" for number in range(len(found.remotes))]


def _fetchers(found: Sources, image: str) -> list[dict[str, Any]]:
    folders = _names(found)[len(found.folders) :]
    return [
        _fetcher(name, remote, f"{LOGS}/{folder}", image)
        for name, remote, folder in zip(_fetcher_names(found), found.remotes, folders, strict=True)
    ]


def _fetcher(name: str, remote: Remote, folder: str, image: str) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": name,
        "image": image,
        "command": ["python3", "-c", _program(), folder, *remote.addresses],
        "env": [{"name": "LOGS_FOLDER", "value": folder}],
        "startupProbe": {
            # By a variable: pods without mounts have the folder elsewhere, and know it by that.
            "exec": {"command": ["/bin/sh", "-c", f'cat "$LOGS_FOLDER/{FETCHED}"']},
            "periodSeconds": 1,
            "failureThreshold": FETCH_SECONDS,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "logs", "mountPath": LOGS}],
    }
    if remote.secret:
        container["envFrom"] = [{"secretRef": {"name": remote.secret}}]
    return container


@cache
def _program() -> str:
    return shipping.source("event_file_fetcher")


def _path(folder: Folder) -> str:
    path = f"{CLAIMS}/{folder.claim}"
    return f"{path}/{folder.path}" if folder.path else path


def _claim_volumes(found: Sources) -> dict[str, str]:
    """Claims and the names of their volumes; a claim's name may be too long for a volume's."""
    claims = dict.fromkeys(folder.claim for folder in found.folders)
    return {claim: f"claim-{number}" for number, claim in enumerate(claims)}


def _volumes(found: Sources) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [
        {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
        for claim, volume in _claim_volumes(found).items()
    ]
    if _is_combined(found):
        volumes.append({"name": "logs", "emptyDir": {}})
    return volumes


def _revision(
    pod_spec: Mapping[str, Any], own_labels: Mapping[str, str], annotations: Mapping[str, str]
) -> str:
    """A digest of all but the text of our program: an upgrade that changes its words must not have
    all logs fetched anew."""
    containers = [
        {**each, "command": [part for part in each["command"] if part != _program()]}
        for each in pod_spec["containers"]
    ]
    parts = ({**pod_spec, "containers": containers}, own_labels, annotations)
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
