"""`trainyard explain`: why a job is pending, restarting, failed or stuck, and what to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from trainyard import diagnosis
from trainyard.api.aio import AsyncClient
from trainyard.api.views import Job
from trainyard.cli.card import print_card
from trainyard.cli.format import printable
from trainyard.cli.target import on_job
from trainyard.diagnosis import Cause, Situation
from trainyard.diagnosis.failure_card import FailureCard

_MOST_WARNINGS = 5


@on_job
@click.option("-o", "--output", type=click.Choice(["json"]), help="The causes as JSON.")
async def command(client: AsyncClient, job: Job, output: str | None) -> None:
    """Say why a job is pending, restarting, failed or stuck: the cause, how it shows, and what
    to do."""
    told_of = await client.explain(job)
    situation, found, card = told_of.situation, told_of.causes, told_of.card
    if output == "json":
        told: dict[str, Any] = {"job": str(job), "phase": job.phase}
        listed = [asdict(cause) for cause in found]
        if card is not None:
            told["card"] = asdict(card)
        told |= {"causes": listed, "warnings": told_of.warnings}
        click.echo(json.dumps(told, indent=2))
        return
    if card is not None:
        print_card(card)
    if text := render(situation, found, card):
        click.echo(text)


def render(situation: Situation, found: Sequence[Cause], card: FailureCard | None = None) -> str:
    """The answer as text: the first cause in the headline, then what shows it and what helps.

    With a `card`, which is printed above, it is what more there is to say.
    """
    lines = [] if card else [diagnosis.headline(situation, list(found))]
    if found:
        lines += _details(_beside(found[0], card) if card else found[0])
    for cause in found[1:]:
        lines += ["", f"Also: {cause.what}", *_details(cause)]
    if said := diagnosis.warnings(situation, found):
        lines += ["", "Warnings:", *(f"  - {text}" for text in said[-_MOST_WARNINGS:])]
    return printable("\n".join(lines))


def _beside(cause: Cause, card: FailureCard) -> Cause:
    """What the card leaves out of a cause."""
    told = {f"| {card.reason}", f"| {card.place}: {card.source}", card.remedy, card.cause}
    return Cause(
        "",
        tuple(
            text
            for text in cause.evidence
            if text not in told
            and not (text.startswith("| ") and text.removeprefix("| ").strip() in card.reason)
        ),
        tuple(text for text in cause.advice if text not in told and card.command not in text),
    )


def _details(cause: Cause) -> list[str]:
    lines = [f"    {text}" for text in cause.evidence]
    return lines + [f"  → {text}" for text in cause.advice]
