"""Which seeds nobody has tried yet: others for every state of the code.

The same code is tried with the same ones, wherever and whenever its tests run: what passed here
passes elsewhere, and what failed there fails here. The soak draws them by chance.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

IS_SOAK = os.environ.get("TRAINYARD_SOAK") == "1"
_FIRST, _LAST = 1_000_000, 1_000_000_000
_CODE = Path(__file__).parent.parent / "src"


def first_new() -> int:
    """The first of the new seeds of a run of the tests."""
    return drawn() if IS_SOAK else _FIRST + _digest() % (_LAST - _FIRST)


def drawn() -> int:
    """The first of some new seeds, by chance."""
    return _FIRST + secrets.randbelow(_LAST - _FIRST)


def _digest() -> int:
    found = hashlib.sha256()
    for path in sorted(_CODE.rglob("*.py")):
        found.update(path.read_bytes())
    return int.from_bytes(found.digest()[:8], "big")
