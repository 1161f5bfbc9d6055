"""Our definitions for a server of some version, and what it would refuse, drop or misread of an
object that is valid here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from trainyard.kinds.kind_admission import check
from trainyard.kinds.kind_registry import KINDS
from trainyard.schema.errors import TrainyardError
from trainyard.schema.field_versions import (
    UnsupportedField,
    known_versions,
    parts_with_definitions,
    unsupported_fields,
)
from trainyard.schema.kubernetes_schemas import CORE_KINDS
from trainyard.schema.problems import Path, Problem, error, format_path, warning
from trainyard.schema.rules.version_rules import check_for_version
from trainyard.schema.server_version import Version
from trainyard.schema.structural_schema import without_field

CEL_SINCE = (1, 25)
"""The first Kubernetes whose definitions may hold rules in CEL (decision 9)."""


def nearest_known_version(version: Version) -> Version:
    """The known version with the rules of a server: its own, or the newest that is known.

    Raises TrainyardError for one that is too old.
    """
    oldest, newest = known_versions()
    if version < (1, oldest):
        raise TrainyardError(
            f"Kubernetes {version[0]}.{version[1]} is too old; known are 1.{oldest} to 1.{newest}"
        )
    return min(version, (1, newest))


def check_for_server(obj: dict[str, Any], version: Version) -> list[Problem]:
    """The problems that a server of that version has with an object that has no errors here: errors
    for what it refuses, warnings for what it drops or takes for something else."""
    _, minor = nearest_known_version(version)
    kept, problems = obj, list[Problem]()
    for place, part, definition, file in _parts(obj):
        for gap in unsupported_fields(part, definition, minor, file):
            path = (*place, *gap.path)
            is_refused = gap.owner == "Volume" and minor >= gap.since
            problems.append((error if is_refused else warning)(path, _message(gap, minor)))
            kept = without_field(kept, path)
    lost = [problem.path for problem in problems]
    for place, part, definition, file in _parts(kept):
        for inner, name, value in parts_with_definitions(part, definition, file):
            problems += check_for_version(name, value, (*place, *inner), minor)
    for problem in check(kept).errors:
        why = ", ".join(format_path(path) for path in lost if _causes(obj, path, problem))
        text = f"{problem.message}: Kubernetes 1.{minor} refuses it, as it drops {why or 'these'}"
        problems.append(error(problem.path, text))
    return problems


def _causes(obj: dict[str, Any], path: Path, problem: Problem) -> bool:
    """Whether the absence of one field alone causes a problem."""
    return problem in check(without_field(obj, path)).errors


def _message(gap: UnsupportedField, minor: int) -> str:
    if minor < gap.since:
        text = f"is dropped by Kubernetes 1.{minor}: the field came with 1.{gap.since}"
        text += f" and is used since 1.{gap.on}" if gap.on and gap.on > gap.since else ""
        text += ", and the volume is an empty folder" if gap.owner == "Volume" else ""
    else:  # an empty folder is what a volume is as it comes in, before fields are dropped
        fate = "refused" if gap.owner == "Volume" else "dropped"
        text = f"is {fate} by Kubernetes 1.{minor} unless its feature gate {gap.gate} is on, as "
        text += f"it is by default since 1.{gap.on}" if gap.on else "it is in none by default"
    return f"{text}; {_ALTERNATIVES.get(f'{gap.owner}.{gap.field}', 'leave it out')}"


_ALTERNATIVES = {
    "Container.restartPolicy": "run it among the containers, or the pod waits for it to end",
    "Lifecycle.stopSignal": "handle SIGTERM, or set STOPSIGNAL in the image",
    "Probe.grpc": "call the check with exec",
    "Volume.image": "copy the files in an init container",
    "Volume.ephemeral": "name a claim of your own",
}


def _parts(obj: dict[str, Any]) -> Iterator[tuple[Path, Any, str, str]]:
    """The parts of an object with Kubernetes' own definitions: path, value, definition and file."""
    kind = obj["kind"]
    if kind in CORE_KINDS:
        yield (), obj, kind, "core"
    elif kind in KINDS:
        yield ("metadata",), obj.get("metadata"), "ObjectMeta", "pod_template"
        for place, template in _templates(obj.get("spec"), ("spec",)):
            yield place, template, "PodTemplateSpec", "pod_template"


def _templates(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            if key == "template":
                yield (*path, key), child
            else:
                yield from _templates(child, (*path, key))


def crds_for(
    kinds: Iterable[str] = KINDS, server: tuple[int, int] | None = None
) -> list[dict[str, Any]]:
    """The CustomResourceDefinitions of `kinds` for a server of that version; None: a current one.

    Before 1.25 they come without the rules in CEL: such a server ignores them, but kubectl refuses
    to send it fields that it does not know.
    """
    found = [KINDS[kind].crd for kind in kinds]
    if server is None or server >= CEL_SINCE:
        return found
    return [_without(item, "x-kubernetes-validations") for item in found]


def _without(value: Any, key: str) -> Any:
    """A copy of `value` from which `key` is left out wherever it occurs."""
    if isinstance(value, dict):
        return {name: _without(child, key) for name, child in value.items() if name != key}
    if isinstance(value, list):
        return [_without(child, key) for child in value]
    return value
