"""Judges of texts about ranks that get nowhere, held against what they had reported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

from tests.simulation.judges import (
    BUDGET,
    DELAY,
    FAILURE,
    NAMED,
    WHAT,
    WHILE_FAILED,
    _if,
    _named,
    _restarted,
    _spent,
    says,
)
from tests.simulation.telling import Told

HANGS = "Hung|CollectivesDiffer"
OTHERS = "HangSuspected|WaitsForBusyRank|AllSleep"


def _held(told: Told, text: str) -> Iterator[str]:
    """The ranks that a text names have all done the same for long enough."""
    policy = (told.spec.get("runPolicy") or {}).get("hang") or {}
    after = timedelta(seconds=policy.get("afterSeconds", 300))
    ranks = {rank.rank: rank for rank in told.observed.heard.ranks}
    named = {int(number) for number in re.findall(r"\(rank (\d+)\)", text)}
    named |= {int(n) for some in re.findall(r"\branks? ([\d, ]+)", text) for n in some.split(",")}
    unseen = re.findall(r"ranks? ([\d, ]+) never reported", text)
    named -= {int(n) for some in unseen for n in some.split(",")}
    yield from _if(not named <= set(ranks), f"only {sorted(ranks)} have reported")
    young = [n for n in named & set(ranks) if told.now - ranks[n].since < after]
    silent = "says nothing" in text or "has ended" in text
    yield from _if(bool(young) and not silent, f"{young} have done so for less than {after}")
    yield from _if(not ranks, "no rank has reported")


@says("Hung=True", HANGS, r"(?P<text>.+)", once=True)
@says("Hung=False", OTHERS, r"(?P<text>.+)", once=True)
@says("event Hung", "Warning", r"(?P<text>.+)\.")
@says("event WaitingRanks", "Normal|Warning", r"(?P<text>.+)\.")
def _hangs(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _held(told, found["text"])


@says("Hung=False", "-", r"The ranks get on, as far as they are observed\.", once=True)
def _goes_on(told: Told, _: re.Match[str]) -> Iterator[str]:
    was = {c["type"]: c["reason"] for c in told.before.get("conditions") or ()}
    yield from _if(was.get("Hung", "-") == "-", "nothing was said of them")


@says(WHILE_FAILED, "Hung", rf"{NAMED} has failed: it hangs; (?P<text>.+)", once=True)
@says("event Failed", "Warning", rf"{NAMED} has failed: it hangs; (?P<text>.+)")
def _ended(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _named(told, found)
    yield from _held(told, found["text"])


@says(
    "event Restart",
    "Warning",
    rf"{FAILURE}\nRestarting {WHAT}{DELAY} {BUDGET}: runPolicy\.hang restarts after this failure\.",
)
def _restarts(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _if(found["why"] != "Hung", "it has not hung")
    yield from _held(told, found["lines"] or "")
    yield from _restarted(told, found)
    yield from _spent(told, found)
