"""What jobs of several systems have in common: pods, policies of runs, torchrun's command."""

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
_OF_THE_SCRIPT = ("module", "no-python", "run-path")
_OF_A_LAUNCH = """
nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone node-rank master-addr
master-port local-addr max-restarts
"""
_OURS = _OF_A_LAUNCH.split()
"""Options of torchrun that a job's own fields say, or its launch makes."""
_OF_SEVERAL = ("rdzv-endpoint", "master-addr", "node-rank")
_KEPT = ("nproc-per-node", "max-restarts", "rdzv-backend")
_SHELL = re.compile(r"(.*/)?(ba|da|k|z)?sh\Z")
_SCRIPT_FOLLOWS = re.compile(r"-[a-z]*c\Z")
_BRACES = re.compile(r"\$\{(\w+)[^{}]*\}")
_NOT_SIMPLE = re.compile(r"[;|&<>`(){}*?~#\n]")
"""What makes more of a shell's script than one command with its words."""


def job(launcher: str, metadata: Object, spec: Object) -> Object:
    """A job of the kind that uses a launcher."""
    kind = kinds_by_launcher()[launcher]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def metadata(fields: Fields) -> Object:
    """Name, namespace, labels and annotations of an object."""
    own = fields.into("metadata")
    names = ("name", "generateName", "namespace", "labels", "annotations")
    found = {name: own.take(name) for name in names if name in own}
    applied = "kubectl.kubernetes.io/last-applied-configuration"
    if isinstance(found.get("annotations"), dict):
        found["annotations"] = {k: v for k, v in found["annotations"].items() if k != applied}
    own.done()
    return {name: value for name, value in found.items() if value}


def run_policy(fields: Fields) -> tuple[Object, Object]:
    """`runPolicy`, and what of it belongs beside it, of Kubeflow's `runPolicy`."""
    policy: Object = {}
    if "cleanPodPolicy" in fields:
        given = str(fields.take("cleanPodPolicy"))
        policy["cleanUpPolicy"] = _CLEAN_UP.get(given, given)
    names = ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
    policy |= {name: fields.take(name) for name in names if name in fields}
    beside: Object = {}
    if "schedulingPolicy" in fields:
        scheduling = fields.into("schedulingPolicy")
        if "queue" in scheduling:
            beside |= queue(scheduling.take("queue"))
        told(
            scheduling,
            {
                "minAvailable": "all pods of a job in a queue start together",
                "priorityClass": "write a number, 0 to 100: spec.scheduler.t9kScheduler.priority",
            },
        )
    if fields.take("suspend"):
        beside["runMode"] = {"pause": {"enabled": True}}
    fields.done()
    return ({"runPolicy": policy} if policy else {}), beside


def queue(name: object) -> Object:
    """`scheduler`, for a queue."""
    return {"scheduler": {"t9kScheduler": {"queue": str(name)}}}


def told(fields: Fields, why: dict[str, str]) -> None:
    """Tell of everything that is left, with a reason where there is one."""
    for key, text in why.items():
        fields.tell(key, text)
    fields.done()


def template(fields: Fields, container: str) -> Object:
    """A pod template, whose first container, or the one of this name, trains; the restart policy
    of its pod is left to the job."""
    found = fields.take("template", {})
    spec = dict(found.get("spec") or {})
    if "restartPolicy" in spec:
        fields.remark("template", "its spec.restartPolicy gives way to the replicas' own")
        del spec["restartPolicy"]
    own = {key: value for key, value in (found.get("metadata") or {}).items() if value}
    own.pop("creationTimestamp", None)
    if "name" in own:
        del own["name"]
        fields.remark("template", "its metadata.name is left out: pods are named by their job")
    return {**({"metadata": own} if own else {}), "spec": spec}


def training(pod: Object, names: Sequence[str]) -> Object | None:
    """The container that trains: of one of these names, else the first; None without any."""
    containers = (pod.get("spec") or {}).get("containers") or []
    named = (each for name in names for each in containers if each.get("name") == name)
    return next(named, containers[0] if containers else None)


