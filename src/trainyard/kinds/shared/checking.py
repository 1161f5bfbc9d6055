"""What tests the nodes before a job starts: how it comes to be in the pods (decision 295).

Without a channel to hear it by, or a Python in the image, the command starts as it would anyway.
"""

from __future__ import annotations

from trainyard.kinds.shared import channel, names, pod_rules, pods
from trainyard.kinds.shared.identity import Identity
from trainyard.kinds.shared.node_check import NodeCheck
from trainyard.kinds.shared.pod_contract import CHANNEL_PATH
from trainyard.kinds.shared.settings import Settings
from trainyard.kinds.shared.workload import Manifest
from trainyard.payloads.shipping import NODE_CHECK

VOLUME = "trainyard-node-check"
PATH = "/t9k/node-check"
_LEAST_SECONDS, _REPORTS = 0.25, 100.0
"""How often a replica that waits asks; of a large job, so many times a second in all."""
_READABLE = 0o444
NO_CHANNEL = "runPolicy.nodeCheck is ignored: pods have no way to report here (channelAddress)"
SCRIPT = f"""\
for each in python3 python; do
    [ -r {PATH}/node_check.py ] && command -v "$each" >/dev/null 2>&1 && \\
        "$each" -IS -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null && \\
        exec "$each" -IS {PATH}/node_check.py "$@"
done
exec "$@"
"""


def put_before(
    pod: Manifest,
    container: str,
    host: str,
    identity: Identity,
    settings: Settings,
    policy: NodeCheck,
    total: int,
) -> None:
    """Have the check start the command of one container of an assembled pod; `host`: what its
    peers call it."""
    training = pod_rules.container_of(pod, container)
    command = training.get("command")
    mount = {"name": VOLUME, "mountPath": PATH, "readOnly": True}
    if not command or not pods.add_mount(pod, container, mount):
        return
    told = {
        "attempt": pods.attempt_of(pod),
        "limit": policy.timeout_seconds,
        "every": f"{max(_LEAST_SECONDS, total / _REPORTS):g}",
        "host": host,
        "files": CHANNEL_PATH,
        "url": channel.address(pod, identity, settings),
    }
    env = [
        {"name": "TRAINYARD_NODE_CHECK", "value": ",".join(f"{k}={v}" for k, v in told.items())},
        *pods.with_uid(training.get("env") or ()),
    ]
    line = ["/bin/sh", "-c", SCRIPT, "trainyard", *command]
    pods.change_container(pod, container, command=line, env=env)
    source = {
        "secretName": names.channel_secret_name(identity.base),
        "defaultMode": _READABLE,
        "optional": True,
        "items": [{"key": name, "path": name} for name in NODE_CHECK],
    }
    volumes = pod["spec"].get("volumes") or ()
    pod["spec"]["volumes"] = [*volumes, {"name": VOLUME, "secret": source}]
