"""What holds for all tests."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.login_environment import scrub

# A shell starts what runs in its background with SIGINT ignored, and children inherit that; the
# commands under test are to be interrupted wherever the tests run.
signal.signal(signal.SIGINT, signal.default_int_handler)

scrub(os.environ)

# No verdict depends on how fast the machine is.
settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="replay one seed: simulation, fuzz")