def words_of(container: Object) -> list[str]:
    """What a container runs, which is taken out of it."""
    parts = (container.pop("command", None), container.pop("args", None))
    return [str(word) for part in parts for word in part or ()]


@dataclass(slots=True)
class Torchrun:
    """A command that starts torchrun, taken apart."""

    words: list[str]
    """The script and its arguments, after options that concern it."""
    options: dict[str, str] = field(default_factory=dict)
    """By names with hyphens: those that fields of a job say."""
    others: list[str] = field(default_factory=list)

    @property
    def joins(self) -> bool:
        """Whether it is to be one node of several."""
        others = any(name in self.options for name in _OF_SEVERAL)
        return "standalone" not in self.options and (
            others or self.options.get("nnodes", "1") != "1"
        )

    def config(self) -> Object:
        """`torchrunConfig`, as far as the command says it."""
        found: Object = {"enabled": True}
        if (processes := self.options.get("nproc-per-node")) is not None:
            found["procPerNode"] = processes_of(processes)
        if (restarts := self.options.get("max-restarts", "")).isdigit():
            found["maxRestarts"] = int(restarts)
        return found | ({"extraOptions": self.others} if self.others else {})

    def left_out(self) -> str:
        """What to say of options that the launch makes itself; empty where there are none."""
        names = [f"--{name}" for name in self.options if name not in _KEPT]
        text = "of torchrun is left out: the launch makes its own"
        return f"{shlex.join(names)} {text}" if names else ""


def processes_of(value: Any) -> str:
    """`procPerNode`: `auto` is as many as there are GPUs."""
    return "gpu" if str(value) in ("auto", "gpu") else str(value)


def torchrun(command: Sequence[str]) -> Torchrun | None:
    """A command taken apart that runs torchrun; None for any other, a script among them that does
    more, or has its shell fill in what torchrun is to get."""
    given = [str(word) for word in command]
    words = _without_shell(given)
    found = _taken_apart(words)
    if found is not None and words != given:
        kept = [found.options.get(name, "") for name in _KEPT]
        if any("$" in word for word in (*found.words, *found.others, *kept)):
            return None
    return found


def _without_shell(words: list[str]) -> list[str]:
    """The words of the one simple command that a shell is told to run, if it is that."""
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


def _taken_apart(words: list[str]) -> Torchrun | None:
    while words and _is_env(words[0]):
        words = words[1:]
    if words and _TORCHRUN.match(words[0]):
        words = words[1:]
    elif len(words) > 2 and _PYTHON.match(words[0]) and words[1] == "-m" and words[2] in _MODULES:
        words = words[3:]
    else:
        return None
    found = Torchrun([])
    place = 0
    while place < len(words) and words[place].startswith("-"):
        name, sign, value = words[place].lstrip("-").partition("=")
        name = {"m": "module"}.get(name.replace("_", "-"), name.replace("_", "-"))
        place += 1
        if name in _OF_THE_SCRIPT:
            found.words.append({"module": "-m"}.get(name, f"--{name}"))
        elif name in _OURS:
            is_flag = name in _FLAGS
            found.options[name] = value if sign or is_flag or place >= len(words) else words[place]
            place += not sign and not is_flag
        else:
            given = [words[place - 1]]
            if not sign and name not in _FLAGS and place < len(words):
                given, place = [*given, words[place]], place + 1
            found.others += given
    found.words += words[place:]
    return found


def _is_env(word: str) -> bool:
    return word == "env"


def plain_remark(words: Sequence[str]) -> str:
    """What to say of a command that is started as it is, and counts on Kubeflow's variables for
    torchrun; empty of any other."""
    text = " ".join(map(str, words))
    if "torchrun" in text or _MODULES[0] in text:
        return (
            "its command starts torchrun by way of a shell, for which no PET_ variables are set: "
            "write torchrun and its words as the command itself"
        )
    if "PET_" in text:
        return "no PET_ variables are set: ranks are in RANK and WORLD_SIZE"
    return ""
