"""A default is stated once: on the page of its kind, and at most once more where it is told."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from tests.unit.gates.sources import ROOT

from trainyard.kinds.kind_registry import KINDS

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


def test_no_two_pages_state_the_default_of_the_same_field() -> None:
    fields = {name for kind in KINDS.values() for name in _fields(kind.schema)}
    stated: dict[str, set[str]] = defaultdict(set)
    for page in PAGES:
        for name in stated_defaults(page.read_text(encoding="utf-8"), fields):
            stated[name].add(page.name)
    assert {name: pages for name, pages in stated.items() if len(pages) > 1} == {}


def test_statements_of_a_default_are_found() -> None:
    text = "A job (`spec.ssh.sshdPath`, default\n`/x`). | `a.limit` | Defaults to 0 | `policy` |"
    assert list(stated_defaults(text, {"sshdPath", "limit"})) == ["sshdPath", "limit"]
    assert list(stated_defaults("The `default` queue and `limit`. A default.", {"limit"})) == []


def stated_defaults(text: str, fields: set[str]) -> Iterator[str]:
    """The fields that a sentence, or a row of a table, names beside `default` and a value."""
    for sentence in re.split(r"(?<=[.;:])\s|\n\s*\n|\n(?=[|*-])|^#.*$", text, flags=re.MULTILINE):
        if re.search(r"(?<!`)\bdefaults?\b(?!`)( (to|is|are|of))?:?\s+[`'\"\d]", sentence, re.I):
            for code in re.findall(r"`([\w.]+)`", sentence):
                if (name := code.rsplit(".", 1)[-1]) in fields:
                    yield name


def _fields(node: Mapping[str, Any]) -> Iterator[str]:
    for name, child in node.get("properties", {}).items():
        yield name
        yield from _fields(child)
    if "items" in node:
        yield from _fields(node["items"])
