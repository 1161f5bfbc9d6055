"""A script for Slurm's sbatch: its header, and the srun line in it.

https://slurm.schedmd.com/sbatch.html, https://slurm.schedmd.com/srun.html
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import field

from trainyard.conversion import foreign_common
from trainyard.conversion.field_tracking import NO_COUNTERPART, CannotConvert
from trainyard.conversion.foreign_common import Object
from trainyard.schema.dataclass import dataclass

_HEADER = re.compile(r"#SBATCH\s+(?P<words>.*?)(\s+#.*)?\Z")
_SHORT = {
    "J": "job-name", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "t": "time",
    "p": "partition", "o": "output", "e": "error", "A": "account", "D": "chdir", "G": "gpus",
    "C": "constraint", "w": "nodelist", "x": "exclude", "q": "qos", "a": "array",
    "d": "dependency", "L": "licenses", "b": "begin", "u": "unbuffered", "l": "label",
    "K": "kill-on-bad-exit",
}  # fmt: skip
_FLAGS = ("exclusive", "requeue", "no-requeue", "unbuffered", "label", "overlap", "wait", "hold")
_REASONS = {
    "output": "logs are kept by the cluster: trainyard logs",
    "error": "logs are kept by the cluster: trainyard logs",
    "array": "submit a job for each, with trainyard rerun --set",
    "exclusive": "ask for all of a node's resources",
    "export": "variables go into the manifest, or --env and --pass-env",
    "mem-per-cpu": "write --mem, or the template's resources",
    "qos": "a Queue has a priority and a quota",
    "hold": "create it paused: spec.runMode.pause.enabled",
    "kill-on-bad-exit": "that is what happens here in any case",
    "unbuffered": "that is what happens here in any case",
    "label": "that is what happens here in any case",
}
_EXPORT = re.compile(r"\s*export\s+(?P<name>[A-Za-z_]\w*)=(?P<value>.*)\Z")
_VARIABLE = re.compile(r"\$\{?(SLURM_\w+)\}?")
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<rest>\d+(?::\d+){0,2})\Z")
_SIZE = re.compile(r"(?P<number>\d+)(?P<unit>[KMGT]?)B?\Z", re.IGNORECASE)


@dataclass(slots=True)
class SbatchScript:
    """A parsed script, and notes on its lines."""

    options: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Value and line of each option, by its long name."""
    env: dict[str, str] = field(default_factory=dict)
    program: list[str] = field(default_factory=list)
    line: int = 0
    """The line of the program."""
    notes: list[tuple[int, str]] = field(default_factory=list)
    """Line and text."""

    def take(self, *names: str) -> str | None:
        """Take the value of the first of these options that is set."""
        found = [self.options.pop(name)[0] for name in names if name in self.options]
        return found[0] if found else None

    def count(self, *names: str) -> int | None:
        """Take the same as a number; raises CannotConvert where it is none."""
        value = self.take(*names)
        if value is None:
            return None
        if not (match := re.search(r"(\d+)\Z", value.partition("(")[0])):
            raise CannotConvert(f"--{names[0]}={value} is no number")
        return int(match[1])


