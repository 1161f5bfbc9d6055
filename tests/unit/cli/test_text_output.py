"""Tables and documents as commands print them."""

from __future__ import annotations

import json

import pytest
import yaml

from trainyard.cli.text_output import document, indent, table


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    text = table(("NAME", "N"), [("a", 1), ("longer", 22)])
    assert text == "NAME     N\na        1\nlonger   22"


def test_an_empty_cell_is_shown_as_a_dash_and_zero_as_zero() -> None:
    assert table(("A", "B", "C"), [(None, "", 0)]).splitlines()[1].split() == ["-", "-", "0"]


def test_a_line_ends_with_its_last_word() -> None:
    assert all(line == line.rstrip() for line in table(("A", "B"), [("x", "y")]).splitlines())


def test_a_cell_neither_colours_nor_moves_the_terminal() -> None:
    text = table(("A", "B"), [("\x1b[1;31mred\x1b[0m", "be\x07ll\rx")])
    assert text == "A     B\nred   be\N{REPLACEMENT CHARACTER}ll\N{REPLACEMENT CHARACTER}x"


def test_only_the_lines_after_the_first_are_indented() -> None:
    assert indent("a\nb\nc", 2) == "a\n  b\n  c"


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_a_document_is_whole_but_for_managed_fields(output: str) -> None:
    obj = {"kind": "X", "metadata": {"name": "ü", "managedFields": [1]}, "spec": {"a": [1]}}
    several = {"kind": "List", "items": [obj]}
    load = json.loads if output == "json" else yaml.safe_load
    wanted = {"kind": "X", "metadata": {"name": "ü"}, "spec": {"a": [1]}}
    assert load(document(obj, output)) == wanted
    assert load(document(several, output))["items"] == [wanted]
    assert "ü" in document(obj, output)
