"""All cases, by group."""

from __future__ import annotations

from tests.foreign.e2e import lifecycle, pods, storage
from tests.foreign.e2e.network import BY_NAME_SERVER
from tests.foreign.e2e.world import CASES

__all__ = ["BY_NAME_SERVER", "CASES", "lifecycle", "pods", "storage"]
