"""`status.goodput` beside the truth: scripts that log by the clock what they do, and random kills.

Everything told and everything true is time between moments that both know, so no verdict depends
on how fast the machine is.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.embedded.command_line import Object, until
from tests.embedded.lifecycle_yard import ENDS, START_SECONDS, Yard, pytorch, template, yard
from tests.tools import soak
from trainyard.schema.times import parse

POINTS = 0.02
SIDE_BY_SIDE = 4
KILLS = 3
TRAIN = Path(__file__).parent / "told_training.py"
JUDGED = ("training", "saving", "lost", "restarting")


class Line(NamedTuple):
    """What the script did, when, and where it was then."""

    what: str
    step: int
    at: float


def log(cluster: Yard, name: str) -> list[Line]:
    """What the script has done so far."""
    return [Line(*json.loads(line)) for line in cluster.lines(name, "log")]


def attempts(lines: list[Line]) -> list[list[Line]]:
    """The same by attempt; each begins where it has read its checkpoint."""
    begins = [n for n, line in enumerate(lines) if line.what == "begin"]
    return [lines[a:b] for a, b in zip(begins, [*begins[1:], len(lines)], strict=True)]


def true_parts(lines: list[Line], kills: list[float], end: float) -> dict[str, float]:
    """Seconds by part, from the first step's begin to `end`."""
    parts = dict.fromkeys(JUDGED, 0.0)
    runs = attempts(lines)
    assert len(kills) == len(runs) - 1, (kills, runs)
    for run, over, again in zip(runs, [*kills, end], [*runs[1:], None], strict=True):
        begin = run[0]
        kept = over
        if again is not None:
            saved = [line.at for line in run if (line.what, line.step) == ("saved", again[0].step)]
            kept = min(saved[-1] if saved else begin.at, over)
            parts["restarting"] += again[0].at - over
        parts["lost"] += over - kept
        parts["training"] += kept - begin.at
        began = {line.step: line.at for line in run if line.what == "saving"}
        for line in run:
            if line.what == "saved" and line.at <= kept:
                parts["saving"] += line.at - began[line.step]
                parts["training"] -= line.at - began[line.step]
    return parts


class Run:
    """One job, which is killed at random moments of its seed."""

    def __init__(self, cluster: Yard, seed: int) -> None:
        self.name, self.kills = f"told-{seed}", list[float]()
        self._cluster, self._rng = cluster, random.Random(seed)
        self._due: float | None = None

    def job(self) -> Object:
        """Rank 0 trains, the other waits for nothing."""
        (cluster, name) = (self._cluster, self.name)
        cluster.file(name).mkdir()
        cluster.file(name, "train.py").write_text(TRAIN.read_text())
        command = ["python", f"/data/{name}/train.py", f"/data/{name}", str(self._rng.random())]
        pods = template(command, env={"JOB": name})
        return pytorch(name, pods, replicas=2, runPolicy={"backoffLimit": KILLS})

    def go_on(self) -> bool:
        """Kill it if it is time; whether it has ended."""
        lines = log(self._cluster, self.name)
        begun = sum(line.what == "begin" for line in lines)
        if begun > len(self.kills) and len(self.kills) < KILLS:
            if self._due is None:
                self._due = time.monotonic() + self._rng.uniform(0.2, 3.0)
            elif time.monotonic() >= self._due:
                self._kill()
        return self._cluster.phase(self.name) in ENDS

    def _kill(self) -> None:
        # Rank 0 alone or with its peer: where that goes first, it works on for a while.
        found = self._cluster.with_environment("train.py", JOB=self.name)
        rank0 = self._cluster.with_environment("train.py", JOB=self.name, RANK="0")
        if rank0:
            self.kills.append(time.time())
            for pid in self._rng.choice((rank0, found)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._due = None

    def misjudged(self) -> tuple[list[str], str]:
        """Parts that are more than two points of the wall time off, and all of them in a line."""
        job = self._cluster.job(self.name)
        status = job["status"]
        assert status["phase"] == "Succeeded", self._cluster.story(self.name)
        told = status["goodput"]
        begin, end = (parse(t) for t in (job["metadata"]["creationTimestamp"], told["asOf"]))
        assert begin is not None
        assert end is not None
        wall = (end - begin).total_seconds()
        truth = true_parts(log(self._cluster, self.name), self.kills, end.timestamp())
        off = {part: told.get(part, 0.0) - truth[part] for part in JUDGED}
        text = ", ".join(f"{p} {truth[p]:.2f}{off[p]:+.2f}" for p in JUDGED)
        text = f"{self.name}: {wall:.1f} s, {len(self.kills)} kills: {text}"
        return [part for part in JUDGED if abs(off[part]) > POINTS * wall], text


@pytest.mark.parametrize("batch", range(soak(1, 5)))
def test_goodput_is_within_two_points_of_the_truth(batch: int, tmp_path: Path) -> None:
    with yard(tmp_path) as cluster:
        seeds = range(SIDE_BY_SIDE * batch, SIDE_BY_SIDE * (batch + 1))
        runs = [Run(cluster, seed) for seed in seeds]
        cluster.submit(*(run.job() for run in runs))
        until(lambda: {run.go_on() for run in runs} == {True}, "all have ended", START_SECONDS)
        found = [run.misjudged() for run in runs]
        for _, text in found:
            print(text)
        assert not any(bad for bad, _ in found), found
