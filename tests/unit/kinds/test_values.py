"""Quantities, durations and the structural walker."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from trainyard.schema import duration, quantity, structural_schema
from trainyard.schema.errors import InvalidDuration, InvalidQuantity


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1", "1"),
        (2, "2"),
        (0.5, "0.5"),
        ("500m", "0.5"),
        ("100n", "1e-7"),
        ("16Gi", str(16 * 2**30)),
        ("1.5Gi", str(3 * 2**29)),
        ("1k", "1000"),
        ("1E", "1e18"),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("1e-3", "0.001"),
        (".5", "0.5"),
        ("+1", "1"),
        ("-1", "-1"),
        ("5.", "5"),
    ],
)
def test_quantities(text: str | float, amount: str) -> None:
    assert quantity.parse(text) == Decimal(amount)


@pytest.mark.parametrize(
    "text", ["", "1 Gi", "1gi", "Gi", "1KiB", "1K", "0x10", "1e", "--1", "1mm", "nan", True]
)
def test_no_quantities(text: str) -> None:
    with pytest.raises(InvalidQuantity):
        quantity.parse(text)


def test_amounts_are_rounded_up_and_printed_in_the_largest_unit() -> None:
    assert quantity.parse_int("1.2") == 2
    assert quantity.parse_milli("100u") == 1
    assert [quantity.format_cpu(n) for n in (500, 2000)] == ["500m", "2"]
    assert [quantity.format_bytes(n) for n in (0, 1000, 2**34, 3 * 2**20)] == [
        "0",
        "1000",
        "16Gi",
        "3Mi",
    ]


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("1y", timedelta(days=365)),
        ("2w3d", timedelta(days=17)),
        ("1d12h", timedelta(hours=36)),
        ("1h30m", timedelta(minutes=90)),
        ("5s250ms", timedelta(seconds=5.25)),
        ("500ms", timedelta(seconds=0.5)),
    ],
)
def test_durations(text: str, length: timedelta) -> None:
    assert duration.parse(text) == length


@pytest.mark.parametrize("text", ["", "1", "h", "1h1d", "-1h", "1.5h", "9" * 40 + "y", "1h\n"])
def test_no_durations(text: str) -> None:
    with pytest.raises(InvalidDuration):
        duration.parse(text)


@pytest.mark.parametrize(
    ("value", "node", "message"),
    [
        (True, {"type": "integer"}, "must be an integer, not true"),
        (1.0, {"type": "integer"}, "must be an integer"),
        (1, {"type": "boolean"}, "must be true or false"),
        (None, {"type": "string"}, "has no value"),
        (2**63, {"type": "integer"}, "at most"),
        ("a", {"type": "string", "enum": ["b"]}, "must be one of b"),
        ("", {"type": "string", "minLength": 1}, "must not be empty"),
        ("aa", {"type": "string", "maxLength": 1}, "longer than 1"),
        ("a", {"type": "string", "pattern": "^b$"}, "does not match"),
        ("now", {"type": "string", "format": "date-time"}, "is not a time"),
        ([], {"type": "array", "minItems": 1}, "at least 1"),
        ([1, 2], {"type": "array", "maxItems": 1}, "at most 1"),
        ({}, {"type": "object", "required": ["a"], "properties": {}}, "is required"),
        ([], {"x-kubernetes-int-or-string": True}, "an integer or a string"),
        (2**31, {"x-kubernetes-int-or-string": True}, "32-bit"),
    ],
)
def test_the_walker_says_what_is_wrong(value: Any, node: dict[str, Any], message: str) -> None:
    (problem,) = structural_schema.check(value, node)
    assert message in problem.message


def test_the_walker_lets_null_and_open_objects_be() -> None:
    node = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {"a": {"type": "string", "nullable": True}},
    }
    assert structural_schema.check({"a": None, "b": [1]}, node) == []
