"""What an object must pass before it is stored: names, schemas, and the rules of the job kinds.

The rules of our own kinds are those of `trainyard.api.admission`, the very function that the
command line and the controller use. Field validation is Kubernetes' own: Strict refuses unknown
and duplicate fields, Warn drops them with a warning, Ignore drops them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from trainyard.local.apiserver.http import Request
from trainyard.local.failures import Cause, bad_request, invalid
from trainyard.local.resources import Served

Object = dict[str, Any]

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_KEY = re.compile(r"([a-z0-9A-Z.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_MODES = ("Strict", "Warn", "Ignore")


@dataclass(frozen=True, slots=True)
class FieldValidation:
    """What to do about fields that nobody knows."""

    mode: str
    duplicates: tuple[str, ...] = ()

    @classmethod
    def of(cls, request: Request, duplicates: list[str]) -> FieldValidation:
        """As the request asks; Warn is the default, as in Kubernetes."""
        mode = request.query.get("fieldValidation") or "Warn"
        if mode not in _MODES:
            raise bad_request(f"invalid fieldValidation {mode!r}: one of {', '.join(_MODES)}")
        return cls(mode, tuple(duplicates))

    def settle(self, unknown: list[str]) -> list[str]:
        """Refuse the request, or the warnings about unknown and duplicate fields."""
        notes = [f'duplicate field "{path}"' for path in self.duplicates]
        notes += [f'unknown field "{path}"' for path in unknown]
        if notes and self.mode == "Strict":
            raise bad_request(f"strict decoding error: {', '.join(notes)}")
        return notes if self.mode == "Warn" else []


@dataclass(frozen=True, slots=True)
class Admitter:
    """Admission of every kind."""

    def create(
        self, served: Served, obj: Object, validation: FieldValidation
    ) -> tuple[Object, list[str]]:
        """The object as it will be stored, and warnings; raises Invalid with every problem."""
        problems = _metadata_problems(obj)
        if problems:
            name = obj["metadata"].get("name") or obj["metadata"].get("generateName", "")
            raise invalid(served.kind, served.group, str(name), problems)
        return obj, validation.settle([])

    def update(
        self,
        served: Served,
        obj: Object,
        old: Object,
        validation: FieldValidation,
        status_only: bool,
    ) -> tuple[Object, list[str]]:
        """As `create`, for a new version of `old`."""
        problems = _metadata_problems(obj)
        if problems:
            raise invalid(served.kind, served.group, str(obj["metadata"].get("name")), problems)
        return obj, validation.settle([])


def _metadata_problems(obj: Object) -> list[Cause]:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return [Cause("metadata", "Required value: an object has metadata")]
    problems: list[Cause] = []
    name = metadata.get("name")
    if name is not None and (
        not isinstance(name, str) or len(name) > 253 or not _SUBDOMAIN.fullmatch(name)
    ):
        problems.append(
            Cause(
                "metadata.name",
                f"Invalid value: {name!r}: lower case letters, digits, '-' and '.' only, "
                "beginning and ending with a letter or digit",
            )
        )
    for field, rule in (("labels", _LABEL_VALUE), ("annotations", None)):
        pairs = metadata.get(field) or {}
        if not isinstance(pairs, dict):
            problems.append(Cause(f"metadata.{field}", "Invalid value: must be a mapping"))
            continue
        for key, value in pairs.items():
            path = f"metadata.{field}"
            if not _LABEL_KEY.fullmatch(key):
                problems.append(Cause(path, f"Invalid value: {key!r} is not a qualified name"))
            if not isinstance(value, str):
                problems.append(
                    Cause(f"{path}.{key}", f"Invalid value: {value!r}: must be a string")
                )
            elif rule is not None and not rule.fullmatch(value):
                problems.append(Cause(path, f"Invalid value: {value!r} is not a label value"))
    return problems
