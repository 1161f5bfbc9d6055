"""What holds for all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# A shell starts what runs in its background with SIGINT ignored, and children inherit that; the
# commands under test are to be interrupted wherever the tests run.
signal.signal(signal.SIGINT, signal.default_int_handler)

# With it every part of a `print` is a write of its own, which another rank's falls into.
os.environ.pop("PYTHONUNBUFFERED", None)

# No verdict depends on how fast the machine is.
settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="replay one seed: simulation, fuzz")


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_FAILED] = report.failed or item.stash.get(_FAILED, False)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A test's second try has all of its module's fixtures anew, with nothing of the first."""
    module = item.getparent(pytest.Module)
    failed, item.stash[_FAILED] = item.stash.get(_FAILED, False), False
    if failed and module and module.parent and item.config.getoption("reruns", None):
        # Not in pytest's public API; pytest-rerunfailures, which would keep them, needs it too.
        item.session._setupstate.teardown_exact(module.parent)  # type: ignore[arg-type]
