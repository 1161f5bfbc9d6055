"""PersistentVolumeClaims, which stay Pending: a folder stands for each when a pod needs it."""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.embedded.api_errors import StatusCause
from trainyard.embedded.resources.printer_columns import AGE, NAME, Column, at
from trainyard.embedded.resources.resource import Object, Present, Served
from trainyard.kube.resources import PERSISTENT_VOLUME_CLAIMS
from trainyard.schema.problems import Problem
from trainyard.schema.rules.claim_rules import claim

_SET_ONCE = ("volumeName", "storageClassName")
_SHORT = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX"}


class _Claims(Served):
    def rules(self, obj: Object, old: Object | None) -> Iterable[Problem]:
        return claim(obj)

    def prepare_create(self, obj: Object, present: Present) -> None:
        obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
        obj["status"] = {"phase": "Pending"}

    def prepare_update(self, new: Object, old: Object, present: Present) -> None:
        before, after = old.get("spec") or {}, new.get("spec") or {}
        after.setdefault("volumeMode", before.get("volumeMode") or "Filesystem")
        settled = {k: v for k, v in after.items() if k in before or k not in _SET_ONCE}
        if settled != before:
            text = "Forbidden: spec is immutable after creation"
            raise self.refused(new, StatusCause("spec", text, "FieldValueForbidden"))


def _modes(claim: Object) -> str:
    modes = (claim.get("status") or {}).get("accessModes") or claim["spec"].get("accessModes") or ()
    return ",".join(_SHORT.get(mode, mode) for mode in modes)


SERVED = _Claims(
    PERSISTENT_VOLUME_CLAIMS,
    order=90,
    short_names=("pvc",),
    status=True,
    printer_columns=(
        NAME,
        Column("Status", at("status.phase", "")),
        Column("Volume", at("spec.volumeName", "")),
        Column("Capacity", at("status.capacity.storage", "")),
        Column("Access Modes", _modes),
        Column("StorageClass", at("spec.storageClassName", "")),
        AGE,
        Column("VolumeMode", at("spec.volumeMode", ""), priority=1),
    ),
    definition="PersistentVolumeClaim",
    unset={"spec": {"resources": {}}},
    returns_deleted=True,
)
