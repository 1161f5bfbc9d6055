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
from trainyard.kube.resources import CONFIG_MAPS
from trainyard.lifecycle.actions import Create
from trainyard.lifecycle.hang.rank_reports import RankReport

HANGS = "Hung|CollectivesDiffer|RankStopped"
OTHERS = "HangSuspected|WaitsForBusyRank|AllSleep"
STOPPED = "is stopped by a signal"
WORK = ("Busy", "Collecting", "New")


def _held(told: Told, text: str) -> Iterator[str]:
    """The ranks that a text names have all done the same for long enough."""
    policy = (told.spec.get("runPolicy") or {}).get("hang") or {}
    after = timedelta(seconds=policy.get("afterSeconds", 300))
    ranks = {r.rank: r for r in told.observed.reports.ranks if _is_of(told, r)}
    named = {int(number) for number in re.findall(r"\(rank (\d+)\)", text)}
    named |= {int(n) for some in re.findall(r"\branks? ([\d, ]+)", text) for n in some.split(",")}
    unseen = re.findall(r"ranks? ([\d, ]+) never reported", text)
    named -= {int(n) for some in unseen for n in some.split(",")}
    yield from _if(not named <= set(ranks), f"only {sorted(ranks)} have reported")
    young = [n for n in named & set(ranks) if told.now - ranks[n].since < after]
    silent = "says nothing" in text or "has ended" in text or STOPPED in text
    yield from _if(bool(young) and not silent, f"{young} have done so for less than {after}")
    yield from _if(not ranks, "no rank has reported")
    if number := re.search(rf"\(rank (\d+)\) {STOPPED}", text):
        rank = ranks[int(number[1])]
        pod = told.pods[rank.pod]
        since = pod.stopped_since
        is_held = rank.pid in pod.stopped and since is not None and told.now - since >= after
        yield from _if(not is_held, f"its pod has {sorted(pod.stopped)} stopped since {since}")


def _is_of(told: Told, rank: RankReport) -> bool:
    """Whether a report is of a pod that is there, not of the one before it."""
    pod = told.pods.get(rank.pod)
    return pod is not None and pod.attempt == rank.attempt


def _answered(told: Told, action: str) -> Iterator[str]:
    """That is what the job wants to follow from a hang."""
    wanted = told.spec["runPolicy"]["hang"]["action"]
    yield from _if(wanted != action, f"runPolicy.hang says {wanted}")


@says("Hung=True", HANGS, r"(?P<text>.+)", once=True)
def _hung(told: Told, found: re.Match[str]) -> Iterator[str]:
    text = found["text"]
    yield from _held(told, text)
    named = {int(number) for number in re.findall(r"\(rank (\d+)\)", text)}
    works = [r.rank for r in told.observed.reports.ranks if r.rank in named and r.kind in WORK]
    may_work = "has ended" in text or STOPPED in text
    yield from _if(bool(works) and not may_work, f"{works} are at work")
    kept = {each.name for each in told.observed.owned if each.resource == CONFIG_MAPS}
    kept |= {each.name for each in told.plan.actions if isinstance(each, Create)}
    yield from _if(not any("-hang-" in name for name in kept), "no evidence of it is kept")


@says("Hung=False", OTHERS, r"(?P<text>.+)", once=True)
@says("event Hung", "Warning", r"(?P<text>.+)\.")
@says("event WaitingRanks", "Normal|Warning", r"(?P<text>.+)\.")
def _hangs(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _held(told, found["text"])


@says(
    "event RanksApart",
    "Warning",
    r"No process group of torch\.distributed was made: each of the (?P<size>\d+) ranks has worked "
    r"on its own, and what rank 0 has trained is its own alone\.",
)
def _apart(told: Told, found: re.Match[str]) -> Iterator[str]:
    kinds = {r.kind for r in told.observed.reports.ranks if _is_of(told, r)}
    yield from _if(kinds != {"Alone"}, f"its ranks have said {sorted(kinds)}")
    yield from _if(told.phase != "Succeeded", f"the phase is {told.phase}")
    yield from _if(int(found["size"]) < 2, "one rank is always alone")


@says("Hung=False", "-", r"The ranks get on, as far as they are observed\.", once=True)
def _goes_on(told: Told, _: re.Match[str]) -> Iterator[str]:
    was = {c["type"]: c["reason"] for c in told.before.get("conditions") or ()}
    yield from _if(was.get("Hung", "-") == "-", "nothing was said of them")


@says(WHILE_FAILED, "Hung", rf"{NAMED} has failed: it hangs; (?P<text>.+)", once=True)
@says("event Failed", "Warning", rf"{NAMED} has failed: it hangs; (?P<text>.+)")
def _ended(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _named(told, found)
    yield from _answered(told, "Fail")
    told_before = {c["message"] for c in told.before.get("conditions") or ()}
    if found.string.partition("\0")[2] in told_before and told.account(told.before).get("ended"):
        return  # said again where somebody had taken it back, of pods that are gone
    yield from _held(told, found["text"])


@says(
    "event Restart",
    "Warning",
    rf"{FAILURE}\nRestarting {WHAT}{DELAY} {BUDGET}: runPolicy\.hang restarts after this failure\.",
)
def _restarts(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _if(found["why"] != "Hung", "it has not hung")
    yield from _answered(told, "Restart")
    yield from _held(told, found["lines"] or "")
    yield from _restarted(told, found)
    yield from _spent(told, found)