def convert(text: str) -> tuple[list[Object], list[tuple[int, str]]]:
    """The job, and notes: line and text."""
    script = _read(text)
    name = re.sub(r"[^a-z0-9]+", "-", (script.take("job-name") or "job").lower()).strip("-")
    nodes = script.count("nodes")
    tasks, each = script.count("ntasks"), script.count("ntasks-per-node", "tasks-per-node")
    gpus = _gpus(script, nodes or 1)
    each = each or (-(-tasks // (nodes or 1)) if tasks else 1)
    nodes = nodes or (-(-tasks // each) if tasks else 1)
    cpus = script.count("cpus-per-task")
    sizes = _slurm_variables(nodes, each, gpus, cpus or 1, name)
    words = [_expanded(word, sizes, script) for word in script.program]
    container = _container(script, cpus=(cpus or 0) * each, gpus=gpus)
    spec = _launch(words, container, each, script)
    replica: Object = {"type": "worker", "replicas": nodes}
    if script.take("requeue") is not None:
        replica["restartPolicy"] = "OnFailure"
    spec["replicaSpecs"] = [{**replica, "template": {"spec": {"containers": [container]}}}]
    if limit := script.take("time"):
        spec["runPolicy"] = {"activeDeadlineSeconds": _seconds(limit)}
    if queue := script.take("partition"):
        spec |= foreign_common.scheduler(queue)
    script.take("no-requeue")
    for option, (value, line) in script.options.items():
        shown = f"--{option}={value}" if value else f"--{option}"
        script.notes.append((line, f"{shown}: {_REASONS.get(option, NO_COUNTERPART)}"))
    return [foreign_common.job("torchrun", {"name": name}, spec)], sorted(script.notes)


def _slurm_variables(nodes: int, each: int, gpus: int, cpus: int, name: str) -> dict[str, str]:
    """The values of Slurm's variables, by their names without SLURM_."""
    found = dict.fromkeys(("NNODES", "JOB_NUM_NODES"), nodes)
    found |= dict.fromkeys(("NTASKS", "NPROCS"), nodes * each)
    found |= dict.fromkeys(("GPUS_ON_NODE", "GPUS_PER_NODE"), gpus)
    found |= {"NTASKS_PER_NODE": each, "CPUS_PER_TASK": cpus}
    return {**{key: str(value) for key, value in found.items()}, "JOB_NAME": name}


def _container(script: SbatchScript, *, cpus: int, gpus: int) -> Object:
    memory, folder = script.take("mem"), script.take("chdir")
    limits = {
        "cpu": str(cpus) if cpus else None,
        "memory": _memory(memory) if memory else None,
        "nvidia.com/gpu": gpus or None,
    }
    given = {name: amount for name, amount in limits.items() if amount is not None}
    container: Object = {"name": "pytorch", "image": "pytorch/pytorch"}
    if script.env:
        container["env"] = [{"name": k, "value": v} for k, v in script.env.items()]
    if folder:
        container["workingDir"] = folder
    return {**container, "resources": {"limits": given}} if given else container


def _launch(words: list[str], container: Object, each: int, script: SbatchScript) -> Object:
    found = foreign_common.parse_torchrun(words)
    if found is not None:
        container["args"] = found.script
        config = found.config()
        config["procPerNode"] = _processes(config.get("procPerNode", str(each)))
        if text := found.dropped_options_note():
            script.notes.append((script.line, text))
        return {"torchrunConfig": config}
    script.notes.append(
        (script.line, "ranks are in RANK, LOCAL_RANK and WORLD_SIZE, not in SLURM_PROCID and so on")
    )
    if each > 1:
        is_python = re.match(r"(.*/)?python[\d.]*\Z", words[0]) is not None
        container["args"] = words[1:] if is_python else words
        config = {"enabled": True, "procPerNode": str(each)}
        return {
            "torchrunConfig": config if is_python else {**config, "extraOptions": ["--no-python"]}
        }
    container["command"] = words
    return {}


def _processes(text: str) -> str:
    """A number, or `gpu` for a variable, which as a rule is the number of GPUs of a node."""
    return text if text.isdigit() else "gpu"


def _read(text: str) -> SbatchScript:
    script = SbatchScript()
    is_header = True
    for number, line in _lines(text):
        if match := _HEADER.match(line):
            if is_header:
                _options(shlex.split(match["words"]), number, script)
            else:
                script.notes.append((number, "sbatch reads no #SBATCH after the first command"))
        elif line.strip() and not line.lstrip().startswith("#"):
            is_header = False
            _command(line, number, script)
    if not script.program:
        raise CannotConvert("there is no srun line that says what runs on the nodes")
    return script


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; those that end with a backslash are joined."""
    start, whole = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        start = start or number
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            whole += f"{line[:-1]} "
            continue
        yield start, whole + line
        start, whole = 0, ""


def _options(words: list[str], line: int, script: SbatchScript) -> list[str]:
    """Read the options at the beginning of words into the script; returns the other words."""
    while words and words[0].startswith("-") and words[0] != "-":
        word, *words = words
        if word.startswith("--"):
            name, sign, value = word[2:].partition("=")
        else:
            name, value = _SHORT.get(word[1], word[1]), word[2:].removeprefix("=")
            sign = value
        if not sign and name not in _FLAGS and words:
            value, *words = words
        script.options[name] = value, line
    return words


def _command(line: str, number: int, script: SbatchScript) -> None:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        words = []
    if match := _EXPORT.match(line):
        value = shlex.split(match["value"], comments=True) or [""]
        if len(value) == 1 and "$" not in value[0] and "`" not in value[0]:
            script.env[match["name"]] = value[0]
            return
    starts = words and (words[0] == "srun" or foreign_common.parse_torchrun(words) is not None)
    if starts and not script.program:
        script.program = _options(words[1:], number, script) if words[0] == "srun" else words
        script.line = number
        return
    text = "is a second step, which a job does not have" if starts else "is left out"
    script.notes.append((number, f"`{line.strip()[:80]}` {text}"))


def _gpus(script: SbatchScript, nodes: int) -> int:
    for name in ("gpus-per-node", "gpus-per-task", "gres"):
        if (found := script.count(name)) is not None:
            return found
    found = script.count("gpus")
    return -(-found // nodes) if found else 0


def _expanded(word: str, sizes: dict[str, str], script: SbatchScript) -> str:
    def value(match: re.Match[str]) -> str:
        found = sizes.get(match[1].removeprefix("SLURM_"))
        return match[0] if found is None else found

    result = _VARIABLE.sub(value, word)
    for name, known in script.env.items():
        for spelling in (f"${{{name}}}", f"${name}"):
            result = result.replace(spelling, known)
    is_option = foreign_common.parse_torchrun(["torchrun", result])
    if "$" in result and not (is_option and is_option.options):
        script.notes.append(
            (script.line, f"{word}: no shell replaces variables here; write it out")
        )
    return result


def _memory(text: str) -> str:
    match = _SIZE.match(text)
    if match is None:
        raise CannotConvert(f"--mem={text} is no size")
    return f"{match['number']}{(match['unit'] or 'M').upper()}i"


def _seconds(text: str) -> int:
    """Seconds of Slurm's ``[days-]hours[:minutes[:seconds]]``, or ``minutes[:seconds]``."""
    match = _TIME.match(text)
    if match is None:
        raise CannotConvert(f"--time={text} is no time")
    parts = [int(part) for part in match["rest"].split(":")]
    if match["days"]:
        parts = [*parts, 0, 0][:3]
        return int(match["days"]) * 86400 + parts[0] * 3600 + parts[1] * 60 + parts[2]
    if len(parts) == 3:
        return parts[0] * 3600 + parts[1] * 60 + parts[2]
    return parts[0] * 60 + (parts[1] if len(parts) == 2 else 0)
