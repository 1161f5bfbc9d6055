"""Protobuf."""

from __future__ import annotations

from typing import Any


def decode(body: bytes) -> Any:
    """The object."""
    raise ValueError(body)
