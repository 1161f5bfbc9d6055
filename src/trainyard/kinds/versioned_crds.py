"""The CustomResourceDefinitions of kinds as a server of some version takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainyard.kinds.kind_registry import KINDS

CEL_SINCE = (1, 25)
"""The first Kubernetes whose definitions may hold rules in CEL (decision 9)."""


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
