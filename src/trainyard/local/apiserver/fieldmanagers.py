"""Server-side apply: who owns which field, and what an applied configuration changes.

Rules: https://kubernetes.io/docs/reference/using-api/server-side-apply/. Ownership is recorded
from the first server-side apply of an object on (most objects here never see one, and their
writes stay cheap); what others had written until then belongs to `before-first-apply`.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from trainyard.kube.errors import Conflict
from trainyard.local.apiserver import fieldpaths
from trainyard.local.apiserver.fieldpaths import Path
from trainyard.local.clock import now_text
from trainyard.local.failures import Cause
from trainyard.local.resources.metadata_rules import MOST_ANNOTATIONS, annotations_size
from trainyard.local.resources.resource import Object, Served
from trainyard.schema.dataclass import dataclass

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_BEFORE = "before-first-apply"
_KUBECTL, _CLIENT_SIDE = "kubectl", "kubectl-client-side-apply"


class Manager(NamedTuple):
    """Who writes, how (`Apply` or `Update`), and through which subresource."""

    name: str
    operation: str
    subresource: str = ""


Owners = dict[Manager, set[Path]]


@dataclass(frozen=True, slots=True)
class Apply:
    """One apply request."""

    wanted: Object
    manager: str
    served: Served
    force: bool
    subresource: str

    def created(self) -> Object:
        """The object when there is none yet."""
        owners = {self._me: self._paths()}
        return _record({**self.wanted}, owners, self.served.resource.api_version)

    def merged(self, live: Object) -> Object:
        """`live` (taken over) with what is applied; raises Conflict unless forced."""
        owners = self._owners(live)
        wanted = self._paths()
        mine = owners.pop(self._me, set())
        self._settle_conflicts(live, owners, wanted)
        configuration = {key: value for key, value in self.wanted.items() if key != "status"}
        if self.subresource:
            configuration = self.wanted
        merged: Object = fieldpaths.merge(live, configuration, "", self.served.custom)
        owned = wanted.union(*owners.values())
        # A map that was applied empty, and holds something now, stays.
        owned |= {path[:length] for path in owned for length in range(1, len(path))}
        fieldpaths.remove(merged, sorted(mine - owned, key=len))
        owners[self._me] = wanted
        if self.manager == _KUBECTL:
            self._keep_last_applied(merged)
        return _record(merged, owners, self.served.resource.api_version)

    def _keep_last_applied(self, merged: Object) -> None:
        """What kubectl's next client-side apply compares with; a real API server writes it too."""
        metadata = merged["metadata"]
        annotations = metadata.get("annotations") or {}
        if _LAST_APPLIED not in annotations:
            return
        given = {**self.wanted["metadata"]}
        own = given.get("annotations") or {}
        given["annotations"] = {key: own[key] for key in own if key != _LAST_APPLIED}
        text = json.dumps(
            {**self.wanted, "metadata": given},
            separators=(",", ":"),
            sort_keys=True,
            ensure_ascii=False,
        )
        metadata["annotations"] = {**annotations, _LAST_APPLIED: f"{text}\n"}
        if annotations_size(metadata) > MOST_ANNOTATIONS:
            metadata["annotations"].pop(_LAST_APPLIED)

    @property
    def _me(self) -> Manager:
        return Manager(self.manager, "Apply", self.subresource)

    def _paths(self) -> set[Path]:
        return fieldpaths.field_paths(self.wanted, custom=self.served.custom)

    def _owners(self, live: Object) -> Owners:
        owners = recorded(live)
        is_applied = _LAST_APPLIED in (live["metadata"].get("annotations") or {})
        if owners or (is_applied and self.manager == _KUBECTL):
            # kubectl hands the fields of its client-side apply over to its server-side one.
            return owners
        fields = {key: value for key, value in live.items() if key != "status"}
        before = Manager(_CLIENT_SIDE if is_applied else _BEFORE, "Update")
        return {before: fieldpaths.field_paths(fields, custom=self.served.custom)}

    def _settle_conflicts(self, live: Object, owners: Owners, wanted: set[Path]) -> None:
        conflicts: list[Cause] = []
        here, there = fieldpaths.Values(live), fieldpaths.Values(self.wanted)
        for manager, paths in owners.items():
            taken = {
                path
                for path in paths & wanted
                if here.at(path) != there.at(path) and not path[-1].startswith("k:")
            }
            if self.force:
                paths -= taken
            conflicts += [
                Cause(_readable(path), f'conflict with "{manager.name}"', "FieldManagerConflict")
                for path in sorted(taken)
            ]
        if conflicts and not self.force:
            listed = ", ".join(f"{each.message}: {each.field}" for each in conflicts)
            raise Conflict(
                f"Apply failed with {len(conflicts)} conflict(s): {listed}",
                code=409,
                reason="Conflict",
                details={"causes": [each._asdict() for each in conflicts]},
            )


def record_update(new: Object, old: Object, manager: str, subresource: str, custom: bool) -> Object:
    """Give the fields that a plain write changed to its manager.

    Does nothing for objects without recorded ownership, and when the write itself is about it.
    """
    known = old["metadata"].get("managedFields")
    if not known:
        return new
    found = new["metadata"].get("managedFields")
    if found is not None and found != known:
        return new
    owners = recorded(old)
    old_paths = fieldpaths.field_paths(old, custom=custom)
    new_paths = fieldpaths.field_paths(new, custom=custom)
    now, before = fieldpaths.Values(new), fieldpaths.Values(old)
    changed = {
        path for path in new_paths if path not in old_paths or now.at(path) != before.at(path)
    }
    for paths in owners.values():
        paths -= changed
        paths &= new_paths
    if changed:
        owners.setdefault(Manager(manager, "Update", subresource), set()).update(changed)
    return _record(new, owners, str(old["apiVersion"]))


def recorded(obj: Object) -> Owners:
    """The owners that `obj` lists."""
    return {
        manager: fieldpaths.decode(entry.get("fieldsV1") or {})
        for manager, entry in _entries(obj).items()
    }


def _entries(obj: Object) -> dict[Manager, Object]:
    listed = obj["metadata"].get("managedFields")
    found: dict[Manager, Object] = {}
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("fieldsV1") or {}, dict):
            manager = Manager(
                entry.get("manager", ""), entry.get("operation", ""), entry.get("subresource") or ""
            )
            if all(isinstance(word, str) for word in manager):
                found[manager] = entry
    return found


def _record(obj: Object, owners: Owners, api_version: str) -> Object:
    """Write `owners` into `obj`; entries that did not change keep their time."""
    known = _entries(obj)
    entries = []
    for manager, paths in owners.items():
        if not paths:
            continue
        fields = fieldpaths.encode(paths)
        entry = known.get(manager)
        if entry is None or entry.get("fieldsV1") != fields:
            entry = {
                "manager": manager.name,
                "operation": manager.operation,
                "apiVersion": api_version,
                "time": now_text(),
                "fieldsType": "FieldsV1",
                "fieldsV1": fields,
            }
            if manager.subresource:
                entry["subresource"] = manager.subresource
        entries.append(entry)
    obj["metadata"] = {**obj["metadata"], "managedFields": entries}
    return obj


def _readable(path: Path) -> str:
    """A path as kubectl shows it: `.spec.containers[name="x"].image`."""
    text = ""
    for name in path:
        kind, rest = name[:2], name[2:]
        if kind == "k:":
            pairs = json.loads(rest).items()
            text += f"[{','.join(f'{key}={json.dumps(value)}' for key, value in pairs)}]"
        else:
            text += f".{rest}" if kind == "f:" else f"[={rest}]"
    return text
