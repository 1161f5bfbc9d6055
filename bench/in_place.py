"""From the kill of one of four ranks to the first step after it: in new pods, in the same ones, and
in the same with torch imported beforehand; with what of the time is spent on what.

Rounds alternate between them, so that what else the machine does falls on all.
"""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import NamedTuple

from bench.commands import seconds, state

Row = tuple[str, float | None, str, float | None]
_ROUNDS, _RANKS = 3, 4
_TRAINED_SECONDS = 45
"""Before the kill; a job that has just begun has nothing imported for its next attempt."""
_PATIENCE_SECONDS = 300.0
_SCRIPT = """\
import os, signal, sys, time
began = time.time()
import torch, torch.distributed as dist
imported = time.time()
torch.set_num_threads(1)
folder = sys.argv[1]
dist.init_process_group("gloo")
joined = time.time()
one, first = torch.ones(1), None
while not os.path.exists(folder + "/end"):
    dist.all_reduce(one)
    if first is None:
        first = time.time()
        if dist.get_rank() == 0:
            with open(folder + "/attempts", "a") as file:
                file.write(f"{began} {imported} {joined} {first}\\n")
    elif dist.get_rank() == 2 and time.time() > first + float(sys.argv[2]):
        if not os.path.exists(folder + "/killed"):
            with open(folder + "/new", "w") as file:
                file.write(str(time.time()))
            os.rename(folder + "/new", folder + "/killed")
            os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
"""
_JOB = Template("""\
apiVersion: batch.tensorstack.dev/v1beta1
kind: PyTorchTrainingJob
metadata: {name: $name}
spec:
  runPolicy: {$policy, cleanUpPolicy: All}
  replicaSpecs:
  - type: worker
    replicas: $ranks
    restartPolicy: OnFailure
    template:
      spec:
        containers:
        - name: pytorch
          image: pytorch
          command: [python, $folder/train.py, $folder, "$trained"]
          volumeMounts: [{name: data, mountPath: $folder}]
        volumes: [{name: data, hostPath: {path: $folder}}]
""")
_WAYS = {
    "new pods": "restartMode: Recreate",
    "the same pods (`restartMode: InPlace`)": "restartMode: InPlace",
    "the same pods, `preload: [torch]`": "restartMode: InPlace, preload: [torch]",
}


class _Restart(NamedTuple):
    """Seconds from the kill, and of each part."""

    until_begun: float
    imports: float
    joining: float
    step: float

    @property
    def total(self) -> float:
        return sum(self)


def measure() -> list[Row]:
    """Seconds of each way, their parts, and their ratios."""
    found: dict[str, list[_Restart]] = {way: [] for way in _WAYS}
    with state() as folder:
        seconds("up")
        for number in range(_ROUNDS):
            for index, (way, policy) in enumerate(_WAYS.items()):
                found[way].append(_restart(folder, f"way{index}-{number}", policy))
    totals = {way: statistics.median(each.total for each in found[way]) for way in _WAYS}
    new = totals["new pods"]
    rows: list[Row] = []
    for way, restarts in found.items():
        parts = [statistics.median(each) for each in zip(*restarts, strict=True)]
        rows += [
            (f"kill to the next step, {_RANKS} ranks: {way}", totals[way], "s", None),
            ("of it until rank 0's program begins again", parts[0], "s", None),
            ("its imports", parts[1], "s", None),
            ("until all have met, and the first step", parts[2] + parts[3], "s", None),
        ]
        if way != "new pods":
            target = 50.0 if "preload" in way else None
            rows.append(("of the time with new pods", 100 * totals[way] / new, "%", target))
    return rows


def _restart(folder: Path, name: str, policy: str) -> _Restart:
    data = folder / name
    data.mkdir()
    (data / "train.py").write_text(_SCRIPT)
    job = folder / f"{name}.yaml"
    values = {"name": name, "policy": policy, "ranks": _RANKS, "folder": data}
    job.write_text(_JOB.substitute(values, trained=_TRAINED_SECONDS))
    seconds("submit", "-f", str(job))
    until = time.monotonic() + _PATIENCE_SECONDS
    while len(attempts := _attempts(data / "attempts")) < 2:
        if time.monotonic() > until:
            raise RuntimeError(f"{name} makes no step after rank 2 was killed")
        time.sleep(0.1)
    (data / "end").touch()
    moments = [float((data / "killed").read_text()), *attempts[1]]
    return _Restart(*(later - before for before, later in pairwise(moments)))


def _attempts(file: Path) -> list[list[float]]:
    """The moments of rank 0, of each attempt."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [[float(each) for each in line.split()] for line in lines if line.count(" ") == 3]
