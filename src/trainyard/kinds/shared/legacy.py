"""Spellings of earlier generations of the API, accepted with a warning and rewritten.

One table serves the reader, the admission of the API servers, the controller, the CRDs (which must
declare them, lest a server prunes them) and ``trainyard convert``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainyard.schema.problems import Path, Problem, error, format_path, warning

_TRAINING = ("PyTorchTrainingJob", "DeepSpeedJob")
_ALL = (*_TRAINING, "ColossalAIJob", "GenericJob")


@dataclass(frozen=True, slots=True)
class Rename:
    """``parent.old`` of these kinds is written ``parent.new`` today."""

    kinds: tuple[str, ...]
    parent: tuple[str, ...]
    old: str
    new: str


RENAMES = (
    Rename(_ALL, ("spec", "runMode", "debug"), "enable", "enabled"),
    Rename(_ALL, ("spec", "runMode", "pause"), "enable", "enabled"),
    Rename(_ALL, ("spec", "scheduler", "t9kScheduler"), "Queue", "queue"),
    Rename(_TRAINING, ("spec", "elastic"), "enable", "enabled"),
    Rename(("PyTorchTrainingJob",), ("spec", "torchrunConfig"), "enable", "enabled"),
    Rename(("DeepSpeedJob",), ("spec", "config", "run"), "Module", "module"),
    Rename(("DeepSpeedJob",), ("spec", "config", "run"), "Exec", "exec"),
)

WORKER_FIELDS: Mapping[str, tuple[str, ...]] = {
    "replicas": ("replicaSpecs", "worker", "replicas"),
    "procPerWorker": ("torchConfig", "procPerWorker"),
    "command": ("torchConfig", "script"),
    "torchArgs": ("torchConfig", "extraArgs"),
    "template": ("replicaSpecs", "worker", "template"),
}
"""Fields of a ColossalAIJob's former ``spec.worker`` and where they are today."""

LAUNCHER_FIELDS = ("image", "workingDir", "env", "resources")
"""Fields of a ColossalAIJob's former ``spec.launcher``; today of its container ``launcher``."""


class Legacy:
    """Placeholder."""


@dataclass(slots=True)
class Normalised:
    """An object in today's spelling.

    ``moves`` maps a path of the result to the path that the user wrote.
    """

    obj: dict[str, Any]
    problems: list[Problem] = field(default_factory=list)
    moves: dict[Path, Path] = field(default_factory=dict)

    def written(self, path: Path) -> Path:
        """The user's own path of a place in the result."""
        for end in range(len(path), 0, -1):
            if (moved := self.moves.get(path[:end])) is not None:
                return moved + path[end:]
        return path


def normalise(obj: dict[str, Any], old: dict[str, Any] | None = None) -> Normalised:
    """``obj`` in today's spelling; the argument itself is left alone.

    ``old`` is the stored object on an update: there the key that the request changed wins over the
    one that was stored, whereas two keys with different values in a new object are an error.
    """
    result = Normalised(dict(obj))
    if not isinstance(obj.get("spec"), dict):
        return result
    for rename in RENAMES:
        if obj.get("kind") in rename.kinds:
            _rename(result, rename, old)
    match obj.get("kind"):
        case "PyTorchTrainingJob":
            _drop_min_nodes(result)
        case "DeepSpeedJob":
            _note_masters(result)
        case "ColossalAIJob":
            _colossal_layout(result, old)
    return result


