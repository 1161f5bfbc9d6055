"""No field without documentation, no field group without an example."""

from __future__ import annotations

import pytest

from trainyard.api.kinds import JOB_KINDS, KINDS
from trainyard.api.reference import example_of, groups, page, undocumented


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_documented(kind: str) -> None:
    for group in groups(KINDS[kind]):
        assert undocumented(group.model) == [], group.path
        assert group.text.endswith("."), group.path


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_every_field_group_of_a_spec_has_an_example(kind: str) -> None:
    """Groups that only hold other groups are shown by those."""
    for group in groups(KINDS[kind]):
        if group.path.startswith("spec"):
            assert example_of(group), group.path


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_names_every_field(kind: str) -> None:
    text = page(KINDS[kind])
    for group in groups(KINDS[kind]):
        assert f"## `{group.path}`" in text
        for name, field in group.model.model_fields.items():
            assert f"| `{field.alias or name}` |" in text
