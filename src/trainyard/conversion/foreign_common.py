"""What converters share: metadata, pod templates, run policies, and torchrun's command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from trainyard.conversion.field_tracking import Fields
from trainyard.kinds.kind_registry import kinds_by_launcher
from trainyard.schema.dataclass import dataclass

Object = dict[str, Any]
_CLEAN_UP = {"None": "None", "Running": "Unfinished", "All": "All", "Undefined": "None"}
_TORCHRUN = re.compile(r"(.*/)?torchrun\Z")
_PYTHON = re.compile(r"(.*/)?python[\d.]*\Z")
_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_FLAGS = ("no-python", "module", "standalone", "use-env", "run-path")
"""Options of torchrun that take no value."""
_SCRIPT_OPTIONS = ("module", "no-python", "run-path")
_LAUNCH_OPTIONS = """
nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone node-rank master-addr
master-port local-addr max-restarts
"""
_GENERATED = _LAUNCH_OPTIONS.split()
"""Options of torchrun that are fields of our jobs, or that the launch generates."""
_MULTI_NODE = ("rdzv-endpoint", "master-addr", "node-rank")
_KEPT = ("nproc-per-node", "max-restarts", "rdzv-backend")
_SHELL = re.compile(r"(.*/)?(ba|da|k|z)?sh\Z")
_SCRIPT_FOLLOWS = re.compile(r"-[a-z]*c\Z")
_BRACES = re.compile(r"\$\{(\w+)[^{}]*\}")
_NOT_SIMPLE = re.compile(r"[;|&<>`(){}*?~#\n]")
"""Syntax that makes a shell script more than one command with its words."""


def job(launcher: str, metadata: Object, spec: Object) -> Object:
    """A job of the kind that uses a launcher."""
    kind = kinds_by_launcher()[launcher]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def metadata(fields: Fields) -> Object:
    """Name, namespace, labels and annotations of an object."""
    own = fields.mapping("metadata")
    names = ("name", "generateName", "namespace", "labels", "annotations")
    found = {name: own.take(name) for name in names if name in own}
    applied = "kubectl.kubernetes.io/last-applied-configuration"
    if isinstance(found.get("annotations"), dict):
        found["annotations"] = {k: v for k, v in found["annotations"].items() if k != applied}
    return {name: value for name, value in found.items() if value}


def run_mode(spec: Fields) -> Object:
    """`runMode` of a job that is to be suspended; else empty."""
    return {"runMode": {"pause": {"enabled": True}}} if spec.take("suspend") else {}


def run_policy(fields: Fields) -> tuple[Object, Object]:
    """From Kubeflow's `runPolicy`: our `runPolicy`, and other fields of our spec, both by name."""
    policy: Object = {}
    if "cleanPodPolicy" in fields:
        given = str(fields.take("cleanPodPolicy"))
        policy["cleanUpPolicy"] = _CLEAN_UP.get(given, given)
    names = ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
    policy |= {name: fields.take(name) for name in names if name in fields}
    beside: Object = {}
    if "schedulingPolicy" in fields:
        scheduling = fields.mapping("schedulingPolicy")
        if "queue" in scheduling:
            beside |= scheduler(scheduling.take("queue"))
        scheduling.drop_all(
            {
                "minAvailable": "all pods of a job in a queue start together",
                "priorityClass": "write a number, 0 to 100: spec.scheduler.t9kScheduler.priority",
            },
        )
    beside |= run_mode(fields)
    return ({"runPolicy": policy} if policy else {}), beside


def ttl(spec: Fields) -> Object:
    """`ttlSecondsAfterFinished` for a `runPolicy`, if the original has it."""
    key = "ttlSecondsAfterFinished"
    return {key: spec.take(key)} if key in spec else {}


def note_without_ttl(spec: Fields, policy: Object) -> None:
    """Note that a kind has no `ttlSecondsAfterFinished`."""
    for key, value in policy.items():
        text = f"{value} is left out: jobs of this kind stay until they are deleted"
        spec.add_note(key, text)


def scheduler(queue: object) -> Object:
    """`scheduler` of a job that waits in a queue."""
    return {"scheduler": {"t9kScheduler": {"queue": str(queue)}}}


def template(fields: Fields) -> Object:
    """Take a pod template, without its restart policy, which the job's replaces."""
    found = fields.mapping("template")
    spec = dict(found.take("spec", {}))
    if "restartPolicy" in spec:
        fields.add_note("template", "its spec.restartPolicy gives way to the replicas' own")
        del spec["restartPolicy"]
    own = {key: value for key, value in found.take("metadata", {}).items() if value}
    own.pop("creationTimestamp", None)
    if "name" in own:
        del own["name"]
        fields.add_note("template", "its metadata.name is left out: pods are named by their job")
    return {**({"metadata": own} if own else {}), "spec": spec}


