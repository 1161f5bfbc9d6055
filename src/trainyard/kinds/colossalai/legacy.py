"""Old spellings of ColossalAIJob: above all ``launcher`` and ``worker``, side by side in the spec.

Today there are ``replicaSpecs`` and ``torchConfig``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainyard.kinds.colossalai.spec import LAUNCHER
from trainyard.kinds.shared.legacy_spellings import (
    Editor,
    Keys,
    Legacy,
    Normalised,
    copy_mapping_at,
)
from trainyard.kinds.shared.run_policy import WORKER
from trainyard.schema.problems import Path, error, format_path, warning

WORKER_FIELDS: dict[str, Keys] = {
    "replicas": ("replicaSpecs", "worker", "replicas"),
    "procPerWorker": ("torchConfig", "procPerWorker"),
    "command": ("torchConfig", "script"),
    "torchArgs": ("torchConfig", "extraArgs"),
    "template": ("replicaSpecs", "worker", "template"),
}
"""Fields of the former ``spec.worker`` and where they are today."""
_OPEN_OBJECT = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
LAUNCHER_FIELDS: dict[str, dict[str, Any]] = {
    "image": {"type": "string"},
    "workingDir": {"type": "string"},
    "env": {"type": "array", "items": _OPEN_OBJECT},
    "resources": _OPEN_OBJECT,
}
"""Fields of the former ``spec.launcher`` and their schemas; today of its container ``launcher``."""


class _SideBySide:
    """A `Layout`."""

    def normalise(self, result: Normalised, old: dict[str, Any] | None) -> None:
        spec = result.obj["spec"]
        old_keys = [key for key in ("launcher", "worker") if key in spec]
        if not old_keys:
            return
        broken = [key for key in old_keys if not isinstance(spec[key], dict)]
        for key in old_keys:
            result.problems.append(
                warning(("spec", key), "is the old layout; write replicaSpecs and torchConfig")
            )
        if broken:
            result.problems.extend(error(("spec", key), "must be a mapping") for key in broken)
            spec = copy_mapping_at(result, ("spec",))
            for key in old_keys:
                del spec[key]
            return
        converted = _converted(result, spec)
        if old is None:
            for key, value in converted.items():
                if key in spec and spec[key] != value:
                    message = f"contradicts the old layout; remove {' and '.join(old_keys)}"
                    result.problems.append(error(("spec", key), message))
        kept = {key: value for key, value in spec.items() if key not in old_keys}
        result.obj["spec"] = kept | converted

    def convert(self, spec: dict[str, Any], editor: Editor) -> bool:
        parts = [key for key in (LAUNCHER, WORKER) if isinstance(spec.get(key), dict)]
        if not parts:
            return False
        specs, torch = editor.sequence([]), spec.get("torchConfig")
        torch = torch if isinstance(torch, dict) else editor.mapping({})
        if LAUNCHER in parts:
            specs.append(_launcher(spec[LAUNCHER], editor))
        if WORKER in parts:
            entry = editor.mapping({"type": WORKER})
            worker = spec[WORKER]
            for key in list(worker):
                target = _target(key)
                into = torch if target[0] == "torchConfig" else entry
                editor.move(worker, key, into, target[-1])
            specs.append(entry)
        index = min(list(spec).index(key) for key in parts)
        for key in (*parts, "replicaSpecs"):
            spec.pop(key, None)
        editor.insert(spec, index, "replicaSpecs", specs)
        if torch and "torchConfig" not in spec:
            editor.insert(spec, index, "torchConfig", torch)
        return True

    def declare(self, spec: dict[str, Any]) -> None:
        spec["required"].remove("replicaSpecs")
        if not spec["required"]:
            del spec["required"]
        today = {
            "torchConfig": spec["properties"]["torchConfig"]["properties"],
            "replicaSpecs": spec["properties"]["replicaSpecs"]["items"]["properties"],
        }
        spec["properties"][WORKER] = {
            "type": "object",
            "description": "Deprecated: write `replicaSpecs` and `torchConfig`.",
            "properties": {key: today[to[0]][to[-1]] for key, to in WORKER_FIELDS.items()},
        }
        spec["properties"][LAUNCHER] = {
            "type": "object",
            "description": "Deprecated: write an entry of `replicaSpecs`.",
            "properties": dict(LAUNCHER_FIELDS),
        }

    def paths(self) -> Iterator[tuple[Keys, str]]:
        for key, target in WORKER_FIELDS.items():
            yield ("spec", WORKER, key), format_path(("spec", *target))
        container = "spec.replicaSpecs.launcher.template.spec.containers.launcher"
        for key in LAUNCHER_FIELDS:
            yield ("spec", LAUNCHER, key), f"{container}.{key}"


def _target(key: str) -> Keys:
    return WORKER_FIELDS.get(key, ("replicaSpecs", WORKER, key))


def _launcher(launcher: dict[str, Any], editor: Editor) -> dict[str, Any]:
    entry = editor.mapping({"type": LAUNCHER, "template": editor.mapping({})})
    if launcher:
        container = editor.mapping({"name": LAUNCHER})
        for key in list(launcher):
            editor.move(launcher, key, container, key)
        pod = editor.mapping({"containers": editor.sequence([container])})
        entry["template"] = editor.mapping({"spec": pod})
    return entry


def _converted(result: Normalised, spec: dict[str, Any]) -> dict[str, Any]:
    worker, launcher = spec.get("worker", {}), spec.get("launcher")
    specs: list[dict[str, Any]] = []
    if launcher is not None:
        specs.append({"type": "launcher", "template": _launcher_template(launcher)})
        container: Path = ("spec", "replicaSpecs", 0, "template", "spec", "containers", 0)
        result.moves |= {(*container, key): ("spec", "launcher", key) for key in launcher}
        result.moves[("spec", "replicaSpecs", 0)] = ("spec", "launcher")
        result.moves[container] = ("spec", "launcher")
    index = len(specs)
    entry: dict[str, Any] = {"type": "worker"}
    torch = dict(spec["torchConfig"]) if isinstance(spec.get("torchConfig"), dict) else {}
    for key, value in worker.items():
        target = _target(key)
        if target[0] == "torchConfig":
            torch[target[1]] = value
            result.moves[("spec", *target)] = ("spec", "worker", key)
        else:
            entry[key] = value
    if "worker" in spec:
        specs.append(entry)
        result.moves[("spec", "replicaSpecs", index)] = ("spec", "worker")
    return {"replicaSpecs": specs} | ({"torchConfig": torch} if torch else {})


def _launcher_template(launcher: dict[str, Any]) -> dict[str, Any]:
    if not launcher:
        return {}
    return {"spec": {"containers": [{"name": "launcher", **launcher}]}}


LEGACY = Legacy(layout=_SideBySide())
