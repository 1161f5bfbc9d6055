"""Jobs that torchx makes for Volcano: one task for each replica of a role, whose shell starts
torchrun with the address of rank 0 from Volcano's variables.

https://github.com/pytorch/torchx/blob/main/torchx/schedulers/kubernetes_scheduler.py
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence

from trainyard.conversion import foreign_common
from trainyard.conversion.foreign_common import Object, TorchrunCommand

_LABEL = "torchx.pytorch.org/"
_ROLE, _REPLICA = f"{_LABEL}role-name", f"{_LABEL}replica-id"
_FIRST_HOST = "TORCHX_RANK0_HOST"
_REQUEST = re.compile(r"\A\s*=== APPLICATION ===\n.*^=== SCHEDULER REQUEST ===\n", re.M | re.S)
_RANGE = re.compile(r"(\d+):(\d+)\Z")


def request(text: str) -> str:
    """The manifest in the output of `torchx run --dryrun`; lines keep their numbers."""
    return _REQUEST.sub(lambda found: "\n" * found[0].count("\n"), text, count=1)


def role_spec(entries: Sequence[Object], add_note: Callable[[str], None]) -> Object | None:
    """The spec of a job with one replica type, from replica types that are replicas of one role
    under torchrun; None for any others."""
    found = [_replica(each) for each in entries]
    first, launch = found[0]
    if launch is None or any(
        (each, _content(by)) != (first, _content(launch)) for each, by in found
    ):
        return None
    entry = {**first, "replicas": sum(each["replicas"] for each in entries)}
    add_note(f"tasks of one role are replicas of one type; {launch.dropped_options_note()}")
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


def _replica(entry: Object) -> tuple[Object, TorchrunCommand | None]:
    """A task without what differs between replicas, and its command line of torchrun; None if it is
    not one of torchx."""
    found = copy.deepcopy(entry)
    labels = (found["template"].get("metadata") or {}).get("labels") or {}
    container = foreign_common.training_container(found["template"], ())
    number = labels.pop(_REPLICA, None)
    if number is None or _ROLE not in labels or container is None:
        return found, None
    launch = foreign_common.parse_torchrun(foreign_common.take_command(container))
    found["type"] = str(entry["type"]).removesuffix(f"-{number}")
    container |= {"name": found["type"], "args": launch.script if launch else []}
    container["env"] = [e for e in container.get("env") or () if e.get("name") != _FIRST_HOST]
    return found, launch


def _content(launch: TorchrunCommand | None) -> Object | None:
    return None if launch is None else {"script": launch.script, **launch.config()}
