"""Label and field selectors."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.apiserver.requests.list_selectors import (
    field_predicate,
    label_predicate,
    selected_name,
)
from trainyard.kube.errors import Invalid


def obj(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "n", "labels": labels}}


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a!=b", {}, True),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("a in (b,c)", {"a": "c"}, True),
        ("a in (b,c)", {}, False),
        ("a notin (b, c)", {"a": "c"}, False),
        ("a notin (b,c)", {}, True),
        ("a=b,c in (d,e),!f", {"a": "b", "c": "e"}, True),
        ("a=b,c in (d,e),!f", {"a": "b", "c": "e", "f": ""}, False),
        ("example.com/a=", {"example.com/a": ""}, True),
        ("n>3", {"n": "4"}, True),
        ("n<3", {"n": "many"}, False),
    ],
)
def test_labels(selector: str, labels: dict[str, str], selected: bool) -> None:
    predicate = label_predicate(selector)
    assert predicate is not None
    assert predicate(obj(**labels)) is selected


@pytest.mark.parametrize(
    "selector",
    ["a===b", "a in b", "-a", "a=b c", "a in (b", "a=ü", "a,,b", "a,", ",", "a<-1", "a" * 64],
)
def test_a_selector_that_makes_no_sense_is_refused(selector: str) -> None:
    with pytest.raises(Invalid, match="unable to parse"):
        label_predicate(selector)


def test_an_empty_selector_selects_everything() -> None:
    assert label_predicate("") is None
    assert field_predicate("", RESOURCES["pods"]) is None


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("metadata.name=p", True),
        ("spec.nodeName=here,status.phase!=Running", True),
        ("spec.nodeName!=here", False),
        ("status.podIP=", True),
        ("=,metadata.name=p,,!=", True),
        ("metadata.name=a\\,p", False),
    ],
)
def test_fields(selector: str, selected: bool) -> None:
    pod = {
        "metadata": {"name": "p"},
        "spec": {"nodeName": "here"},
        "status": {"phase": "Pending"},
    }
    predicate = field_predicate(selector, RESOURCES["pods"])
    assert predicate is not None
    assert predicate(pod) is selected


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(Invalid, match=r"field label not supported: spec\.image"):
        field_predicate("spec.image=x", RESOURCES["pods"])


@pytest.mark.parametrize("selector", ["=", "==", "!=", ",", "=,!="])
def test_a_term_that_says_nothing_asks_for_nothing(selector: str) -> None:
    assert field_predicate(selector, RESOURCES["pods"]) is None


@pytest.mark.parametrize(
    "selector",
    [
        *("metadata.name", "=a", "metadata.name=a=b", "metadata.name=a\\b", "metadata.name=a\\"),
        *(" metadata.name=a", "metadata.name =a", "metadata.name>a"),
    ],
)
def test_a_field_selector_that_makes_no_sense_is_refused(selector: str) -> None:
    with pytest.raises(Invalid, match=r"field selector|not supported"):
        field_predicate(selector, RESOURCES["pods"])


def test_the_one_name_asked_for() -> None:
    assert selected_name("metadata.name=a\\,b\\\\") == "a,b\\"
    assert selected_name("metadata.name=x,status.phase=Running") == "x"
    assert selected_name("metadata.name!=x") is None
