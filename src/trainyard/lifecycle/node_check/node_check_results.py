"""What pods tell of the test of their nodes, and which nodes that is to the discredit of.

Each is tried with its two neighbours in a ring of all, so that one that is bad has two bad pairs,
and its neighbours have one each. Much slower is what no machine that others use too can be taken
for: a matmul is measured by what it used of one core, and the best of several tries counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from trainyard.lifecycle.hang.rank_reports import bounded_number
from trainyard.schema.dataclass import dataclass

EVENT_REASON = "NodeCheck"
"""Reason of the events on the job (decision 295)."""
BEGUN, READY, TESTING, DONE, LEFT = "begun", "ready", "testing", "done", "left"
_STAGES = (BEGUN, READY, TESTING, DONE, LEFT)
MATMUL_FACTOR, MATMUL_SECONDS = 4.0, 0.05
"""A matmul is far slower that takes so many times what it takes the others in the median, and so
much longer."""
PAIR_FACTOR, PAIR_SECONDS = 10.0, 1.0
"""And so is a collective with a partner."""
_MAX_TEXT = 200


class PairResult(NamedTuple):
    """A collective with the pod `peer`: the seconds of the best, or why none came to an end."""

    peer: str
    seconds: float
    error: str


@dataclass(frozen=True, slots=True)
class NodeCheckReport:
    """How the test stands in one pod, as last told; see `node_check_messages.NodeCheck`."""

    uid: str
    attempt: int
    stage: str
    received_at: datetime
    run: str = ""
    host: str = ""
    port: int = 0
    seconds: float = 0.0
    pairs: tuple[PairResult, ...] = ()
    error: str = ""

    @property
    def state(self) -> tuple[str, int, str, str]:
        """See `pod_reports.ReportedState`."""
        return self.uid, self.attempt, self.stage, self.run

    def repeating(self, before: NodeCheckReport) -> NodeCheckReport:
        """See `pod_reports.ReportedState`."""
        return before

    def without(self, peers: Collection[str]) -> NodeCheckReport:
        """Less its pairs with these."""
        return replace(self, pairs=tuple(each for each in self.pairs if each.peer not in peers))

    @classmethod
    def decode(cls, obj: Any, received_at: datetime) -> NodeCheckReport:
        """From a report, which may be anything; raises ValueError, with the field."""
        stage = obj.get("stage") if isinstance(obj, Mapping) else None
        if stage not in _STAGES:
            raise ValueError(f"nodeCheck.stage: must be one of {', '.join(_STAGES)}")
        pairs = obj.get("pairs", [])
        are_objects = isinstance(pairs, list) and all(isinstance(e, Mapping) for e in pairs)
        if not are_objects or len(pairs) > 2:
            raise ValueError("nodeCheck.pairs: must be a list of two objects at most")
        return cls(
            uid=_text(obj, "uid"),
            attempt=int(bounded_number(obj, "nodeCheck", "attempt", 1e9)),
            stage=stage,
            received_at=received_at,
            run=_text(obj, "run"),
            host=_text(obj, "host"),
            port=int(bounded_number(obj, "nodeCheck", "port", 65535)),
            seconds=bounded_number(obj, "nodeCheck", "seconds", 1e9),
            pairs=tuple(map(_pair_result, pairs)),
            error=_text(obj, "error"),
        )


def _pair_result(obj: Mapping[str, Any]) -> PairResult:
    seconds = bounded_number(obj, "nodeCheck.pairs", "seconds", 1e9)
    return PairResult(_text(obj, "replica"), seconds, _text(obj, "error"))


def _text(obj: Mapping[str, Any], name: str) -> str:
    return " ".join(str(obj.get(name, "")).split())[:_MAX_TEXT]


class BadNode(NamedTuple):
    """A pod whose node did badly, and how."""

    pod: str
    why: str


def pairing_rounds(members: int) -> list[list[tuple[int, int]]]:
    """Who is tried with whom, one round after the other: the neighbours in a ring, each of which
    has one partner at a time."""
    if members < 3:
        return [[(0, 1)]] if members == 2 else []
    ring = [(first, first + 1) for first in range(members - 1)]
    last = [(0, members - 1)]
    return [ring[::2], ring[1::2], last] if members % 2 else [ring[::2], ring[1::2] + last]


def find_bad_nodes(
    members: Sequence[str], reports: Mapping[str, NodeCheckReport], nodes: Mapping[str, str]
) -> list[BadNode]:
    """Those whose nodes are bad, of the pods that were tried; `reports` are of those that have
    done all of it, and `nodes` where they are."""
    found: dict[str, str] = {}
    seconds = {pod: each.seconds for pod, each in reports.items() if not each.error}
    for pod in members:
        each = reports.get(pod)
        others = [value for other, value in seconds.items() if other != pod]
        if each is None or not others:
            continue
        if each.error:
            found[pod] = f"its matmul failed: {each.error}"
        elif _is_slower(each.seconds, others, MATMUL_FACTOR, MATMUL_SECONDS):
            found[pod] = (
                f"its matmul took {each.seconds:.2g} s, and {_lower_median(others):.2g} s elsewhere"
            )
    pairs = _tried_pairs(members, reports)
    well = {each for pair in pairs if pair.why == "" for each in pair.pods}
    good = {nodes.get(pod, pod) for pod in well}
    for pod in members:
        # Where another did well, the node reaches others.
        if pod not in found and nodes.get(pod, pod) not in good:
            found[pod] = _why_isolated(pod, pairs, well)
    return [BadNode(pod, found[pod]) for pod in members if found.get(pod)]


class TriedPair(NamedTuple):
    """Two pods that were tried together: what was wrong, "" if nothing was; None: not known."""

    pods: tuple[str, str]
    why: str | None


def _tried_pairs(members: Sequence[str], reports: Mapping[str, NodeCheckReport]) -> list[TriedPair]:
    found: list[tuple[tuple[str, str], list[PairResult]]] = []
    for first, second in (pair for each in pairing_rounds(len(members)) for pair in each):
        pods = members[first], members[second]
        found.append((pods, [*_results_of(reports, *pods), *_results_of(reports, *pods[::-1])]))
    times = [
        max(p.seconds for p in results)
        for _, results in found
        if results and _all_succeeded(results)
    ]
    return [TriedPair(pods, _pair_problem(results, times)) for pods, results in found]


def _results_of(reports: Mapping[str, NodeCheckReport], pod: str, peer: str) -> list[PairResult]:
    return [each for each in reports[pod].pairs if each.peer == peer] if pod in reports else []


def _all_succeeded(results: Sequence[PairResult]) -> bool:
    return not any(each.error for each in results)


def _pair_problem(results: Sequence[PairResult], times: Sequence[float]) -> str | None:
    if not results:
        return None
    if failed := [each.error for each in results if each.error]:
        return failed[0]
    slowest = max(each.seconds for each in results)
    if _is_slower(slowest, times, PAIR_FACTOR, PAIR_SECONDS):
        return f"it took {slowest:.2g} s, and {_lower_median(times):.2g} s elsewhere"
    return ""


def _why_isolated(pod: str, pairs: Sequence[TriedPair], well: Collection[str]) -> str:
    """What is wrong with all that it was part of, where at least one partner did well with another:
    then that was not the partner's fault. "" for what may be somebody else's."""
    own = [pair for pair in pairs if pod in pair.pods and pair.why is not None]
    if len(own) < 2 or not any(each in well for pair in own for each in pair.pods):
        return ""
    return f"its collectives with two others failed or were slow: {own[0].why}"


def first_pair_problem(members: Sequence[str], reports: Mapping[str, NodeCheckReport]) -> str:
    """What was wrong with the first pair that was not well; "" if all were."""
    return next((pair.why for pair in _tried_pairs(members, reports) if pair.why), "")


def describe_times(members: Sequence[str], reports: Mapping[str, NodeCheckReport]) -> str:
    """`matmul 0.04 to 0.05 s, all-reduce in pairs 0.01 to 0.02 s`."""
    found = [f"matmul {_format_range([reports[pod].seconds for pod in members])}"]
    paired = [each.seconds for pod in members for each in reports[pod].pairs]
    if paired:
        found.append(f"all-reduce in pairs {_format_range(paired)}")
    return ", ".join(found)


def _format_range(values: Iterable[float]) -> str:
    least, most = (f"{value:.2g}" for value in (min(values), max(values)))
    return f"{least} s" if least == most else f"{least} to {most} s"


def _is_slower(seconds: float, others: Sequence[float], factor: float, floor: float) -> bool:
    usual = _lower_median(others)
    return seconds >= factor * usual and seconds >= usual + floor


def _lower_median(values: Iterable[float]) -> float:
    """The lower of two in the middle."""
    found = sorted(values)
    return found[(len(found) - 1) // 2]
