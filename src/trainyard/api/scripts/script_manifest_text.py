"""The text of a script's manifest: short, and commented."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from trainyard.kinds.shared import labels
from trainyard.kinds.shared.script import HIDING_RANKS
from trainyard.kube.resources import CONFIG_MAPS

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
    labels.VALUES_FROM_SHELL: "of the shell that submits this; with kubectl, add stringData",
}
"""Comments by field; the first field of such a name in a document gets one."""
_HIDDEN = "command: [" + ", ".join(HIDING_RANKS)
_FIELD = re.compile(r"(?P<before>\s*(?:- )*)(?P<name>[\w./-]+):(?= |\Z)")


def text(objects: Iterable[dict[str, Any]], heading: Sequence[str]) -> str:
    """The manifest that holds these objects, after lines of a comment."""
    head = "".join(f"# {line}".rstrip() + "\n" for line in heading)
    return head + "---\n".join(
        _dump(each) if each["kind"] == CONFIG_MAPS.kind else _commented(_dump(each))
        for each in objects
    )


class Text(str):
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
    style = "|" if is_text and isinstance(value, Text) else '"' if is_text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(list, _sequence)
_Dumper.add_representer(str, _string)
_Dumper.add_representer(Text, _string)


def _dump(obj: dict[str, Any]) -> str:
    return yaml.dump(obj, Dumper=_Dumper, sort_keys=False, width=sys.maxsize, allow_unicode=True)


def _commented(document: str) -> str:
    left, lines = dict(_COMMENTS), []
    for line in document.splitlines():
        match = _FIELD.match(line)
        comment = left.pop(match["name"], "") if match else ""
        if _HIDDEN in line:
            comment = "one process, without a rank; for more replicas begin with the program"
        lines.append(f"{line}  # {comment}" if comment else line)
    return "\n".join(lines) + "\n"
