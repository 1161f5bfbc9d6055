"""The manifest of a script: short, commented, and all that there is to running it.

`trainyard run SCRIPT` reads the very text that ``--save`` writes, so that both are the same job.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import yaml

from trainyard.kinds.shared import labels
from trainyard.kinds.shared.script import Mount, Script, ScriptError
from trainyard.kinds.table import JOB_KINDS, Kind

CARRIED_AT = "/trainyard/script"
"""Where a script is that came along in a ConfigMap."""
_MOST_CARRIED = 1 << 20
"""Of a ConfigMap (https://kubernetes.io/docs/concepts/configuration/configmap/)."""
_COMMENTS = {
    "torchrunConfig": "torchrun starts the script in args, in every replica",
    "procPerNode": "processes in each replica",
    "procPerWorker": "processes in each worker",
    "slotsPerWorker": "processes on each worker",
    "replicas": "pods; on one machine, groups of processes with a host name of their own",
    "restartPolicy": "what follows when a replica fails",
    "backoffLimit": "restarts that the whole job may spend",
    "limit": "restarts that each replica may spend",
    "activeDeadlineSeconds": "it fails after this time",
    "expectedReplicas": "trainyard scale changes it while the job runs",
    "image": "on one machine, an environment may stand for it: --image PATTERN=ENV",
    "hostPath": "a folder of this machine",
    "claimName": "on one machine, a folder stands for it: --volume CLAIM=DIR",
    labels.WORKING_DIR: "where the script runs on one machine",
}
"""Of the first field of such a name in a job."""
_FIELD = re.compile(r"(?P<before>\s*(?:- )*)(?P<name>[\w./-]+):(?= |\Z)")


def launchers() -> dict[str, Kind]:
    """Names of launchers to the kind of job that uses them."""
    return {name: kind for kind in JOB_KINDS.values() for name in kind.launchers}


def text(
    script: Script, *, carried: str | None = None, folder: str = "", heading: Sequence[str] = ()
) -> str:
    """The manifest of a job that runs the script; raises ScriptError.

    ``carried`` is the script's text where a ConfigMap is to bring it, ``folder`` where it runs
    unless that is the manifest's own folder, and ``heading`` lines of a comment.
    """
    kind = launchers()[script.launcher]
    objects = []
    if carried is not None:
        script, config = _carrying(script, carried)
        objects.append(_dump(config))
    metadata: dict[str, Any] = {"name": script.name}
    if folder:
        metadata["annotations"] = {labels.WORKING_DIR: folder}
    job = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    objects.append(_commented(_dump({**job, "spec": kind.of_script(script)})))
    head = "".join(f"# {line}".rstrip() + "\n" for line in heading)
    return head + "---\n".join(objects)


def _carrying(script: Script, content: str) -> tuple[Script, dict[str, Any]]:
    """The script as it is found in a ConfigMap, and that ConfigMap."""
    size = len(content.encode())
    if size > _MOST_CARRIED:
        raise ScriptError(
            f"{script.target} has {size >> 10} KiB; a ConfigMap carries {_MOST_CARRIED >> 10} at "
            "most: put the script into the image and name its path there"
        )
    file = re.sub(r"[^-._a-zA-Z0-9]", "_", script.target.rpartition("/")[2])
    name = f"{script.name}-script"
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "annotations": {labels.SCRIPT_OF: script.name}},
        "data": {file: _Text(content)},
    }
    mount = Mount({"configMap": {"name": name}}, CARRIED_AT)
    target = f"{CARRIED_AT}/{file}"
    return replace(script, target=target, mounts=(*script.mounts, mount)), config


class _Text(str):
    """To be written as it is, line by line."""


class _Dumper(yaml.SafeDumper):
    """Block style; lists of words, and words, in one line each."""

    def ignore_aliases(self, data: object) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _sequence(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.Node:
    is_flat = not any(isinstance(item, dict | list) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=is_flat)


def _string(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    is_text = "\n" in value
    style = "|" if is_text and isinstance(value, _Text) else '"' if is_text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(list, _sequence)
_Dumper.add_representer(str, _string)
_Dumper.add_representer(_Text, _string)


def _dump(obj: dict[str, Any]) -> str:
    return yaml.dump(obj, Dumper=_Dumper, sort_keys=False, width=sys.maxsize, allow_unicode=True)


def _commented(document: str) -> str:
    left, lines = dict(_COMMENTS), []
    for line in document.splitlines():
        match = _FIELD.match(line)
        comment = left.pop(match["name"], "") if match else ""
        lines.append(f"{line}  # {comment}" if comment else line)
    return "\n".join(lines) + "\n"
