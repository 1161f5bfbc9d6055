"""What holds for all tests."""

from __future__ import annotations

import signal

import pytest

# A shell starts what runs in its background with SIGINT ignored, and children inherit that; the
# commands under test are to be interrupted wherever the tests run.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="replay one seed: simulation, fuzz")
