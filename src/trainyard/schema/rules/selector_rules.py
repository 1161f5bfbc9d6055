"""Selectors: of objects by labels, of nodes by labels and name."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.schema.problems import REQUIRED, Path, Problem, error, suggest
from trainyard.schema.rules.common_rules import (
    Object,
    label_value,
    labels,
    object_name,
    qualified,
    shown,
)

_LISTED, _PRESENT, _COMPARED = ("In", "NotIn"), ("Exists", "DoesNotExist"), ("Gt", "Lt")


def label_selector(selector: Object | None, path: Path) -> Iterator[Problem]:
    """Problems of a LabelSelector."""
    if selector is None:
        return
    yield from labels(selector.get("matchLabels") or {}, (*path, "matchLabels"))
    for index, each in enumerate(selector.get("matchExpressions") or ()):
        here = (*path, "matchExpressions", index)
        yield from _requirement(each, here, (*_LISTED, *_PRESENT))
        yield from qualified(each["key"], (*here, "key"))
        for number, value in enumerate(each.get("values") or ()):
            yield from label_value(value, (*here, "values", number))


def node_selector(selector: Object, path: Path) -> Iterator[Problem]:
    """Problems of a NodeSelector."""
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        yield error((*path, "nodeSelectorTerms"), REQUIRED)
    for index, each in enumerate(terms):
        yield from node_term(each, (*path, "nodeSelectorTerms", index), strict=True)


def node_term(term: Object, path: Path, *, strict: bool) -> Iterator[Problem]:
    """Problems of one alternative; `strict`: its values must be such as labels can have."""
    for index, each in enumerate(term.get("matchExpressions") or ()):
        here = (*path, "matchExpressions", index)
        yield from _requirement(each, here, (*_LISTED, *_PRESENT, *_COMPARED))
        yield from qualified(each["key"], (*here, "key"))
        for number, value in enumerate(each.get("values") or () if strict else ()):
            yield from label_value(value, (*here, "values", number))
    for index, each in enumerate(term.get("matchFields") or ()):
        here = (*path, "matchFields", index)
        if each["key"] != "metadata.name":
            yield error((*here, "key"), f"must be metadata.name, not {shown(each['key'])}")
        if each["operator"] not in _LISTED:
            yield error((*here, "operator"), f"must be one of {', '.join(_LISTED)}")
        values = each.get("values") or ()
        if len(values) != 1:
            yield error((*here, "values"), "must be one name")
        for number, value in enumerate(values):
            yield from object_name(value, (*here, "values", number), "name of a node")


def _requirement(each: Object, path: Path, operators: tuple[str, ...]) -> Iterator[Problem]:
    operator, values = each["operator"], each.get("values") or ()
    if operator not in operators:
        text = f"must be one of {', '.join(operators)}, not {shown(operator)}"
        yield error((*path, "operator"), text, suggest(operator, operators))
    elif operator in _LISTED and not values:
        yield error((*path, "values"), f"needs at least one value for operator {operator}")
    elif operator in _PRESENT and values:
        yield error((*path, "values"), f"must be empty for operator {operator}")
    elif operator in _COMPARED and len(values) != 1:
        yield error((*path, "values"), f"needs one value for operator {operator}")
