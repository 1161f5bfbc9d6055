"""What code and pages refer to is there: numbered decisions, and files by their paths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.gates.sources import PACKAGE, ROOT

DESIGN = sorted(ROOT.glob("docs/development/design/*.md"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("docs/development/*.md")),
    *DESIGN,
]
CODE = [path for folder in ("src", "tests", "tools") for path in (ROOT / folder).rglob("*.py")]

_CITATION = re.compile(r"\bdecisions?\s+(\d+(?:(?:,| and|, and| to)\s+\d+)*)", re.IGNORECASE)
_ENTRY = re.compile(r"^(\d+)\. \*\*", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*/?")
_FILE = re.compile(r"\S+\.(?:py|md|yaml|toml|lock|in|sh)")
_NOT_OURS = (".", "..", ".cache", ".venv")
"""The last two are made by `make`, with more or less in them."""
_TOPS = ("src", "tests", "tools", "docs", "examples", "requirements")


def cited(text: str) -> set[int]:
    """The decisions that a text names by number."""
    lists = _CITATION.findall(text)
    return {int(number) for each in lists for number in re.findall(r"\d+", each)}


def test_every_decision_that_is_cited_has_an_entry() -> None:
    pages = [page.read_text(encoding="utf-8") for page in DESIGN]
    numbers = [int(number) for text in pages for number in _ENTRY.findall(text)]
    assert len(numbers) == len(set(numbers)) > 200
    texts = {path: path.read_text(encoding="utf-8") for path in [*CODE, *PAGES]}
    unknown = {
        str(path.relative_to(ROOT)): missing
        for path, text in texts.items()
        if (missing := cited(text) - set(numbers))
    }
    assert unknown == {}


def test_citations_are_found() -> None:
    assert cited("Decisions 22 and 23 hold (decision\n24).") == {22, 23, 24}
    assert cited("A decision of 5 people, 3 decisions.") == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = [name for name in named(text) if not _exists(name)]
    assert missing == []
    assert [link for link in _LINK.findall(text) if not (page.parent / link).exists()] == []


def test_names_of_files_are_found() -> None:
    text = "`kinds/shared/run_policy.py`, `spec.py`, `a/b`, `pytest tests/unit` and `tests/no*.py`."
    assert list(named(text)) == [
        "kinds/shared/run_policy.py",
        "spec.py",
        "tests/unit",
        "tests/no*.py",
    ]
    assert list(named("```python\n# sweeps/spec.py\nfrom tests/unit\n```\n")) == ["tests/unit"]
    assert [_exists(name) for name in named(text)] == [True, True, True, False]


def named(text: str) -> Iterator[str]:
    """Paths of the repository or of the package, and files by their names alone.

    Blocks of code tell of users' files too: there a path begins at the root of the repository.
    """
    for block in _FENCED.findall(text):
        yield from (word for word in _PATH.findall(block) if _begins_in(ROOT, word))
    for code in _CODE.findall(_FENCED.sub("", text)):
        for word in re.split(r"[\s=]+", code):
            if _PATH.fullmatch(word) and (
                _begins_in(ROOT, word) or _begins_in(PACKAGE, word) or _FILE.fullmatch(word)
            ):
                yield word


def _begins_in(folder: Path, word: str) -> bool:
    first, slash, _ = word.partition("/")
    return bool(slash) and first not in _NOT_OURS and (folder / first).is_dir()


def _exists(name: str) -> bool:
    if "/" in name:
        return any(any(folder.glob(name.rstrip("/"))) for folder in (ROOT, PACKAGE))
    return any(any((ROOT / top).rglob(name)) for top in _TOPS) or (ROOT / name).exists()
