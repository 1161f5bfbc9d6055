"""Programs of ours that start the training container's command, as its first process.

In-place restart and node check each have one. The program comes by the Secret of the pod's report
channel. Where the Secret, a shell or a Python (3.8 or newer) is missing, the command starts as it
would without the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trainyard.kinds.shared.child_names import CHANNEL_PATH
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.owner_identity import OwnerIdentity
from trainyard.kinds.shared.pods import pod_assembly, pod_template_rules, report_channel_env
from trainyard.kinds.shared.workload import Manifest

_LEAST_POLL_SECONDS, _POLLS_PER_SECOND = 0.25, 100.0
_SCRIPT = """\
for each in python3 python; do
    [ -r {program} ] && command -v "$each" >/dev/null 2>&1 && \\
        "$each" -IS -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null && \\
        exec "$each" -IS {program} "$@"
done
exec "$@"
"""


class Wrapper(NamedTuple):
    """A program, and where it lies in a pod. Volume, folder, file and variable never change: pods
    of earlier versions, and programs in them, know them."""

    volume: str
    folder: str
    files: Mapping[str, str]
    """As `payloads.shipping` has them; the first is the program, the others it imports."""
    variable: str
    """The environment variable with its options, `name=value,…`."""


class Target(NamedTuple):
    """The container of an assembled pod whose command is to be wrapped."""

    pod: Manifest
    container: str
    host: str
    """What the pod's peers call it."""
    identity: OwnerIdentity
    settings: Settings
    total: int
    """Replicas of the job."""

    @property
    def poll_seconds(self) -> str:
        """How often its program may ask the controller: all of a job 100 times a second at most."""
        return f"{max(_LEAST_POLL_SECONDS, self.total / _POLLS_PER_SECOND):g}"


def wrap_command(target: Target, wrapper: Wrapper, options: Mapping[str, object]) -> None:
    """Have the program start the container's command.

    A container without a command of its own, or with something mounted in the program's folder,
    stays as it is.
    """
    pod, name = target.pod, target.container
    container = pod_template_rules.container_of(pod, name)
    command = container.get("command")
    volume, files = (wrapper.volume, wrapper.folder), {file: file for file in wrapper.files}
    if not command or not report_channel_env.mount_channel_files(
        pod, name, target.identity, volume, files
    ):
        return
    given = {
        "attempt": pod_assembly.attempt_of(pod),
        **options,
        "files": CHANNEL_PATH,
        "url": report_channel_env.report_url(pod, target.identity, target.settings),
    }
    env = [
        {"name": wrapper.variable, "value": ",".join(f"{k}={v}" for k, v in given.items())},
        *pod_assembly.with_uid(container.get("env") or ()),
    ]
    script = _SCRIPT.format(program=f"{wrapper.folder}/{next(iter(wrapper.files))}")
    line = ["/bin/sh", "-c", script, "trainyard", *command]
    pod_assembly.change_container(pod, name, command=line, env=env)
