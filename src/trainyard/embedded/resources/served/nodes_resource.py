"""Nodes: this machine."""

from __future__ import annotations

from typing import Any

from trainyard.embedded.resources.printer_columns import AGE, NAME, Column, at
from trainyard.embedded.resources.resource import Object, Present, Served
from trainyard.kube.resources import NODES


class _Nodes(Served):
    def prepare_create(self, obj: Object, present: Present) -> None:
        """A node registers itself with its status."""
        obj.setdefault("status", {})

    def selected(self, obj: Object, path: tuple[str, ...]) -> Any:
        value = super().selected(obj, path)
        return False if value is None and path == ("spec", "unschedulable") else value


def _status(node: Object) -> str:
    conditions = node.get("status", {}).get("conditions") or ()
    ready = {each["status"] for each in conditions if each.get("type") == "Ready"}
    states = ["Ready" if "True" in ready else "NotReady" if ready else "Unknown"]
    if node.get("spec", {}).get("unschedulable"):
        states.append("SchedulingDisabled")
    return ",".join(states)


def _roles(node: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = [label[len(prefix) :] for label in labels if label.startswith(prefix)]
    return ",".join(sorted(roles)) or "<none>"


def _address(node: Object) -> str:
    addresses = node.get("status", {}).get("addresses") or ()
    internal = [each["address"] for each in addresses if each.get("type") == "InternalIP"]
    return internal[0] if internal else "<none>"


SERVED = _Nodes(
    NODES,
    order=20,
    definition="Node",
    unset={"spec": {}},
    short_names=("no",),
    status=True,
    created_with_status=True,
    printer_columns=(
        NAME,
        Column("Status", _status),
        Column("Roles", _roles),
        AGE,
        Column("Version", at("status.nodeInfo.kubeletVersion", "")),
        Column("Internal-IP", _address, priority=1),
        Column("OS-Image", at("status.nodeInfo.osImage", "<unknown>"), priority=1),
        Column("Kernel-Version", at("status.nodeInfo.kernelVersion", "<unknown>"), priority=1),
    ),
    selectable=frozenset({"spec.unschedulable"}),
)
