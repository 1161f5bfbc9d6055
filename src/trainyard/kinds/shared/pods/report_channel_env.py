"""How a replica finds the channel by which it tells the controller how it does (decision 217).

The variables are those of Kubeflow Trainer 2.2, so that what reports there reports here. Token and
certificate come by a Secret of the job that a pod can do without: whatever becomes of the channel,
the job runs. Beside them lies `trainyard.report` for a Python that has no trainyard (decision 241).
"""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.kinds.shared import child_names
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.owner_identity import OwnerIdentity
from trainyard.kinds.shared.pods import pod_assembly
from trainyard.kinds.shared.pods.pod_contract import CHANNEL_PATH
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
"""Also by images that run as another user; the token is the job's own."""


def channel_dependents(
    identity: OwnerIdentity, settings: Settings, files: Mapping[str, str], packed: Mapping[str, str]
) -> tuple[Dependent, ...]:
    """The job's Secret with its token, where there is a channel; `files` are in it too, and
    `packed`, in base64."""
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
    """Where a pod reports."""
    place = identity.resource.path(identity.namespace, identity.name, "status")
    return f"https://{settings.channel_address}{place}?pod={pod['metadata']['name']}"


def with_channel(
    pod: Manifest, container: str, identity: OwnerIdentity, settings: Settings
) -> Manifest:
    """The pod with one container told where it may report, if it may; what a user has set or
    mounted there stays."""
    if not settings.channel_address:
        return pod
    variables = {
        URL_VARIABLE: report_url(pod, identity, settings),
        "KUBEFLOW_TRAINER_SERVER_CA_CERT": f"{CHANNEL_PATH}/ca.crt",
        "KUBEFLOW_TRAINER_SERVER_TOKEN": f"{CHANNEL_PATH}/token",
        "TRAINYARD_PYTHON": f"{CHANNEL_PATH}/{_PYTHON}",
    }
    pod_assembly.put_env_first(pod, variables, only=container)
    mount = {"name": VOLUME, "mountPath": CHANNEL_PATH, "readOnly": True}
    if not pod_assembly.add_mount(pod, container, mount):
        return pod
    source = {
        "secretName": child_names.channel_secret_name(identity.base),
        "defaultMode": _READABLE,
        "optional": True,
        "items": [{"key": key, "path": path} for key, path in _FILES.items()],
    }
    volumes = pod["spec"].get("volumes") or ()
    pod["spec"]["volumes"] = [*volumes, {"name": VOLUME, "secret": source}]
    return pod