def training_container(pod: Object, names: Sequence[str] = ()) -> Object | None:
    """The container that trains: one of these names, else the first; None without any."""
    containers = (pod.get("spec") or {}).get("containers") or []
    named = (each for name in names for each in containers if each.get("name") == name)
    return next(named, containers[0] if containers else None)


def command_of(container: Object) -> list[str]:
    """Command and args of a container as one list."""
    return [str(word) for key in ("command", "args") for word in container.get(key) or ()]


def take_command(container: Object) -> list[str]:
    """The same, removed from the container."""
    words = command_of(container)
    for key in ("command", "args"):
        container.pop(key, None)
    return words


@dataclass(slots=True)
class TorchrunCommand:
    """A parsed command line of torchrun."""

    script: list[str]
    """The script with its arguments, after options that concern it, such as `-m`."""
    options: dict[str, str] = field(default_factory=dict)
    """Values of generated options, by names with hyphens."""
    extra_options: list[str] = field(default_factory=list)

    @property
    def is_multi_node(self) -> bool:
        """Whether it makes its container one node of several."""
        is_named = any(name in self.options for name in _MULTI_NODE)
        return "standalone" not in self.options and (
            is_named or self.options.get("nnodes", "1") != "1"
        )

    def config(self) -> Object:
        """`torchrunConfig` with what the command sets."""
        found: Object = {"enabled": True}
        if (processes := self.options.get("nproc-per-node")) is not None:
            found["procPerNode"] = proc_per_node(processes)
        if (restarts := self.options.get("max-restarts", "")).isdigit():
            found["maxRestarts"] = int(restarts)
        return found | ({"extraOptions": self.extra_options} if self.extra_options else {})

    def dropped_options_note(self) -> str:
        """The note about options that the launch generates itself; "" if there are none."""
        names = [f"--{name}" for name in self.options if name not in _KEPT]
        text = "of torchrun is left out: the launch makes its own"
        return f"{shlex.join(names)} {text}" if names else ""


def proc_per_node(value: Any) -> str:
    """`procPerNode` of torchrun's `--nproc-per-node`, in which `auto` means the number of GPUs."""
    return "gpu" if str(value) in ("auto", "gpu") else str(value)


def parse_torchrun(command: Sequence[str]) -> TorchrunCommand | None:
    """The command line of torchrun in a command, which may be a shell's that does nothing else.

    None for any other command, and where the shell expands what torchrun gets.
    """
    given = [str(word) for word in command]
    words = _without_shell(given)
    found = _parse(words)
    if found is not None and words != given:
        kept = [found.options.get(name, "") for name in _KEPT]
        if any("$" in word for word in (*found.script, *found.extra_options, *kept)):
            return None
    return found


def _without_shell(words: list[str]) -> list[str]:
    """The words of the command that `sh -c` runs, if it is a single simple one; else `words`."""
    if len(words) != 3 or not (_SHELL.match(words[0]) and _SCRIPT_FOLLOWS.match(words[1])):
        return words
    script = _BRACES.sub(r"$\1", words[2].replace("\\\n", " ").strip())
    if _NOT_SIMPLE.search(script):
        return words
    try:
        found = shlex.split(script)
    except ValueError:  # a quotation that does not end
        return words
    return found[1:] if found[:1] == ["exec"] else found


def _parse(words: list[str]) -> TorchrunCommand | None:
    while words and words[0] == "env":
        words = words[1:]
    if words and _TORCHRUN.match(words[0]):
        words = words[1:]
    elif len(words) > 2 and _PYTHON.match(words[0]) and words[1] == "-m" and words[2] in _MODULES:
        words = words[3:]
    else:
        return None
    found = TorchrunCommand([])
    place = 0
    while place < len(words) and words[place].startswith("-"):
        name, sign, value = words[place].lstrip("-").partition("=")
        name = {"m": "module"}.get(name.replace("_", "-"), name.replace("_", "-"))
        place += 1
        if name in _SCRIPT_OPTIONS:
            found.script.append({"module": "-m"}.get(name, f"--{name}"))
        elif name in _GENERATED:
            is_flag = name in _FLAGS
            found.options[name] = value if sign or is_flag or place >= len(words) else words[place]
            place += not sign and not is_flag
        else:
            given = [words[place - 1]]
            if not sign and name not in _FLAGS and place < len(words):
                given, place = [*given, words[place]], place + 1
            found.extra_options += given
    found.script += words[place:]
    return found


def plain_command_note(words: Sequence[str]) -> str:
    """The note about a command that is kept as it is although it needs the PET_ variables that
    Kubeflow sets for torchrun; "" for any other."""
    text = " ".join(map(str, words))
    if "torchrun" in text or _MODULES[0] in text:
        return (
            "its command starts torchrun by way of a shell, for which no PET_ variables are set: "
            "write torchrun and its words as the command itself"
        )
    if "PET_" in text:
        return "no PET_ variables are set: ranks are in RANK and WORLD_SIZE"
    return ""
