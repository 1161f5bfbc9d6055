"""DeleteOptions, from the body or the query of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.embedded.api_errors import StatusCause, bad_request
from trainyard.embedded.apiserver.requests import object_admission
from trainyard.embedded.apiserver.requests import write_options as write_options
from trainyard.embedded.apiserver.requests.request_limits import shortened
from trainyard.embedded.cluster_objects import Deletion
from trainyard.embedded.storage.journal import Object

_PROPAGATIONS = (None, "Background", "Foreground", "Orphan")
_MAX_DIGITS = 18
_KIND = "DeleteOptions"


def parse_options(options: Any, query: Mapping[str, str]) -> Deletion:
    """The options of a request; the body takes precedence over the query.

    `dryRun` of the query has been checked before.
    """
    if not isinstance(options, dict):
        raise bad_request("the options of a deletion are not an object")
    if (kind := options.get("kind")) not in (None, "", _KIND):
        raise bad_request(f"a {shortened(str(kind))} in place of {_KIND}")
    options = object_admission.decode_as(options, _KIND)
    write_options.refuse_if_any(_KIND, _causes(options, query))
    orphans = options.get("orphanDependents") or _orphans_dependents(query)
    propagation = options.get("propagationPolicy") or query.get("propagationPolicy")
    if propagation is None and orphans:
        propagation = "Orphan"
    wanted = options.get("preconditions") or {}
    return Deletion(
        _grace_seconds(options, query),
        wanted.get("uid"),
        wanted.get("resourceVersion"),
        propagation,
        bool(options.get("dryRun")) or query.get("dryRun") == "All",
    )


def _orphans_dependents(query: Mapping[str, str]) -> bool:
    """As Kubernetes reads a boolean of a query: true unless absent, "0" or "false"."""
    return query.get("orphanDependents", "false").lower() not in ("0", "false")


def _causes(options: Object, query: Mapping[str, str]) -> list[StatusCause]:
    """Well-formed values that are not allowed."""
    propagation = options.get("propagationPolicy", query.get("propagationPolicy"))
    orphans = options.get("orphanDependents", query.get("orphanDependents"))
    given = options.get("dryRun") or []
    causes = write_options.dry_run_causes([("dryRun", each) for each in given])
    if propagation not in _PROPAGATIONS:
        text = f"Unsupported value: {shortened(str(propagation))!r}"
        causes.append(StatusCause("propagationPolicy", text))
    elif propagation is not None and orphans is not None:
        text = "Invalid value: orphanDependents and propagationPolicy cannot both be set"
        causes.append(StatusCause("propagationPolicy", text))
    return causes


def _grace_seconds(options: Object, query: Mapping[str, str]) -> int | None:
    found: int | None = options.get("gracePeriodSeconds")
    text = query.get("gracePeriodSeconds")
    if found is not None or text is None:
        return found
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS):
        message = f"gracePeriodSeconds must be a number of seconds, not {shortened(text)!r}"
        raise bad_request(message)
    return int(text)
