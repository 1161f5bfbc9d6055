"""A script that `trainyard run SCRIPT` turns into a job, independent of the kind of job.

Each kind that can run scripts has a ``script.py`` with ``spec(script)``, which returns the spec of
a job, and names its launchers in its row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Literal, NamedTuple

from trainyard.kinds.shared.workload import RestartPolicy
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError

GPU = "nvidia.com/gpu"
HIDING_RANKS = ["env", "-u", "RANK", "-u", "WORLD_SIZE", "TRAINYARD_RANK=0"]
"""Before a command: it runs as one that nobody gave a rank, which our own programs find."""


SAFE_IN_SHELL = re.compile(r"[\w@%+=:,./-]*")
"""What no shell changes, in any language's letters."""


class ScriptError(TrainyardError):
    """A script cannot be run as requested; the text says how it can."""


class Mount(NamedTuple):
    """A volume of every replica: its source as in a pod, such as ``{"hostPath": …}``, and where
    it is mounted."""

    source: dict[str, Any]
    path: str


class Sizes(NamedTuple):
    """The least and the most replicas of an elastic job."""

    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script, module or program, its arguments, and how it is to run."""

    name: str
    form: Literal["python", "module", "program"] = "python"
    target: str
    """The script's path, the module's name, or the program."""
    arguments: Sequence[str] = ()
    folder: str = ""
    """Where replicas start; "" where that is the image's affair."""
    launcher: str
    replicas: int = 1
    processes: int = 1
    """Processes of each replica."""
    gpus: int = 0
    """GPUs of each replica."""
    image: str
    interpreter: str = "python"
    """The name of Python where the replicas run; "" for a program that needs none."""
    env: dict[str, str] = field(default_factory=dict)
    secret_env: Sequence[str] = ()
    """Variables whose values are in the job's Secret, each under its name."""
    mounts: Sequence[Mount] = ()
    restarts: int = 0
    hides_ranks: bool = False
    """Whether it is to find no rank in its environment."""
    elastic: Sizes | None = None
    queue: str = ""
    timeout_seconds: int | None = None

    @property
    def secret(self) -> str:
        """The name of the Secret with the values of `secret_env`."""
        return f"{self.name}-env"

    @property
    def words(self) -> list[str]:
        """The arguments of ``python``, or, for a program, the whole command."""
        prefix = ["-m"] if self.form == "module" else []
        return [*prefix, self.target, *self.arguments]

    @property
    def command(self) -> list[str]:
        """The command of a container that runs it by itself."""
        hiding = HIDING_RANKS if self.hides_ranks else []
        return [*hiding, *([self.interpreter] if self.interpreter else []), *self.words]

    @property
    def restart_policy(self) -> str:
        """The restart policy of its replicas."""
        return (RestartPolicy.ON_FAILURE if self.restarts else RestartPolicy.NEVER).value

    def refuse_unless_python(self) -> None:
        """Raise ScriptError for what Python cannot run."""
        if self.form == "program":
            raise ScriptError(
                f"{self.target} is no Python script, which the launcher {self.launcher} needs: "
                "run it with --launcher none, or plain if it wants ranks"
            )

    def refuse_processes(self, others: str) -> None:
        """Raise ScriptError where a replica is to hold several processes, which this launcher
        cannot start; ``others`` are those that can."""
        if self.processes > 1:
            raise ScriptError(
                f"--launcher {self.launcher} starts one process in each replica, not "
                f"{self.processes}: use --launcher {others}, or more --replicas"
            )

    def refuse_elastic(self) -> None:
        """Raise ScriptError where it is to be elastic."""
        if self.elastic:
            raise ScriptError(
                f"--launcher {self.launcher} cannot run an elastic job: use --launcher torchrun or "
                "deepspeed"
            )

    def refuse_timeout(self) -> None:
        """Raise ScriptError where it has a limit of time."""
        if self.timeout_seconds:
            raise ScriptError(
                f"--launcher {self.launcher} has no --timeout: use another launcher, or `timeout` "
                "within the script"
            )


def template(script: Script, container: str, **what: list[str]) -> dict[str, Any]:
    """The pod template of a replica; ``what`` is the container's command, args or both.

    They are escaped: Kubernetes would expand ``$(NAME)``, but words of a command line must arrive
    as the user wrote them.
    """
    main: dict[str, Any] = {"name": container, "image": script.image}
    main |= {key: [literal(word) for word in words] for key, words in what.items() if words}
    open_env = [{"name": name, "value": literal(value)} for name, value in script.env.items()]
    secret_env = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": script.secret, "key": name}}}
        for name in script.secret_env
    ]
    if variables := open_env + secret_env:
        main["env"] = variables
    if script.gpus:
        main["resources"] = {"limits": {GPU: script.gpus}}
    spec: dict[str, Any] = {"containers": [main]}
    if script.mounts:
        names = [f"volume-{number}" for number in range(len(script.mounts))]
        main["volumeMounts"] = [
            {"name": name, "mountPath": mount.path}
            for name, mount in zip(names, script.mounts, strict=True)
        ]
        spec["volumes"] = [
            {"name": name, **mount.source} for name, mount in zip(names, script.mounts, strict=True)
        ]
    return {"spec": spec}


def literal(text: str) -> str:
    """The text, escaped so that Kubernetes expands nothing in it."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def run_policy(script: Script) -> dict[str, Any]:
    """`runPolicy` of kinds that have all of its fields, without defaults."""
    policy: dict[str, Any] = {}
    if script.restarts:
        policy["backoffLimit"] = script.restarts
    if script.timeout_seconds:
        policy["activeDeadlineSeconds"] = script.timeout_seconds
    return {"runPolicy": policy} if policy else {}


def elastic(script: Script) -> dict[str, Any]:
    """`elastic`, if the script is to run elastically."""
    if not script.elastic:
        return {}
    least, most = script.elastic
    return {
        "elastic": {
            "enabled": True,
            "minReplicas": least,
            "maxReplicas": most,
            "expectedReplicas": script.replicas,
        }
    }


def scheduler(script: Script) -> dict[str, Any]:
    """`scheduler`, if a queue is named."""
    return {"scheduler": {"t9kScheduler": {"queue": script.queue}}} if script.queue else {}
