"""How a replica finds the channel on which it reports to the controller (decision 217).

The variables are those of Kubeflow Trainer 2.2, so that programs that report there report here.
Token and certificate are in an optional Secret of the job: the job runs whatever becomes of the
channel. The Secret also has `trainyard.report`, for a Python without trainyard (decision 241).
"""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.kinds.shared import child_names
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.owner_identity import OwnerIdentity
from trainyard.kinds.shared.pods import pod_assembly
from trainyard.kinds.shared.workload import Dependent, Generated, Manifest
from trainyard.kube.resources import SECRETS
from trainyard.payloads import shipping

VOLUME = "trainyard-channel"
REPORTER = "trainyard.py"
"""Key of the Secret, and name of the module, in a folder where nothing else is."""
URL_VARIABLE = "KUBEFLOW_TRAINER_SERVER_URL"
_PYTHON = "python"
_FILES = {"ca.crt": "ca.crt", "token": "token", REPORTER: f"{_PYTHON}/{REPORTER}"}
_READABLE = 0o444
"""Images that run as another user must read them too; the token is good for this job only."""


def channel_dependents(
    identity: OwnerIdentity, settings: Settings, files: Mapping[str, str], packed: Mapping[str, str]
) -> tuple[Dependent, ...]:
    """The job's Secret with its token, if there is a channel.

    It also holds `files` (texts) and `packed` (already in base64).
    """
    if not settings.channel_address:
        return ()

    def manifest(name: str) -> Manifest:
        metadata = identity.metadata(name)
        found = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}
        texts = {REPORTER: shipping.source("training_report"), **files}
        return {**found, "data": dict(packed), "stringData": texts}

    name = child_names.channel_secret_name(identity.base)
    return (Dependent(SECRETS, name, manifest, generated=Generated.CHANNEL, is_optional=True),)


def report_url(pod: Manifest, identity: OwnerIdentity, settings: Settings) -> str:
    """The URL to which a pod reports."""
    place = identity.resource.path(identity.namespace, identity.name, "status")
    return f"https://{settings.channel_address}{place}?pod={pod['metadata']['name']}"


def with_channel(
    pod: Manifest, container: str, identity: OwnerIdentity, settings: Settings
) -> Manifest:
    """The pod, one container of which knows where to report, if there is a channel.

    What the user has set or mounted there stays.
    """
    if not settings.channel_address:
        return pod
    variables = {
        URL_VARIABLE: report_url(pod, identity, settings),
        "KUBEFLOW_TRAINER_SERVER_CA_CERT": f"{child_names.CHANNEL_PATH}/ca.crt",
        "KUBEFLOW_TRAINER_SERVER_TOKEN": f"{child_names.CHANNEL_PATH}/token",
        "TRAINYARD_PYTHON": f"{child_names.CHANNEL_PATH}/{_PYTHON}",
    }
    pod_assembly.put_env_first(pod, variables, only=container)
    mount_channel_files(pod, container, identity, (VOLUME, child_names.CHANNEL_PATH), _FILES)
    return pod


def mount_channel_files(
    pod: Manifest,
    container: str,
    identity: OwnerIdentity,
    volume: tuple[str, str],
    files: Mapping[str, str],
) -> bool:
    """Mount files of the job's channel Secret into one container: keys, and paths in the volume.

    `volume` is its name and where it is mounted. False, and nothing happens, where the container
    has something mounted there.
    """
    name, place = volume
    mount = {"name": name, "mountPath": place, "readOnly": True}
    if not pod_assembly.add_mount(pod, container, mount):
        return False
    source = {
        "secretName": child_names.channel_secret_name(identity.base),
        "defaultMode": _READABLE,
        "optional": True,
        "items": [{"key": key, "path": path} for key, path in files.items()],
    }
    pod["spec"]["volumes"] = [
        *(pod["spec"].get("volumes") or ()),
        {"name": name, "secret": source},
    ]
    return True
