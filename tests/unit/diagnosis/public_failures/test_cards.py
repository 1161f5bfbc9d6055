"""What the failure card says of a hundred failures of public kinds, held against an expert's table.

The expectations were written before any of them was run (`record.py`). What is known to be told
wrong is in `WRONG`, with the reason; one that is mended goes out of that list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.diagnosis.public_failures.row import PublicFailure
from tests.unit.diagnosis.public_failures.table import TABLE, recorded
from trainyard.cli.failure_card_text import card_lines
from trainyard.client.job_view import Job
from trainyard.client.log_tails import Tail
from trainyard.client.pod_views import PodView
from trainyard.diagnosis import Situation
from trainyard.diagnosis.failure_card import failure_card_of
from trainyard.kinds.kind_registry import KINDS
from trainyard.schema.times import parse

SHARE = 0.95
WRONG = {
    "a name of the first rank that nobody knows": "the rank that waits in vain is blamed: the one "
    "that looks for the first by a wrong name still tries, and is stopped before it says so",
    "another port than the first rank's": "the same of a wrong port",
}
"""By name, what is wrong with its card."""
ROWS = {row.name: (kind, row) for kind, rows in TABLE.items() for row in rows}
ENDS = {name: end for kind in TABLE for name, end in recorded(kind).items()}


def situation(end: dict[str, Any]) -> Situation:
    """As it was recorded."""
    now = parse(end["now"])
    assert now is not None
    logs = {pod: Tail(log["lines"], log["times"]) for pod, log in end["logs"].items()}
    job = Job(KINDS[end["job"]["kind"]], end["job"])
    pods = [PodView(pod) for pod in end["pods"]]
    return Situation(job, pods, end["events"], now=now, logs=logs)


def faults(row: PublicFailure, end: dict[str, Any]) -> Iterator[str]:
    """What is wrong with the card."""
    card = failure_card_of(situation(end))
    if card is None:
        yield "there is no card"
        return
    if row.who and card.who != row.who:
        yield f"{card.who!r} is blamed, not {row.who!r}"
    told = f"{card.ending}\n{card.reason}\n{card.cause}"
    yield from (f"the cause has no {each!r}" for each in row.cause if not re.search(each, told))
    if row.line and not (f"{card.place} ".startswith((f"{row.place} ", f"{row.place}:"))):
        yield f"the line is {row.place}, not {card.place!r}"
    if row.line and row.line.strip() not in card.source and card.source:
        yield f"the line has {row.line!r}, not {card.source!r}"
    for each in row.remedies:
        if not re.search(each, card.remedy):
            yield f"the remedy has no {each!r}"
    text = "\n".join(card_lines(card))
    yield from (f"it says {each!r}" for each in row.never if re.search(each, text))


def wrong() -> dict[str, str]:
    """All whose cards are wrong, with what and the card."""
    found = {}
    for name, (_, row) in ROWS.items():
        if name in ENDS and (said := list(faults(row, ENDS[name]))):
            card = failure_card_of(situation(ENDS[name]))
            lines = "\n    ".join(card_lines(card)) if card else ""
            found[name] = f"{'; '.join(said)}\n    {lines}"
    return found


def test_all_have_been_run() -> None:
    assert len(ROWS) == 100
    assert [*ENDS] == [*ROWS]


def test_nearly_all_are_told_right() -> None:
    assert len(wrong()) <= len(ROWS) * (1 - SHARE)


@pytest.mark.parametrize("name", ROWS)
def test_rank_cause_line_and_remedy_are_right(name: str) -> None:
    said = list(faults(ROWS[name][1], ENDS[name]))
    assert bool(said) == (name in WRONG), f"{name}: {said}"
