"""When a shim makes something ahead (what it makes: tests/embedded/test_node_zygote.py)."""

from __future__ import annotations

import pytest

from trainyard.podruntime.ahead import idle_seconds


@pytest.mark.parametrize("starting", [0, 2, 8, 100])
def test_as_soon_as_nothing_is_to_do_when_no_pod_starts_alone(starting: int) -> None:
    assert idle_seconds(starting) <= 0.001


def test_a_pod_that_starts_alone_has_the_machine_to_itself() -> None:
    """Its requests come 1.3 ms after each other, and a network takes two."""
    assert 0.01 <= idle_seconds(1) <= 0.1
