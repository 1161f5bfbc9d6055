"""``$(NAME)`` expansion, by the table of Kubernetes' own expansion tests."""

from __future__ import annotations

import pytest

from trainyard.embedded.node.containers.container_environment import expand

VARIABLES = {"VAR_A": "A", "VAR_B": "B", "VAR_C": "C", "VAR_REF": "$(VAR_A)", "VAR_EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(VAR_A)", "A"),
        ("___$(VAR_B)___", "___B___"),
        ("___$(VAR_C)", "___C"),
        ("$(VAR_A)-$(VAR_A)", "A-A"),
        ("$(VAR_REF)", "$(VAR_A)"),
        ("foo$(VAR_EMPTY)bar", "foobar"),
        ("foo$(MISSING)bar", "foo$(MISSING)bar"),
        ("$$(VAR_A)", "$(VAR_A)"),
        ("$$$(VAR_A)", "$A"),
        ("$$$$(VAR_A)", "$$(VAR_A)"),
        ("$", "$"),
        ("$VAR_A", "$VAR_A"),
        ("$(VAR_A", "$(VAR_A"),
        ("$(", "$("),
        ("\n", "\n"),
        ("a$$b", "a$b"),
    ],
)
def test_expansion_follows_kubernetes(text: str, expected: str) -> None:
    assert expand(text, VARIABLES) == expected
