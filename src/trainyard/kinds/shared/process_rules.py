"""Rules about processes per GPU, and about variables that launches set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.kinds.shared.pods import pod_template_rules
from trainyard.kinds.shared.script import HIDING_RANKS
from trainyard.schema.problems import Path, Problem, warning


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
