"""Jobs as they are told to the API: by a file, a text, an object or a model."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from trainyard.kinds.kind_registry import KINDS
from trainyard.schema.errors import TrainyardError
from trainyard.schema.server_version import Version

if TYPE_CHECKING:
    from trainyard.kinds.shared.job import Job
    from trainyard.manifest.reader import ReadResult
    from trainyard.schema.model import Model

Manifest: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | Model"
"""The path of a manifest, its text (with a line break, or in braces), an object, or a model."""


def read_manifest(
    what: Manifest | Iterable[Manifest] | ReadResult, server: Version | None = None
) -> ReadResult:
    """All objects and problems of what was given; with `server`, those of a Kubernetes of that
    version among them."""
    # Most commands read none, and need nothing of what judges them.
    from trainyard.manifest.reader import ReadResult, read, read_file
    from trainyard.schema.model import Model

    if isinstance(what, ReadResult):
        return what
    if isinstance(what, os.PathLike):
        return read_file(os.fspath(what), server)
    if isinstance(what, str):
        is_text = "\n" in what or what.lstrip().startswith("{")
        return read(what, server=server) if is_text else read_file(what, server)
    if isinstance(what, Model | Mapping):
        return read(text_of(what), server=server)
    if isinstance(what, Iterable):
        results = [read_manifest(each, server) for each in what]
        return ReadResult(
            tuple(document for each in results for document in each.documents),
            tuple(problem for each in results for problem in each.problems),
        )
    raise TrainyardError(
        f"{what!r} is no manifest: give the path of one, its text, a dict, or a model"
    )


def read_to_submit(what: Manifest | Iterable[Manifest] | ReadResult) -> ReadResult:
    """The same, of a manifest with jobs; what there is to warn of is told by Python's `warnings`.

    Raises InvalidManifest.
    """
    found = read_manifest(what).require_jobs()
    if found is not what:  # whose reader has told them
        for problem in found.warnings:
            warnings.warn(str(problem), stacklevel=3)
    return found


def jobs_in(
    what: Manifest, namespace: str | None, warn: Callable[[str], None], *, is_local: bool = False
) -> ReadResult:
    """A manifest with jobs, none of them meant for another namespace; `tell` is told of warnings.

    With `is_local` they can run on this machine, where images are not pulled. Raises Error.
    """
    found = read_manifest(what).require_jobs()
    for warning in found.warnings:
        warn(str(warning))
    for document in found.documents:
        own = (document.raw.get("metadata") or {}).get("namespace")
        if namespace and own and own != namespace:
            raise TrainyardError(
                f"{document.file}:{document.line}: the {document.kind} is meant for namespace "
                f"{own}, not {namespace}; remove one of the two"
            )
    if is_local:
        check_commands(found)
    return found


def check_commands(found: ReadResult) -> None:
    """Refuse a container that has neither command nor args (decision 42)."""
    for document in found.documents:
        if (job := document.job) is None:
            continue
        place = f"{document.file}: " if document.file else ""
        for spec in (pod["spec"] for pod in _pods(job)):
            for container in (*spec.get("initContainers", ()), *spec["containers"]):
                if not container.get("command") and not container.get("args"):
                    raise TrainyardError(
                        f"{place}{job.kind} {job.metadata.name}: container {container['name']!r} "
                        "has neither command nor args; images are not pulled on this machine, so "
                        "that their entrypoint is not known: set command or args in the manifest"
                    )


def image_of(job: Job) -> str:
    """Of the container that trains in the first replica."""
    pod = next(_pods(job), None)
    return str(pod["spec"]["containers"][0].get("image", "")) if pod else ""


def _pods(job: Job) -> Iterator[dict[str, Any]]:
    from trainyard.kinds.kind_registry import describe
    from trainyard.kinds.shared.job_settings import Settings
    from trainyard.kinds.shared.workload import objects

    return (each for each in objects(describe(job, Settings.local())) if each["kind"] == "Pod")


def text_of(what: Model | Mapping[str, Any]) -> str:
    """An object or a model as JSON; raises Error where it cannot be written."""
    from trainyard.schema.model import Model

    try:
        return json.dumps(_object(what) if isinstance(what, Model) else what, default=_plain)
    except (TypeError, ValueError) as error:
        raise TrainyardError(f"the manifest cannot be written as JSON: {error}") from error


def _object(model: Model) -> dict[str, Any]:
    name = type(model).__name__
    if name not in KINDS:
        raise TrainyardError(f"a {name} is no job by itself: it is a part of one")
    return {"apiVersion": KINDS[name].api_version, "kind": name, **model.dump()}


def _plain(value: Any) -> Any:
    from trainyard.schema.model import Model

    if isinstance(value, Model):
        return value.dump()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} is not of a type that JSON has")
