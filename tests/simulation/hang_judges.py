"""Judges of texts about ranks that get nowhere, held against what they had reported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

from tests.simulation.reconcile_result import ReconcileResult
from tests.simulation.text_judges import (
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
    exactly,
    judges,
)
from trainyard.kube.resources import CONFIG_MAPS
from trainyard.lifecycle.actions import Create
from trainyard.lifecycle.hang import hang_texts
from trainyard.lifecycle.hang.rank_reports import RankReport

HANGS = "Hung|CollectivesDiffer|RankStopped"
OTHERS = "HangSuspected|WaitsForBusyRank|AllSleep"
STOPPED = "is stopped by a signal"
WORK = ("Busy", "Collecting", "New")


def _lasts(result: ReconcileResult, text: str) -> Iterator[str]:
    """The ranks that a text names have all done the same for long enough."""
    policy = (result.spec.get("runPolicy") or {}).get("hang") or {}
    after = timedelta(seconds=policy.get("afterSeconds", 300))
    ranks = _current_ranks(result)
    named = set().union(*_ranks_named(text))
    yield from _if(not named <= set(ranks), f"only {sorted(ranks)} have reported")
    young = [n for n in named & set(ranks) if result.now - ranks[n].since < after]
    silent = "says nothing" in text or "has ended" in text or STOPPED in text
    yield from _if(bool(young) and not silent, f"{young} have done so for less than {after}")
    yield from _if(not ranks, "no rank has reported")
    if number := re.search(rf"\(rank (\d+)\) {STOPPED}", text):
        rank = ranks[int(number[1])]
        pod = result.pods[rank.pod]
        since = pod.stopped_since
        is_stopped = rank.pid in pod.stopped and since is not None and result.now - since >= after
        yield from _if(not is_stopped, f"its pod has {sorted(pod.stopped)} stopped since {since}")


def _ranks_named(text: str) -> tuple[set[int], set[int]]:
    """The ranks that a text names with their pods, and those that it counts up, which wait."""
    culprits = {int(number) for number in re.findall(r"\(rank (\d+)\)", text)}
    lists = re.findall(r"(?<!\()\branks? (\d+(?:, \d+)*)(?![\d,]| never reported)", text)
    return culprits, {int(n) for numbers in lists for n in numbers.split(", ")}


def _current_ranks(result: ReconcileResult) -> dict[int, RankReport]:
    return {r.rank: r for r in result.observed.reports.ranks if _is_of(result, r)}


def _is_of(result: ReconcileResult, rank: RankReport) -> bool:
    """Whether a report is of a pod that is there, not of the one before it."""
    pod = result.pods.get(rank.pod)
    return pod is not None and pod.attempt == rank.attempt


def _answered(result: ReconcileResult, action: str) -> Iterator[str]:
    """That is what the job wants to follow from a hang."""
    wanted = result.spec["runPolicy"]["hang"]["action"]
    yield from _if(wanted != action, f"runPolicy.hang says {wanted}")


@judges("Hung=True", HANGS, r"(?P<text>.+)", once=True)
def _hung(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    text = found["text"]
    yield from _lasts(result, text)
    ranks = _current_ranks(result)
    culprits, waiting = _ranks_named(text)
    to_rest = waiting if "has ended" in text or STOPPED in text else culprits | waiting
    works = sorted(n for n in to_rest & set(ranks) if ranks[n].kind in WORK)
    yield from _if(bool(works), f"{works} are at work")
    both = sorted(culprits & waiting)
    yield from _if(bool(both), f"{both} wait for themselves")
    kept = {each.name for each in result.observed.owned if each.resource == CONFIG_MAPS}
    kept |= {each.name for each in result.plan.actions if isinstance(each, Create)}
    yield from _if(not any("-hang-" in name for name in kept), "no evidence of it is kept")


@judges("Hung=False", OTHERS, r"(?P<text>.+)", once=True)
@judges("event Hung", "Warning", r"(?P<text>.+)\.")
@judges("event WaitingRanks", "Normal|Warning", r"(?P<text>.+)\.")
def _hangs(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _lasts(result, found["text"])


_NEVER_MET = (
    r"(?:No process group of torch\.distributed was made|accelerate makes no use .+"
    r"|MPI knows of one process only, as without mpirun|jax\.distributed was not initialized)"
    r": each of the (?P<size>\d+) ranks works on its own, "
    r"and what rank (?P<rank>\d+) trains is its own alone\."
)
_SEPARATE = (
    r"(?P<one>\S+) and (?P<other>\S+) both have a rank (?P<rank>\d+) of (?P<size>\d+): their "
    r"process groups are not the same, and each of them trains a model of its own\."
)


@judges("RanksApart=True", "NeverMet", _NEVER_MET, once=True)
@judges("event RanksApart", "Warning", _NEVER_MET)
def _apart(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    kinds = {r.kind for r in result.observed.reports.ranks if _is_of(result, r)}
    yield from _if(not kinds <= {"Alone", "Apart"}, f"its ranks have said {sorted(kinds)}")
    early = kinds == {"Alone"} and result.phase != "Succeeded"
    yield from _if(early, f"the phase is {result.phase}, and no rank trained alone")
    yield from _if(int(found["size"]) < 2, "one rank is always alone")


@judges("RanksApart=True", "SeparateGroups", _SEPARATE, once=True)
@judges("event RanksApart", "Warning", _SEPARATE)
def _separate(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    doubles = result.observed.reports.doubles or ()
    pods = {each.pod for each in doubles if _is_of(result, each)}
    yield from _if(len(pods) != 2, f"only {sorted(pods)} report the same rank")
    for name in (found["one"], found["other"]):
        end = name.removesuffix("-0") if name.startswith("launcher") else name
        yield from _if(not any(p.endswith(end) for p in pods), f"of {sorted(pods)} none is {name}")


@judges("Hung=False", "CollectivesNotObserved", r"Collectives are not observed: (?P<why>.+)")
@judges("event CollectivesNotObserved", "Normal", r"Collectives are not observed: (?P<why>.+)")
def _unobserved(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    told = {rank.unobserved for rank in result.observed.reports.ranks if _is_of(result, rank)}
    yield from _if(not any(w and found["why"].startswith(w) for w in told), f"they say {told}")


@judges("Hung=False", "-", exactly(hang_texts.RANKS_ADVANCE), once=True)
def _goes_on(result: ReconcileResult, _: re.Match[str]) -> Iterator[str]:
    was = {c["type"]: c["reason"] for c in result.before.get("conditions") or ()}
    yield from _if(was.get("Hung", "-") == "-", "nothing was said of them")


@judges(WHILE_FAILED, "Hung", rf"{NAMED} has failed: it hangs; (?P<text>.+)", once=True)
@judges("event Failed", "Warning", rf"{NAMED} has failed: it hangs; (?P<text>.+)")
def _ended(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _named(result, found)
    yield from _answered(result, "Fail")
    messages_before = {c["message"] for c in result.before.get("conditions") or ()}
    if found.string.partition("\0")[2] in messages_before and result.account(result.before).get(
        "ended"
    ):
        return  # said again where somebody had taken it back, of pods that are gone
    yield from _lasts(result, found["text"])


@judges(
    "event Restart",
    "Warning",
    rf"{FAILURE}\nRestarting {WHAT}{DELAY} {BUDGET}: runPolicy\.hang restarts after this failure\.",
)
def _restarts(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _if(found["why"] != "Hung", "it has not hung")
    yield from _answered(result, "Restart")
    yield from _lasts(result, found["lines"] or "")
    yield from _restarted(result, found)
    yield from _spent(result, found)
