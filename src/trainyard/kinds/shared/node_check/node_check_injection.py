"""What tests the nodes before a job starts: how it comes to be in the pods (decision 295).

Without a channel to hear it by, or a Python in the image, the command starts as it would anyway.
"""

from __future__ import annotations

from trainyard.kinds.shared import child_names
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.node_check.node_check_spec import NodeCheck
from trainyard.kinds.shared.owner_identity import OwnerIdentity
from trainyard.kinds.shared.pods import pod_assembly, pod_template_rules, report_channel_env
from trainyard.kinds.shared.pods.pod_contract import CHANNEL_PATH
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


def inject_node_check(
    pod: Manifest,
    container: str,
    host: str,
    identity: OwnerIdentity,
    settings: Settings,
    policy: NodeCheck,
    total: int,
) -> None:
    """Have the check start the command of one container of an assembled pod; `host`: what its
    peers call it."""
    training = pod_template_rules.container_of(pod, container)
    command = training.get("command")
    mount = {"name": VOLUME, "mountPath": PATH, "readOnly": True}
    if not command or not pod_assembly.add_mount(pod, container, mount):
        return
    told = {
        "attempt": pod_assembly.attempt_of(pod),
        "limit": policy.timeout_seconds,
        "every": f"{max(_LEAST_SECONDS, total / _REPORTS):g}",
        "host": host,
        "files": CHANNEL_PATH,
        "url": report_channel_env.report_url(pod, identity, settings),
    }
    env = [
        {"name": "TRAINYARD_NODE_CHECK", "value": ",".join(f"{k}={v}" for k, v in told.items())},
        *pod_assembly.with_uid(training.get("env") or ()),
    ]
    line = ["/bin/sh", "-c", SCRIPT, "trainyard", *command]
    pod_assembly.change_container(pod, container, command=line, env=env)
    source = {
        "secretName": child_names.channel_secret_name(identity.base),
        "defaultMode": _READABLE,
        "optional": True,
        "items": [{"key": name, "path": name} for name in NODE_CHECK],
    }
    volumes = pod["spec"].get("volumes") or ()
    pod["spec"]["volumes"] = [*volumes, {"name": VOLUME, "secret": source}]
