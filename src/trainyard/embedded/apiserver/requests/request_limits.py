"""Limits on one request, so that none costs more time or memory than its size suggests.

Larger requests are refused with the limit in the message. The limits are far above valid objects,
and below what would keep the server from answering other requests.
"""

from __future__ import annotations

from typing import Any

from trainyard.embedded.api_errors import bad_request, too_large
from trainyard.embedded.apiserver.http.http_messages import Request
from trainyard.kube.errors import ApiError

MAX_BODY_BYTES = 3 << 20
"""As kube-apiserver: no object may be larger."""
MAX_YAML_BYTES = 512 << 10
"""YAML takes fifty times as long to read as JSON."""
MAX_DEPTH = 100
"""Also that of manifests; orjson cannot write what is deeper than 254."""
MAX_VALUES = 200_000
MAX_SELECTOR_CHARACTERS = 16 << 10
MAX_REQUIREMENTS = 100
"""Of one selector; each is tried on every object of a collection."""
MAX_PATCH_OPERATIONS = 10_000
"""Of one JSON patch, as kube-apiserver."""
MAX_COPIED_BYTES = MAX_BODY_BYTES
"""By all `copy` operations of one JSON patch, as kube-apiserver: each could double the object."""
MAX_MOVED_ITEMS = 10_000_000
"""List items that the operations of one JSON patch may shift."""
MAX_CAUSES = 100
"""Problems that one refusal names."""
MAX_WARNING_CHARACTERS = 4096
"""Of all warnings of an answer, as kube-apiserver."""
_MAX_NUMBER = (1 << 63) - 1
_MAX_DIGITS = len(str(_MAX_NUMBER))


def check_text(body: bytes, value: Any) -> None:
    """Refuse JSON that is too deep or holds too much; `value` is what was read from `body`."""
    opened = body.count(b"{") + body.count(b"[")
    may_be_many = len(body) > MAX_VALUES and opened + body.count(b",") > MAX_VALUES
    if opened > MAX_DEPTH or may_be_many:
        check_shape(value)


def check_shape(value: Any) -> None:
    """Refuse plain data that is too deep or holds too much."""
    level, count = [value], 0
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below.extend(each.values())
            elif isinstance(each, list):
                below.extend(each)
        if not below:
            return
        count += len(below)
        if count > MAX_VALUES:
            raise too_large(f"the object holds more than {MAX_VALUES} values")
        level = below
    raise bad_request(f"the object is nested more than {MAX_DEPTH} levels deep")


def whole_number(request: Request, name: str) -> int | None:
    """A number from 0 in the query; None where it is absent or empty."""
    text = request.query.get(name, "")
    if not text:
        return None
    known = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    if not known or int(text) > _MAX_NUMBER:
        raise bad_request(f"{name} must be a whole number from 0, not {shortened(text)!r}")
    return int(text)


def positive_number(request: Request, name: str) -> int:
    """As `whole_number`, but 0 where it is absent or negative."""
    text = request.query.get(name, "")
    digits = text[1:]
    if text[:1] == "-" and text.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS:
        return 0
    return whole_number(request, name) or 0


def shortened(text: str) -> str:
    """At most 100 characters of a text, for a message."""
    return text if len(text) <= 100 else text[:100] + "…"


def body_too_large() -> ApiError:
    """The error for a body of more than `MAX_BODY_BYTES`."""
    return too_large(f"the body of a request has at most {MAX_BODY_BYTES >> 20} MiB")
