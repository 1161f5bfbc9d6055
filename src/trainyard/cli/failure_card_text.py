"""Prints the failure card: at most twelve lines of sixty columns, with the reason once."""

from __future__ import annotations

import contextlib
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from trainyard.api.errors import JobNotFound
from trainyard.cli.text_output import printable

if TYPE_CHECKING:
    from trainyard.api.async_client import AsyncClient
    from trainyard.api.connection import JobName
    from trainyard.diagnosis.failure_card import FailureCard

_MIN_WIDTH = 40
_MAX_REASON_LINES, _MAX_SOURCE_LINES, _MAX_TEXT_LINES = 3, 1, 2


async def print_failure(client: AsyncClient, name: JobName) -> bool:
    """Print the card of a job that has failed on standard error; return whether there is one."""
    with contextlib.suppress(JobNotFound):
        card = (await client.explain(name)).card
        if card is not None:
            print_card(card, err=True)
            return True
    return False


def print_card(card: FailureCard, *, err: bool = False) -> None:
    """Print the card at the width of the terminal, or without wrapping where there is none."""
    stream = sys.stderr if err else sys.stdout
    is_terminal = stream.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else 0
    for line in card_lines(card, width, is_coloured=is_terminal):
        click.echo(line, err=err)


def card_lines(card: FailureCard, width: int = 0, *, is_coloured: bool = False) -> Iterator[str]:
    """Yield the lines of the card, wrapped at `width` columns (0: not), except the command."""

    def text(
        content: str, indent: str, max_lines: int = _MAX_TEXT_LINES, **style: object
    ) -> Iterator[str]:
        for line in _wrapped(printable(content).replace("\n", " "), width, indent, max_lines):
            yield click.style(line, **style) if is_coloured and style else line  # type: ignore[arg-type]

    yield from text(f"{card.job}: {card.outcome}", "", bold=True)
    if card.who:
        peers = f"; {card.peers}" if card.peers else ""
        yield from text(f"{card.who} failed ({card.ending}){peers}", "  ")
    yield from text(card.reason, "    ", _MAX_REASON_LINES, fg="red", bold=True)
    if card.place:
        source = f":  {card.source}" if card.source else ""
        yield from text(f"{card.place}{source}", "    ", _MAX_SOURCE_LINES)
    if card.cause:
        yield from text(card.cause, "  ")
    if card.remedy:
        yield from text(f"→ {card.remedy}", "  ")
    if card.command:
        yield f"  $ {card.command}"


def _wrapped(content: str, width: int, indent: str, max_lines: int) -> list[str]:
    """Wrap the words; what does not fit into `max_lines` is cut off at the end."""
    if not width:
        return [indent + content]
    return textwrap.wrap(
        content,
        max(width, _MIN_WIDTH),
        initial_indent=indent,
        subsequent_indent=indent,
        max_lines=max_lines,
        placeholder=" …",
        break_on_hyphens=False,
    ) or [indent]
