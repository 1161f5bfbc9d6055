"""What torchx asks Volcano for: a task for each replica of a role, whose commands start torchrun
by way of a shell that finds the first by Volcano's variables.

https://github.com/pytorch/torchx/blob/main/torchx/schedulers/kubernetes_scheduler.py
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence

from trainyard.conversion import foreign_common
from trainyard.conversion.foreign_common import Object, Torchrun

_LABEL = "torchx.pytorch.org/"
_ROLE, _REPLICA = f"{_LABEL}role-name", f"{_LABEL}replica-id"
_FIRST_HOST = "TORCHX_RANK0_HOST"
_REQUEST = re.compile(r"\A\s*=== APPLICATION ===\n.*^=== SCHEDULER REQUEST ===\n", re.M | re.S)
_RANGE = re.compile(r"(\d+):(\d+)\Z")


def request(text: str) -> str:
    """What `torchx run --dryrun` shows, without what is no manifest; lines keep their numbers."""
    return _REQUEST.sub(lambda found: "\n" * found[0].count("\n"), text, count=1)


def joined(entries: Sequence[Object], tell: Callable[[str], None]) -> Object | None:
    """Replicas of one role that torchrun starts, as the spec of one type of them; None for any
    others. `entries` are a type each."""
    found = [_replica(each) for each in entries]
    first, launch = found[0]
    if launch is None or any((one, _said(by)) != (first, _said(launch)) for one, by in found):
        return None
    entry = {**first, "replicas": sum(each["replicas"] for each in entries)}
    tell(f"tasks of one role are replicas of one type; {launch.left_out()}")
    config = launch.config()
    if config.get("extraOptions", ())[-2:] == ["--role", ""]:  # it says none; types are roles here
        config["extraOptions"] = config["extraOptions"][:-2]
    made: Object = {"torchrunConfig": config, "replicaSpecs": [entry]}
    if sizes := _RANGE.match(launch.options.get("nnodes", "")):
        made["elastic"] = {
            "enabled": True,
            "minReplicas": int(sizes[1]),
            "maxReplicas": int(sizes[2]),
            "expectedReplicas": entry["replicas"],
        }
    return made


def _replica(entry: Object) -> tuple[Object, Torchrun | None]:
    """A task without what is its own, and how it starts torchrun; None if it is no torchx's."""
    found = copy.deepcopy(entry)
    labels = (found["template"].get("metadata") or {}).get("labels") or {}
    container = foreign_common.training(found["template"], ())
    number = labels.pop(_REPLICA, None)
    if number is None or _ROLE not in labels or container is None:
        return found, None
    launch = foreign_common.torchrun(foreign_common.words_of(container))
    found["type"] = str(entry["type"]).removesuffix(f"-{number}")
    container |= {"name": found["type"], "args": launch.words if launch else []}
    container["env"] = [e for e in container.get("env") or () if e.get("name") != _FIRST_HOST]
    return found, launch


def _said(launch: Torchrun | None) -> Object | None:
    return None if launch is None else {"words": launch.words, **launch.config()}
