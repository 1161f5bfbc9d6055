"""A registry in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.registry import Registry


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    made = Registry(resources=RESOURCES)
    await made.ensure_system_objects()
    yield made
    await made.close()
