"""How an object is to be deleted: DeleteOptions, of a body or of a query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.local.apiserver.bounds import shortened
from trainyard.local.failures import bad_request
from trainyard.local.objects import Deletion
from trainyard.local.storage.journal import Object

_PROPAGATIONS = (None, "Background", "Foreground", "Orphan")
_MAX_SECONDS = 1 << 31


def read(options: Any, query: Mapping[str, str]) -> Deletion:
    """The options of a request, those of its body before those of its query."""
    if not isinstance(options, dict):
        raise bad_request("the options of a deletion are not an object")
    orphans = options.get("orphanDependents") or query.get("orphanDependents") in ("1", "true")
    propagation = options.get("propagationPolicy") or query.get("propagationPolicy")
    if propagation is None and orphans:
        propagation = "Orphan"
    if propagation not in _PROPAGATIONS:
        raise bad_request(f"invalid propagationPolicy {shortened(str(propagation))!r}")
    wanted = options.get("preconditions") or {}
    if not isinstance(wanted, dict):
        raise bad_request("preconditions is not an object")
    return Deletion(
        _grace_seconds(options, query),
        _text(wanted, "uid"),
        _text(wanted, "resourceVersion"),
        propagation,
        is_dry_run(options, query),
    )


def is_dry_run(options: Object, query: Mapping[str, str]) -> bool:
    """Whether nothing is to be stored."""
    value = query.get("dryRun", "")
    if value not in ("", "All"):
        raise bad_request(f"invalid dryRun {shortened(value)!r}: only All is supported")
    return bool(options.get("dryRun")) or value == "All"


def _grace_seconds(options: Object, query: Mapping[str, str]) -> int | None:
    found: Any = options.get("gracePeriodSeconds")
    if found is None:
        text = query.get("gracePeriodSeconds", "")
        found = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text or None
    if found is not None and (type(found) is not int or not abs(found) < _MAX_SECONDS):
        told = shortened(str(found))
        raise bad_request(f"gracePeriodSeconds must be a number of seconds, not {told!r}")
    return found


def _text(preconditions: Object, name: str) -> str | None:
    found = preconditions.get(name)
    if found is not None and not isinstance(found, str):
        raise bad_request(f"preconditions.{name} is not a text")
    return found
