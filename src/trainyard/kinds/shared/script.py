"""A script that is to become a job: what its user said of it, in the words of no kind.

Each kind that can run scripts has a ``script.py`` with ``spec(script)``, the spec of a job that
runs it, and names the launchers that stand for it in its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Literal, NamedTuple

from trainyard.kinds.shared.workload import RestartPolicy
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError

GPU = "nvidia.com/gpu"


class ScriptError(TrainyardError):
    """A script cannot be run the way that was asked for; the text says how it can."""


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
    launcher: str
    replicas: int = 1
    processes: int = 1
    """In each replica."""
    gpus: int = 0
    """Of each replica."""
    image: str
    interpreter: str = "python"
    """What it is called where the replicas run; "" for a program that needs none."""
    env: dict[str, str] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()
    restarts: int = 0
    elastic: Sizes | None = None
    queue: str = ""
    timeout_seconds: int | None = None

    @property
    def words(self) -> list[str]:
        """What is run, as the arguments of ``python`` (or as a command of its own)."""
        prefix = ["-m"] if self.form == "module" else []
        return [*prefix, self.target, *self.arguments]

    @property
    def command(self) -> list[str]:
        """The command of a container that runs it by itself."""
        return [self.interpreter, *self.words] if self.interpreter else self.words

    @property
    def restart_policy(self) -> str:
        """Of its replicas."""
        return (RestartPolicy.ON_FAILURE if self.restarts else RestartPolicy.NEVER).value

    def refuse_unless_python(self) -> None:
        """Raise ScriptError for what Python cannot run."""
        if self.form == "program":
            raise ScriptError(
                f"{self.target} is no Python script, which the launcher {self.launcher} needs: "
                "run it with --launcher none"
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
    """The pod of a replica; ``what`` is the container's command or args, or both.

    ``$(NAME)`` in these would be replaced by Kubernetes: what a user wrote on a command line is
    to arrive as it was written.
    """
    main: dict[str, Any] = {"name": container, "image": script.image}
    main |= {key: [literal(word) for word in words] for key, words in what.items() if words}
    if script.env:
        main["env"] = [
            {"name": name, "value": literal(value)} for name, value in script.env.items()
        ]
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
    """The text such that Kubernetes replaces nothing in it."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def run_policy(script: Script) -> dict[str, Any]:
    """`runPolicy` of the kinds that have all of it, as far as it is not the default."""
    policy: dict[str, Any] = {}
    if script.restarts:
        policy["backoffLimit"] = script.restarts
    if script.timeout_seconds:
        policy["activeDeadlineSeconds"] = script.timeout_seconds
    return {"runPolicy": policy} if policy else {}


def elastic(script: Script) -> dict[str, Any]:
    """`elastic`, of a script that is."""
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
    """`scheduler`, where a queue was named."""
    return {"scheduler": {"t9kScheduler": {"queue": script.queue}}} if script.queue else {}
