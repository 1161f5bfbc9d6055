"""Judges of texts, found by where a text stands and by its words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

R = TypeVar("R")
Judge = Callable[[R, re.Match[str]], Iterator[str]]


class _Row(NamedTuple, Generic[R]):
    place: re.Pattern[str]
    pattern: re.Pattern[str]
    judge: Judge[R]
    once: bool
    """Judged only in the reconcile that reports it first: it is about what was seen then."""


class JudgeRegistry(Generic[R]):
    """A text that no row knows is untrue by itself."""

    def __init__(self, file: str) -> None:
        self._file = Path(file).name
        self._rows: list[_Row[R]] = []

    def __call__(
        self, place: str, reason: str, message: str, *, once: bool = False
    ) -> Callable[[Judge[R]], Judge[R]]:
        """Registers the judge of a text, of a condition such as `Ready=False` or of an event."""
        pattern = re.compile(f"(?:{reason})\0{message}", re.DOTALL)

        def register(judge: Judge[R]) -> Judge[R]:
            self._rows.append(_Row(re.compile(place), pattern, judge, once))
            return judge

        return register

    def untrue(
        self, result: R, place: str, reason: str, message: str, *, is_new: bool = True
    ) -> Iterator[str]:
        """What is untrue about one text."""
        for row in self._rows:
            found = row.pattern.fullmatch(f"{reason}\0{message}")
            if found and row.place.fullmatch(place):
                if is_new or not row.once:
                    yield from row.judge(result, found)
                return
        yield f"no judge knows this text; give it one in tests/simulation/{self._file}"


def _if(problem: bool, text: str) -> Iterator[str]:
    if problem:
        yield text
