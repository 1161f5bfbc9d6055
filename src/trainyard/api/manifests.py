"""Jobs as they are told to the API: by a file, a text, an object or a model."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainyard.kinds.table import KINDS
from trainyard.manifest.reader import ReadResult, read, read_file
from trainyard.schema.errors import TrainyardError
from trainyard.schema.model import Model

Manifest = str | os.PathLike[str] | Mapping[str, Any] | Model
"""The path of a manifest, its text (with a line break, or in braces), an object, or a model."""


def read_manifest(what: Manifest | Iterable[Manifest] | ReadResult) -> ReadResult:
    """All objects and problems of what was given."""
    if isinstance(what, ReadResult):
        return what
    if isinstance(what, os.PathLike):
        return read_file(os.fspath(what))
    if isinstance(what, str):
        return read(what) if "\n" in what or what.lstrip().startswith("{") else read_file(what)
    if isinstance(what, Model | Mapping):
        return read(text_of(what))
    if isinstance(what, Iterable):
        results = [read_manifest(each) for each in what]
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
    if not isinstance(what, ReadResult):  # whose reader has told them
        for problem in found.warnings:
            warnings.warn(str(problem), stacklevel=3)
    return found


def text_of(what: Model | Mapping[str, Any]) -> str:
    """An object or a model as JSON; raises Error where it cannot be written."""
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
    if isinstance(value, Model):
        return value.dump()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} is not of a type that JSON has")
