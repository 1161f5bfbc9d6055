"""The CustomResourceDefinitions of the served kinds.

They are generated from the models (``crd_generation``) and stored, because making them takes
longer than starting the embedded cluster may.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from trainyard.api.kinds import KINDS


@cache
def all_crds() -> tuple[dict[str, Any], ...]:
    """The CustomResourceDefinitions of every served kind; shared, not to be changed."""
    text = (files("trainyard.api") / "data" / "crds.json").read_bytes()
    return tuple(json.loads(text))


def crd(kind: str) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind; shared, not to be changed."""
    name = KINDS[kind].resource
    return next(item for item in all_crds() if item["metadata"]["name"] == name)


@cache
def schema(kind: str) -> dict[str, Any]:
    """The structural schema of a kind; shared, not to be changed."""
    (version,) = crd(kind)["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found