def _get(obj: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def _own(result: Normalised, path: tuple[str, ...]) -> dict[str, Any]:
    """The mapping at a path that exists, copied along the way so that it may be changed."""
    here = result.obj
    for part in path:
        here[part] = dict(here[part])
        here = here[part]
    return here


def _rename(result: Normalised, rename: Rename, old: dict[str, Any] | None) -> None:
    parent = _get(result.obj, rename.parent)
    if not isinstance(parent, dict) or rename.old not in parent:
        return
    path = (*rename.parent, rename.old)
    result.problems.append(warning(path, f"is an old spelling; write '{rename.new}'"))
    stored = _get(old, rename.parent) if old is not None else None
    if old is not None and not isinstance(stored, dict):
        stored = {}
    chosen, is_contradiction = _chosen(parent, rename, stored)
    if is_contradiction:
        message = f"contradicts '{rename.new}'; remove '{rename.old}'"
        result.problems.append(error(path, message))
    # Keep the place of the key, so that a dump reads like the user's file.
    rest = {key: value for key, value in parent.items() if key != rename.new}
    renamed = {rename.new if key == rename.old else key: value for key, value in rest.items()}
    renamed[rename.new] = parent[chosen]
    _own(result, rename.parent[:-1])[rename.parent[-1]] = renamed
    if chosen == rename.old:
        result.moves[(*rename.parent, rename.new)] = path


def _chosen(
    parent: dict[str, Any], rename: Rename, stored: dict[str, Any] | None
) -> tuple[str, bool]:
    """The key whose value counts, and whether the two contradict each other.

    ``stored`` is the mapping as it was before an update, None for a new object.
    """
    if rename.new not in parent or parent[rename.new] == parent[rename.old]:
        return rename.old, False
    if stored is None:
        return rename.new, True
    missing = object()
    old_changed = stored.get(rename.old, missing) != parent[rename.old]
    new_changed = stored.get(rename.new, missing) != parent[rename.new]
    return (rename.old if old_changed else rename.new), old_changed and new_changed


def _drop_min_nodes(result: Normalised) -> None:
    if isinstance(config := _get(result.obj, ("spec", "torchrunConfig")), dict) and (
        "minNodes" in config
    ):
        path = ("spec", "torchrunConfig", "minNodes")
        result.problems.append(warning(path, "is ignored; use elastic.minReplicas"))
        if type(config["minNodes"]) is int:
            del _own(result, path[:-1])["minNodes"]


def _note_masters(result: Normalised) -> None:
    for section, key in (("debug", "replicaSpecs"), ("pause", "resumeSpecs")):
        entries = _get(result.obj, ("spec", "runMode", section, key))
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict) and entry.get("type") == "master":
                path = ("spec", "runMode", section, key, index, "type")
                result.problems.append(
                    warning(path, "'master' is an old spelling; it stands for worker-0")
                )


def _colossal_layout(result: Normalised, old: dict[str, Any] | None) -> None:
    """Rewrites ``launcher`` + ``worker`` to ``replicaSpecs`` + ``torchConfig``."""
    spec = result.obj["spec"]
    legacy = [key for key in ("launcher", "worker") if key in spec]
    if not legacy:
        return
    broken = [key for key in legacy if not isinstance(spec[key], dict)]
    for key in legacy:
        result.problems.append(
            warning(("spec", key), "is the old layout; write replicaSpecs and torchConfig")
        )
    if broken:
        result.problems.extend(error(("spec", key), "must be a mapping") for key in broken)
        spec = _own(result, ("spec",))
        for key in legacy:
            del spec[key]
        return
    converted = _converted(result, spec)
    if old is None:
        for key, value in converted.items():
            if key in spec and spec[key] != value:
                result.problems.append(
                    error(
                        ("spec", key), f"contradicts the old layout; remove {' and '.join(legacy)}"
                    )
                )
    kept = {key: value for key, value in spec.items() if key not in legacy}
    result.obj["spec"] = kept | converted


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
        target = WORKER_FIELDS.get(key, ("replicaSpecs", "worker", key))
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


def legacy_paths(kind: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Path and hint of each old spelling of a kind, for documents and CRDs."""
    for rename in RENAMES:
        if kind in rename.kinds:
            yield (*rename.parent, rename.old), format_path((*rename.parent, rename.new))
    if kind == "PyTorchTrainingJob":
        yield ("spec", "torchrunConfig", "minNodes"), "spec.elastic.minReplicas"
    if kind == "ColossalAIJob":
        for key, target in WORKER_FIELDS.items():
            yield ("spec", "worker", key), format_path(("spec", *target))
        for key in LAUNCHER_FIELDS:
            yield (
                ("spec", "launcher", key),
                f"spec.replicaSpecs.launcher.template.spec.containers.launcher.{key}",
            )
