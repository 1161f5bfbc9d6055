"""Which version a list shows, and its pages."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import orjson

from trainyard.local.apiserver.http import Request
from trainyard.local.failures import bad_request, expired
from trainyard.local.registry import Registry
from trainyard.local.storage.journal import Entry, Object


def list_revision(request: Request, registry: Registry) -> int:
    """The version that a list is of, or Gone when the client asks for another exact one."""
    asked, match = (
        request.query.get("resourceVersion", ""),
        request.query.get("resourceVersionMatch", ""),
    )
    if asked and not asked.isdigit():
        raise bad_request(f"invalid resource version {asked!r}")
    if match == "Exact" and int(asked or 0) != registry.revision:
        raise expired(int(asked or 0), registry.revision)
    return registry.revision


def page(
    request: Request, entries: Sequence[Entry], metadata: Object, registry: Registry
) -> Sequence[Entry]:
    """One page of a list.

    Later pages are of the present, but carry the first page's resourceVersion: a watch from
    there replays what changed in between, so that nothing is missed.
    """
    limit, token = request.query.get("limit", ""), request.query.get("continue", "")
    if token:
        after, revision = _decode_continue(token)
        metadata["resourceVersion"] = str(revision)
        entries = [entry for entry in entries if _sort_key(entry) > after]
    if not limit.isdigit() or limit == "0" or len(entries) <= int(limit):
        return entries
    shown = entries[: int(limit)]
    metadata["continue"] = _encode_continue(_sort_key(shown[-1]), int(metadata["resourceVersion"]))
    if not request.query.get("labelSelector") and not request.query.get("fieldSelector"):
        metadata["remainingItemCount"] = len(entries) - len(shown)
    return shown


def _sort_key(entry: Entry) -> tuple[str, str]:
    metadata = entry.object["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _encode_continue(after: tuple[str, str], revision: int) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([*after, revision])).decode()


def _decode_continue(token: str) -> tuple[tuple[str, str], int]:
    try:
        namespace, name, revision = orjson.loads(base64.urlsafe_b64decode(token))
        return (str(namespace), str(name)), int(revision)
    except (ValueError, TypeError) as error:
        raise bad_request("the continue token is not one of this server's") from error
