"""Restart in place: what stays in a pod when its command has failed (decision 283).

Without a channel to hear it by, or a Python in the image, the command runs as it would anyway, and
every restart makes new pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainyard.kinds.shared import child_names
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.owner_identity import OwnerIdentity
from trainyard.kinds.shared.pods import pod_assembly, pod_template_rules, report_channel_env
from trainyard.kinds.shared.pods.pod_contract import CHANNEL_PATH
from trainyard.kinds.shared.workload import Manifest
from trainyard.payloads.shipping import IN_PLACE

VOLUME = "trainyard-hold"
PATH = "/t9k/hold"
_GRACE_SECONDS = 30
"""Kubernetes' own `terminationGracePeriodSeconds`."""
_LEAST_SECONDS, _REPORTS = 0.25, 100.0
"""How often an ended attempt asks; of a large job, so many times a second in all."""
_READABLE = 0o444
SCRIPT = f"""\
for each in python3 python; do
    [ -r {PATH}/hold.py ] && command -v "$each" >/dev/null 2>&1 && \\
        "$each" -IS -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null && \\
        exec "$each" -IS {PATH}/hold.py "$@"
done
exec "$@"
"""


def is_in_place(spec: Any) -> bool:
    """Whether the run policy, if it knows of it, asks for restarts in place."""
    return getattr(getattr(spec, "run_policy", None), "restart_mode", "Recreate") == "InPlace"


def longest_grace_seconds(templates: Iterable[Mapping[str, Any]]) -> int:
    """Seconds that the processes of a job have to end, by their pods' templates."""
    given = ((each.get("spec") or {}).get("terminationGracePeriodSeconds") for each in templates)
    return max((_GRACE_SECONDS if each is None else int(each) for each in given), default=0)


def inject_supervisor(
    pod: Manifest,
    container: str,
    identity: OwnerIdentity,
    settings: Settings,
    total: int,
    modules: Sequence[str],
) -> None:
    """Have what stays start the command of one container of an assembled pod; `modules`: what a
    Python beside it imports that waits for the next attempt."""
    training = pod_template_rules.container_of(pod, container)
    command = training.get("command")
    mount = {"name": VOLUME, "mountPath": PATH, "readOnly": True}
    if not command or not pod_assembly.add_mount(pod, container, mount):
        return
    every = max(_LEAST_SECONDS, total / _REPORTS)
    told = {
        "attempt": pod_assembly.attempt_of(pod),
        "grace": longest_grace_seconds([pod]),
        "every": f"{every:g}",
        **({"preload": "+".join(modules)} if modules else {}),
        "files": CHANNEL_PATH,
        "url": report_channel_env.report_url(pod, identity, settings),
    }
    env = [
        {"name": "TRAINYARD_HOLD", "value": ",".join(f"{k}={v}" for k, v in told.items())},
        *pod_assembly.with_uid(training.get("env") or ()),
    ]
    line = ["/bin/sh", "-c", SCRIPT, "trainyard", *command]
    pod_assembly.change_container(pod, container, command=line, env=env)
    source = {
        "secretName": child_names.channel_secret_name(identity.base),
        "defaultMode": _READABLE,
        "optional": True,
        "items": [{"key": name, "path": name} for name in IN_PLACE],
    }
    volumes = pod["spec"].get("volumes") or ()
    pod["spec"]["volumes"] = [*volumes, {"name": VOLUME, "secret": source}]
