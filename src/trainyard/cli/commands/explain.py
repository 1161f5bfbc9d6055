"""`trainyard explain`: why a job is pending, restarting, failed or stuck, and what to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from trainyard import diagnosis
from trainyard.api.async_client import AsyncClient
from trainyard.api.views import Job
from trainyard.cli.failure_card_text import print_card
from trainyard.cli.job_options import on_job
from trainyard.cli.text_output import printable
from trainyard.diagnosis import Cause, Situation
from trainyard.diagnosis.failure_card import FailureCard

_MAX_WARNINGS = 5


@on_job
@click.option("-o", "--output", type=click.Choice(["json"]), help="The causes as JSON.")
async def command(client: AsyncClient, job: Job, output: str | None) -> None:
    """Say why a job is pending, restarting, failed or stuck: the cause, how it shows, and what
    to do."""
    explanation = await client.explain(job)
    situation, found, card = explanation.situation, explanation.causes, explanation.card
    if output == "json":
        answer: dict[str, Any] = {"job": str(job), "phase": job.phase}
        listed = [asdict(cause) for cause in found]
        if card is not None:
            answer["card"] = asdict(card)
        answer |= {"causes": listed, "warnings": explanation.warnings}
        click.echo(json.dumps(answer, indent=2))
        return
    if card is not None:
        print_card(card)
    if text := render(situation, found, card):
        click.echo(text)


def render(situation: Situation, found: Sequence[Cause], card: FailureCard | None = None) -> str:
    """Return the answer as text: the first cause as headline, then its evidence and advice.

    With a `card`, which is printed above, only what the card does not say.
    """
    lines = [] if card else [diagnosis.headline(situation, list(found))]
    if found:
        lines += _details(_without_card(found[0], card) if card else found[0])
    for cause in found[1:]:
        lines += ["", f"Also: {cause.what}", *_details(cause)]
    if warnings := diagnosis.warnings(situation, found):
        lines += ["", "Warnings:", *(f"  - {text}" for text in warnings[-_MAX_WARNINGS:])]
    return printable("\n".join(lines))


def _without_card(cause: Cause, card: FailureCard) -> Cause:
    """Return what the card does not already say of a cause."""
    on_card = {f"| {card.reason}", f"| {card.place}: {card.source}", card.remedy, card.cause}
    return Cause(
        "",
        tuple(
            text
            for text in cause.evidence
            if text not in on_card
            and not (text.startswith("| ") and text.removeprefix("| ").strip() in card.reason)
        ),
        tuple(text for text in cause.advice if text not in on_card and card.command not in text),
    )


def _details(cause: Cause) -> list[str]:
    lines = [f"    {text}" for text in cause.evidence]
    return lines + [f"  → {text}" for text in cause.advice]
