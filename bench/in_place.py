"""From the kill of one of four ranks to the first step after it: in the same pods, and in new ones.

Rounds alternate between both, so that what else the machine does falls on both.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from string import Template

from bench.commands import seconds, state

Row = tuple[str, float | None, str, float | None]
_ROUNDS, _RANKS = 3, 4
_INIT_SECONDS = 5
_PATIENCE_SECONDS = 180.0
_SCRIPT = """\
import os, signal, sys, time
import torch, torch.distributed as dist
torch.set_num_threads(1)
folder, started = sys.argv[1], time.time()
dist.init_process_group("gloo")
one, step = torch.ones(1), 0
while not os.path.exists(folder + "/end"):
    dist.all_reduce(one)
    step += 1
    if dist.get_rank() == 0:
        with open(folder + "/steps", "a") as file:
            file.write(f"{started} {time.time()}\\n")
    elif dist.get_rank() == 2 and step == 20 and not os.path.exists(folder + "/killed"):
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
  runPolicy: {restartMode: $mode, cleanUpPolicy: All}
  replicaSpecs:
  - type: worker
    replicas: $ranks
    restartPolicy: OnFailure
    template:
      spec:
        $init
        containers:
        - name: pytorch
          image: pytorch
          command: [python, $folder/train.py, $folder]
          volumeMounts: [{name: data, mountPath: $folder}]
        volumes: [{name: data, hostPath: {path: $folder}}]
""")
_INIT = 'initContainers: [{name: prepare, image: busybox, command: [sleep, "%d"]}]'


def measure() -> list[Row]:
    """Seconds of both, and their ratio."""
    rows: list[Row] = []
    for what, init in (("", ""), (f", init container of {_INIT_SECONDS} s", _INIT % _INIT_SECONDS)):
        found: dict[str, list[float]] = {"Recreate": [], "InPlace": []}
        with state() as folder:
            seconds("up")
            for number in range(_ROUNDS):
                for mode, took in found.items():
                    took.append(_restart(folder, f"{mode.lower()}-{number}", mode, init))
        new, same = (statistics.median(found[mode]) for mode in ("Recreate", "InPlace"))
        rows += [
            (f"kill to the next step, {_RANKS} ranks{what}: new pods", new, "s", None),
            ("the same pods (`restartMode: InPlace`)", same, "s", None),
            ("of the time with new pods", 100 * same / new, "%", 50.0 if init else None),
        ]
    return rows


def _restart(folder: Path, name: str, mode: str, init: str) -> float:
    data = folder / name
    data.mkdir()
    (data / "train.py").write_text(_SCRIPT)
    job = folder / f"{name}.yaml"
    values = {"name": name, "mode": mode, "ranks": _RANKS, "init": init, "folder": data}
    job.write_text(_JOB.substitute(values))
    seconds("submit", "-f", str(job))
    until = time.monotonic() + _PATIENCE_SECONDS
    while len(starts := _first_steps(data / "steps")) < 2:
        if time.monotonic() > until:
            raise RuntimeError(f"{name} makes no step after rank 2 was killed")
        time.sleep(0.1)
    (data / "end").touch()
    return starts[1] - float((data / "killed").read_text())


def _first_steps(file: Path) -> list[float]:
    """When each process of rank 0 made its first step."""
    found: dict[str, float] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        started, _, at = line.partition(" ")
        found.setdefault(started, float(at or "inf"))
    return sorted(found.values())
