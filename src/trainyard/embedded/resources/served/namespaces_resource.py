"""Namespaces: held by a finalizer of their spec until they are empty."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.embedded.api_errors import forbidden
from trainyard.embedded.resources.printer_columns import AGE, NAME, Column, at
from trainyard.embedded.resources.resource import (
    ALL_VERBS,
    META,
    Object,
    Present,
    Served,
    Subresource,
)
from trainyard.kube.resources import NAMESPACES
from trainyard.schema.object_names import is_plain_label

SYSTEM = ("default", "kube-system", "kube-public", "kube-node-lease")


class _Namespaces(Served):
    def is_name(self, name: str) -> bool:
        return is_plain_label(name)

    def initial_objects(self) -> Sequence[Object]:
        return [{"metadata": {"name": name}} for name in SYSTEM]

    def prepare_create(self, obj: Object, present: Present) -> None:
        obj.setdefault("spec", {})["finalizers"] = ["kubernetes"]
        obj["status"] = {"phase": "Active"}
        labels = obj["metadata"].setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = obj["metadata"]["name"]

    def prepare_update(self, new: Object, old: Object, present: Present) -> None:
        """Its finalizers have a subresource of their own."""
        new["spec"] = old.get("spec") or {}

    def check_delete(self, name: str) -> None:
        if name in SYSTEM:
            raise forbidden(self.name, name, "this namespace may not be deleted")

    def mark_deleting(self, obj: Object) -> None:
        obj["status"] = {**obj.get("status", {}), "phase": "Terminating"}

    def blocks_deletion(self, obj: Object) -> bool:
        return bool((obj.get("spec") or {}).get("finalizers"))


SERVED = _Namespaces(
    NAMESPACES,
    order=10,
    verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
    short_names=("ns",),
    status=True,
    subresources={"finalize": Subresource("Namespace", ("update",), is_discoverable=False)},
    printer_columns=(NAME, Column("Status", at("status.phase", "")), AGE),
    selectable=frozenset({"status.phase"}),
    messages={
        "Namespace": META + "2 spec NamespaceSpec",
        "NamespaceSpec": "1 finalizers str[]",
    },
    definition="Namespace",
    unset={"spec": {}},
)
