"""Failures that come again: what programs say as they fail, and what must hold where that is told.

Which words mean that a failure may pass is the simulation's own knowledge.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.simulation import job_policies
from tests.simulation.reconcile_result import ReconcileResult
from tests.simulation.server import Obj
from tests.simulation.truth import JobTruth, PodTruth

_TRACE = 'Traceback (most recent call last):\n  File "/work/train.py", line {}, in main\n    {}\n{}'
LASTING = (
    _TRACE.format(3, "import nets", "ModuleNotFoundError: No module named 'nets'"),
    _TRACE.format(41, "guard(loss)", "FloatingPointError: the loss is nan"),
    "no checkpoint in /ckpt: give --resume-from",
)
PASSING = (
    _TRACE.format(9, "fetch(url)", "ConnectionResetError: [Errno 104] Connection reset by peer"),
    _TRACE.format(9, "fetch(url)", "TimeoutError: timed out"),
    "OSError: [Errno 98] Address already in use",
)
FALLOUT = _TRACE.format(
    57, "dist.all_reduce(loss)", "RuntimeError: [gloo/pair.cc] Connection closed by peer"
)
SIGNALS = (130, 137, 138, 143)
SAME = re.compile(
    r"(?P<before>.*?)(?:\n|\. )Failure (?P<times>\d+) in a row by (?P<by>.+), with nothing gained "
    r"in between: a restart will not help\.",
    re.DOTALL,
)
_POD = re.compile(r"(?:Pod\[|has failed: )(?P<pod>[a-z0-9-]+)")


@dataclass(frozen=True, slots=True)
class FailureMessages:
    """The last words of pods; `stubborn` is the chance that they are those of the job's first."""

    seed: int
    stubborn: float

    def of(self, pod: Obj, code: int) -> str:
        """What a pod says that ends so by itself."""
        if code in (0, *SIGNALS):
            return ""
        job = pod["metadata"]["ownerReferences"][0]["name"]
        first = random.Random(f"{self.seed} words {job}").choice(LASTING)
        own = random.Random(f"{self.seed} words {job} {pod['metadata']['uid']}")
        return first if own.random() < self.stubborn else own.choice((*LASTING, *PASSING, ""))


def draw(seed: int, jobs: list[Obj], *, judged: bool) -> FailureMessages:
    """By a generator of its own. `judged`: some jobs have a judge."""
    rng = random.Random(f"{seed} repeats")
    messages = FailureMessages(seed, rng.choice((0.3, 1.0, 1.0)))
    for job in jobs:
        if judged and rng.random() < 0.6:
            job["spec"].setdefault("runPolicy", {})["restartJudge"] = True
    return messages


def untrue(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    """What is wrong about the sentence that a replica has failed as before."""
    named = _POD.search(found["before"])
    pod, times = named["pod"] if named else "", int(found["times"])
    ended = [a for a in result.after.get("attempts") or () if "endTime" in a]
    own = [a for a in ended if a.get("replica") == pod and "repeated" in a]
    if (result.entries.get(pod) or {}).get("phase") == "Failed" and not result.ends_now:
        return  # its job goes on without it, and no attempt has ended
    if not own or (own[-1]["repeated"], own[-1]["cause"]) != (times, found["by"]):
        yield f"the last attempt that it ended is {own[-1:]}"
        return
    if times < 2:
        yield "once is not again"
    alone = job_policies.restarts_one_by_one(result.job) or pod in result.apart
    paused = [number for number, a in enumerate(ended, 1) if a["reason"] == "Paused"]
    resumed = ended[paused[-1] :] if paused else ended  # nothing is counted over a pause
    others = (a for a in resumed if "repeated" in a and (not alone or a["replica"] == pod))
    row = [a for a in others if alone or a["replica"] not in result.apart][-times:]
    records = (result.account(result.after).get("replicas") or {}).values()
    if not _follow([a["repeated"] for a in row], sum(bool(r.get("lost")) for r in records)):
        yield f"the attempts before were {row}"


def _follow(numbers: Sequence[int], given_up: int) -> bool:
    """Whether each of the last row is one more than that before, but for what no attempt tells: the
    failures of replicas without which an elastic job goes on. One may have begun the row."""
    missing, later = 0, numbers[-1]
    for before in reversed(numbers[:-1]):
        if before >= later:  # of another row
            missing += later - 1
            break
        missing += later - 1 - before
        later = before
    return missing <= given_up


def _cause(pod: PodTruth) -> tuple[str, int | None]:
    """What equal ends have in common: an exception and its line, whatever the exit code is."""
    return pod.message, None if pod.message.startswith("Traceback") else pod.own_end


def ended_in_vain(job: JobTruth, old: Obj, new: Obj, stored: Obj) -> Iterator[str]:
    """What is wrong about a job's end by its judge; `stored` is the job."""
    held: Mapping[str, Obj] = {c["type"]: c for c in new.get("conditions") or ()}
    if held.get("Failed", {}).get("reason") != "RestartsInVain" or "completionTime" in old:
        return
    if not (stored["spec"].get("runPolicy") or {}).get("restartJudge"):
        yield "ended by a judge that it does not have"
    name = new["attempts"][-1].get("replica")
    ends = [pod for pod in job.pods.values() if pod.own_end]
    last = [pod for pod in ends if pod.name == name][-1:]
    if not last or last[0].message in (*PASSING, FALLOUT) or last[0].own_end in SIGNALS[::2]:
        yield f"ended by its judge for {last}"
        return
    same = {(p.name, p.attempt) for p in ends if _cause(p) == _cause(last[0])}
    if len(same) < 2:
        yield f"ended by its judge for what came once: {last}"
