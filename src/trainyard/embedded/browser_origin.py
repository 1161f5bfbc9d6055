"""Refuses requests that a browser sends for pages of other sites.

A site can let its own name lead to 127.0.0.1 (DNS rebinding), and its pages then speak to whatever
listens there, as the user whose browser it is. What gives them away is that name (decision 84).
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

_OURS = ("localhost", "127.0.0.1", "::1")


def page_problem(headers: Mapping[str, str]) -> str:
    """Why a browser's request is refused; "" if its page comes from this machine."""
    origin = headers.get("origin", "")
    if origin and _host(origin) not in _OURS:
        return "the page that asks is of another site"
    if "host" in headers and _host(f"//{headers['host']}") not in _OURS:
        return "this machine is not known by that name; use 127.0.0.1 or localhost"
    return ""


def is_browser(headers: Mapping[str, str]) -> bool:
    """Whether a browser sends these (https://www.w3.org/TR/fetch-metadata)."""
    return "origin" in headers or "sec-fetch-site" in headers


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
