"""The failure card, made and printed: in twelve lines of sixty columns, the reason once."""

from __future__ import annotations

import contextlib
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from trainyard.api.errors import JobNotFound
from trainyard.cli.format import printable

if TYPE_CHECKING:
    from trainyard.api.aio import AsyncClient
    from trainyard.api.connection import JobName
    from trainyard.diagnosis.failure_card import FailureCard

_NARROWEST = 40
_REASON_LINES, _SOURCE_LINES, _TEXT_LINES = 3, 1, 2


async def tell_of_failure(client: AsyncClient, name: JobName) -> bool:
    """Print the card of a job on standard error; whether it has failed, so that there is one."""
    with contextlib.suppress(JobNotFound):
        card = (await client.explain(name)).card
        if card is not None:
            print_card(card, err=True)
            return True
    return False


def print_card(card: FailureCard, *, err: bool = False) -> None:
    """The card at the width of the terminal; where it does not go to one, at any."""
    stream = sys.stderr if err else sys.stdout
    is_terminal = stream.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else 0
    for line in lines_of(card, width, is_coloured=is_terminal):
        click.echo(line, err=err)


def lines_of(card: FailureCard, width: int = 0, *, is_coloured: bool = False) -> Iterator[str]:
    """The lines of the card, of at most `width` columns but for the command; 0: of any length."""

    def text(words: str, indent: str, most: int = _TEXT_LINES, **style: object) -> Iterator[str]:
        for line in _wrapped(printable(words).replace("\n", " "), width, indent, most):
            yield click.style(line, **style) if is_coloured and style else line  # type: ignore[arg-type]

    yield from text(f"{card.job}: {card.outcome}", "", bold=True)
    if card.who:
        peers = f"; {card.peers}" if card.peers else ""
        yield from text(f"{card.who} failed ({card.ending}){peers}", "  ")
    yield from text(card.reason, "    ", _REASON_LINES, fg="red", bold=True)
    if card.place:
        source = f":  {card.source}" if card.source else ""
        yield from text(f"{card.place}{source}", "    ", _SOURCE_LINES)
    if card.cause:
        yield from text(card.cause, "  ")
    if card.remedy:
        yield from text(f"→ {card.remedy}", "  ")
    if card.command:
        yield f"  $ {card.command}"


def _wrapped(words: str, width: int, indent: str, most: int) -> list[str]:
    """The words in at most so many lines; what does not fit is cut out of the end."""
    if not width:
        return [indent + words]
    return textwrap.wrap(
        words,
        max(width, _NARROWEST),
        initial_indent=indent,
        subsequent_indent=indent,
        max_lines=most,
        placeholder=" …",
        break_on_hyphens=False,
    ) or [indent]
