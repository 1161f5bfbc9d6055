"""Pages of other sites have no business here, whatever name they reach this machine by.

A page cannot send the token of somebody else, and TLS does not let it use a name of its own for
this machine; this is what holds if either is given away (decision 84).
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from trainyard.kube.errors import ApiError

_OURS = ("localhost", "127.0.0.1", "::1")


def check(headers: Mapping[str, str]) -> None:
    """Refuse (403) what a browser sends for a page that is not of this machine."""
    origin = headers.get("origin", "")
    if not origin and "sec-fetch-site" not in headers:
        return  # no browser
    if origin and _host(origin) not in _OURS:
        raise _refused("the page that asks is of another site")
    if _host(f"//{headers.get('host', '')}") not in _OURS:
        raise _refused("this server is not known by that name")


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _refused(why: str) -> ApiError:
    return ApiError(f"forbidden: {why}", code=403, reason="Forbidden")
