"""Versions of Kubernetes."""

from __future__ import annotations

import re

Version = tuple[int, int]
"""Major and minor: `(1, 27)`."""


def parse(text: str) -> Version | None:
    """Of `1.27`, or as servers print it, `v1.27.3+k3s1`; None for anything else."""
    found = re.match(r"v?(\d+)\.(\d+)(?![\d])", text)
    return (int(found[1]), int(found[2])) if found else None
