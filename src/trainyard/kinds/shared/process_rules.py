"""Rules about processes per GPU, and about variables that launches set."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from trainyard.kinds.shared.pods import pod_template_rules
from trainyard.kinds.shared.script import HIDING_RANKS
from trainyard.schema.problems import Path, Problem, warning

SET_BY_LAUNCHER = "the launcher sets it for the processes that it starts; read it there"
"""Why a container of a launch over ssh lacks a variable of ranks."""
_OF_RANKS = re.compile(
    r"(?<!\$)(?:\$\$)*(\$\((MASTER_ADDR|MASTER_PORT|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|"
    r"NODE_RANK|GROUP_RANK|GROUP_WORLD_SIZE)\))"
)
"""References to variables that launchers give to ranks, unless they are escaped (`$$(RANK)`)."""


def check_processes(
    processes: int, field: str, path: Path, container: Mapping[str, Any], *, is_given: bool
) -> Iterator[Problem]:
    """Warnings about a replica whose processes, by `field`, do not fit its container's GPUs."""
    gpus = pod_template_rules.gpu_count(container)
    if gpus and processes > gpus:
        message = f"{processes} processes share {gpus} GPUs, which is what the container asks for"
        yield warning(path, message)
    elif gpus > 1 and processes == 1 and not is_given:
        message = f"one process has all {gpus} GPUs, unless {field} is set"
        yield warning(path, message)


def check_ranks(
    container: Mapping[str, Any], replicas: int, total: int, path: Path
) -> Iterator[Problem]:
    """Warnings about what gives replicas a wrong rank or world size, or hides these from them."""
    if replicas > 1 and list(container.get("command") or ())[: len(HIDING_RANKS)] == HIDING_RANKS:
        message = (
            f"hides their ranks from {replicas} replicas: leave out '{' '.join(HIDING_RANKS)}'"
        )
        yield warning((*path, "command"), message)
    for index, variable in enumerate(container.get("env") or ()):
        name, value = variable.get("name"), variable.get("value")
        here = (*path, "env", index)
        if name == "RANK" and replicas > 1 and value is not None:
            yield warning(here, f"gives all {replicas} replicas the same RANK; leave it out")
        elif name == "WORLD_SIZE" and value is not None and value != str(total):
            yield warning(here, f"says '{value[:20]}', and the job has {total} ranks; leave it out")


def check_references(
    template: Mapping[str, Any], path: Path, given: Collection[str], why: str
) -> Iterator[Problem]:
    """Warnings about references to variables of ranks that containers do not have: Kubernetes
    leaves them as they stand. `given`: those that all containers get; `why`: where others are.
    """
    for key in ("initContainers", "containers"):
        for which, container in enumerate((template.get("spec") or {}).get(key) or ()):
            if container.get("envFrom"):  # which may set them
                continue
            for where, text, known in _texts(container, set(given)):
                for reference, name in _OF_RANKS.findall(text):
                    if name not in known:
                        message = f"{reference} stays as it is: {why}"
                        yield warning((*path, "spec", key, which, *where), message)


def _texts(
    container: Mapping[str, Any], known: set[str]
) -> Iterator[tuple[Path, str, Collection[str]]]:
    """Texts in which references are replaced, and the variables that are known there."""
    for index, variable in enumerate(container.get("env") or ()):
        if isinstance(value := variable.get("value"), str):
            yield ("env", index, "value"), value, frozenset(known)
        known.add(variable["name"])
    for key in ("command", "args"):
        for index, text in enumerate(container.get(key) or ()):
            yield (key, index), text, known
