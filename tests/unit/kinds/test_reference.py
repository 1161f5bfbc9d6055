"""No field without documentation, no field group without an example."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kinds import manifests as m
from tools.reference_pages import example_of, groups, page, undocumented, wrapped

from trainyard.kinds.kind_admission import check
from trainyard.kinds.kind_registry import JOB_KINDS, KINDS

ACTION = {"action": "FailJob"}


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


def merged(base: Any, extra: Any) -> Any:
    """``extra`` laid over ``base``; a list is replaced, or its first entry completed."""
    if isinstance(base, list) and isinstance(extra, list) and base and "type" not in extra[0]:
        return [merged(base[0], extra[0]), *base[1:]]
    if isinstance(base, dict) and isinstance(extra, dict):
        return {key: merged(base.get(key), extra.get(key, base.get(key))) for key in base | extra}
    return base if extra is None else extra


SHARED_EXAMPLE = "give it for the launcher"
"""How a worker resumes is shown for all kinds; of a ColossalAIJob only its launcher has a say."""


def _without_torchrun(job: Any) -> Any:
    """What is shown of a run policy is of replicas that are started by their commands."""
    job = m.changed(job, "spec.torchrunConfig.enabled", False)
    return m.changed(job, "spec.replicaSpecs.0.template.spec.containers.0.command", ["python"])


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_every_example_is_valid(kind: str) -> None:
    bases = {
        "PyTorchTrainingJob": m.pytorch(
            torchrunConfig={"enabled": True},
            tensorboardSpec={"trainingLogFilesets": ["t9k://pvc/a"]},
        ),
        "GenericJob": m.generic(successRules=[], failureRules=[]),
    }
    plain = bases["PyTorchTrainingJob"]
    bases["PyTorchTrainingJob"] = m.changed(plain, "spec.replicaSpecs.0.restartPolicy", "OnFailure")
    base = bases.get(kind) or m.BUILDERS[kind]()
    for group in groups(KINDS[kind]):
        if group.path.startswith("spec"):
            shown = wrapped(group.path, example_of(group))
            if "podFailurePolicy.rules[]." in group.path:  # a rule without an action is none
                shown = merged(wrapped(f"{group.path.partition('[]')[0]}[]", ACTION), shown)
            is_plain = (kind, group.path) == ("PyTorchTrainingJob", "spec.runPolicy")
            checked = check(merged(_without_torchrun(base) if is_plain else base, shown))
            problems = [p.detail for p in checked.problems if SHARED_EXAMPLE not in p.detail]
            assert problems == [], group.path
