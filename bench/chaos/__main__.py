"""A job of each kind with a fault a minute, beside bare torchrun and torchx: `make chaos`.

All train the same (`train.py`), with and without faults, and meet the same schedule. The table is
printed and, unless `--keep-nothing`, kept in docs/faults.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from bench.__main__ import machine
from bench.chaos.bare import Bare
from bench.commands import TRAINYARD
from trainyard.api.chaos.schedule import Fault, planned

ROOT = Path(__file__).parent.parent.parent
TRAIN = Path(__file__).with_name("train.py")
_TORCHX = ROOT / ".cache" / "torchx" / "bin" / "torchx"
_TORCHRUN = Path(sys.executable).with_name("torchrun")
RANKS = 4
SEED = 1
TARGET = 1.25
SAME = (Fault.KILL, Fault.STOP, Fault.SLOW)
"""What each of the three can meet."""
OURS = (Fault.CONTROLLER, Fault.SERVER)
_RETRIES = 1000
_PACE = 2.0


class Row(NamedTuple):
    """One comparison."""

    what: str
    faults: str
    count: int
    without: float
    """Seconds."""
    under: float
    end: str

    @property
    def is_ended(self) -> bool:
        return self.end.startswith("yes")

    def cells(self) -> list[str]:
        """Of the table."""
        ratio = f"{self.under / self.without:.2f}" if self.is_ended else ""
        seconds = [f"{value:.0f} s" for value in (self.without, self.under)]
        return [self.what, self.faults, str(self.count), *seconds, ratio, self.end]


def jobs(epochs: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """A job of each kind, in the ways of the examples."""
    words = [str(TRAIN), "--epochs", str(epochs), "--pace", str(_PACE), "--folder", "/out"]
    retry = {"runPolicy": {"backoffLimit": _RETRIES}}
    worker = {"type": "worker", "restartPolicy": "OnFailure"}
    torchrun = {"torchrunConfig": {"enabled": True, "procPerNode": "1"}, **retry}
    each = {**worker, "replicas": RANKS, "template": _pod("main", args=words)}
    yield (
        "PyTorchTrainingJob, torchrun",
        _job("PyTorchTrainingJob", replicaSpecs=[each], **torchrun),
    )
    plain = _pod("main", command=["python", *words])
    each = {**worker, "replicas": RANKS, "template": plain}
    yield "PyTorchTrainingJob, plain", _job("PyTorchTrainingJob", replicaSpecs=[each], **retry)
    again = {**retry["runPolicy"], "restartMode": "InPlace"}
    again["preload"] = ["torch", "sklearn.datasets"]
    held = _job("PyTorchTrainingJob", replicaSpecs=[each], runPolicy=again)
    yield "PyTorchTrainingJob, in place", held
    each = {"replicas": 2, "restartPolicy": "OnFailure", "template": _pod("worker")}
    config = {"slotsPerWorker": 2, "run": {"python": words}}
    yield "DeepSpeedJob", _job("DeepSpeedJob", config=config, worker=each, **retry)
    config = {"procPerWorker": 2, "script": words}
    policy = {"policy": "OnFailure", "limit": _RETRIES}
    specs = [
        {"type": "launcher", "restartPolicy": policy, "template": {}},
        {"type": "worker", "replicas": 2, "template": _pod("worker")},
    ]
    yield "ColossalAIJob", _job("ColossalAIJob", torchConfig=config, replicaSpecs=specs)
    alone = _pod("main", command=["python", *words, "--alone"])
    each = {"type": "worker", "replicas": RANKS, "restartPolicy": policy, "template": alone}
    yield "GenericJob, each replica alone", _job("GenericJob", replicaSpecs=[each])


def _job(kind: str, **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "batch.tensorstack.dev/v1beta1", "kind": kind}
    return {**head, "metadata": {"name": "digits"}, "spec": spec}


def _pod(name: str, **container: Any) -> dict[str, Any]:
    variables = [{"name": "OMP_NUM_THREADS", "value": "1"}]
    mounts = [{"name": "out", "mountPath": "/out"}]
    main = {"name": name, "image": "torch", "env": variables, "volumeMounts": mounts, **container}
    claim = {"name": "out", "persistentVolumeClaim": {"claimName": "out"}}
    return {"spec": {"containers": [main], "volumes": [claim]}}


def ours(what: str, job: dict[str, Any], faults: tuple[Fault, ...], wanted: Wanted) -> Row:
    """A job by `trainyard chaos`."""
    file = wanted.folder / f"{what} {faults[0]}.yaml"
    file.write_text(yaml.safe_dump(job))
    accuracy = "out:0/accuracy" if job["kind"] == "GenericJob" else "out:accuracy"
    words = ["-f", str(file), "--faults", ",".join(faults), "--seed", str(SEED), "-o", "json"]
    words += [f"--every={wanted.every}s", f"--lasting={wanted.lasting}s", f"--result={accuracy}"]
    done = subprocess.run(
        [*TRAINYARD, "chaos", *words], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(f"{what}: trainyard chaos ended with {done.returncode}")
    report = json.loads(done.stdout)
    end = "yes" if report["same"] else "; ".join(report["differences"])
    times = (report[name]["seconds"] for name in ("baseline", "under_faults"))
    return Row(what, ", ".join(faults), len(report["struck"]), *times, end)


def bare(what: str, command: list[str], wanted: Wanted) -> Row:
    """A command without us."""
    folders = [wanted.folder / f"{what.split()[0]}-{name}" for name in ("without", "under")]
    plans = (iter(()), planned(SEED, SAME, wanted.every))
    ended, limit = [], wanted.epochs * _PACE * 4 + 300
    for folder, plan in zip(folders, plans, strict=True):
        words = [*command, "--epochs", str(wanted.epochs), "--pace", str(_PACE)]
        run = Bare([*words, "--folder", str(folder)], folder, RANKS)
        ended.append(run.run(plan, wanted.lasting, limit))
    if ended[0].code:
        raise RuntimeError(
            f"{what} fails without faults: {(folders[0] / 'log').read_text()[-2000:]}"
        )
    before, after = [(folder / "accuracy") for folder in folders]
    if not after.exists():
        end = "no, it hung" if ended[1].code is None else f"no, it ended with {ended[1].code}"
    else:
        end = "yes" if before.read_text() == after.read_text() else "another accuracy"
    seconds = [each.seconds for each in ended]
    return Row(what, ", ".join(SAME), ended[1].faults, seconds[0], seconds[1], end)


class Wanted(NamedTuple):
    """What is to be compared."""

    folder: Path
    epochs: int
    every: int
    """Seconds between two faults."""
    lasting: int
    """Seconds."""


def tasks(wanted: Wanted, only: str) -> Iterator[tuple[Callable[..., Row], tuple[Any, ...]]]:
    """What gives a row each."""
    kinds = [(what, job) for what, job in jobs(wanted.epochs) if only in what]
    for what, job in kinds:
        yield ours, (what, job, SAME, wanted)
    here = [str(_TORCHRUN), "--standalone", "--nproc-per-node", str(RANKS)]
    if only in "torchrun":
        command = [*here, f"--max-restarts={_RETRIES}", str(TRAIN)]
        yield bare, ("torchrun --max-restarts", command, wanted)
    if _TORCHX.exists() and only in "torchx":
        ddp = ["run", "-s", "local_cwd", "dist.ddp", "-j", f"1x{RANKS}", "--max_retries"]
        words = [str(_TORCHX), *ddp, str(_RETRIES), "--script", str(TRAIN), "--"]
        yield bare, ("torchx run --max_retries", words, wanted)
    for what, job in kinds[:1]:
        yield ours, (what, job, OURS, wanted)


def rows(wanted: Wanted, only: str, at_once: int) -> list[Row]:
    """All, so many at once; they begin apart, so that their faults do not come together."""
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with ProcessPoolExecutor(at_once) as pool:
        given = []
        for number, (function, arguments) in enumerate(tasks(wanted, only)):
            if 0 < number < at_once:
                time.sleep(wanted.every / at_once)
            given.append(pool.submit(function, *arguments))
        try:
            for each in as_completed(given):
                print(table([each.result()]).splitlines()[-1], file=sys.stderr, flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        return [each.result() for each in given]


def table(found: list[Row]) -> str:
    """Markdown that reads well in a terminal too."""
    heads = ["What", "Faults", "Count", "Without", "With", "Ratio", "Ended the same"]
    cells = [heads, *(row.cells() for row in found)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(prog="python -m bench.chaos")
    parser.add_argument("--seconds", type=int, default=300, help="of each run without faults")
    parser.add_argument("--every", type=int, default=60, help="seconds between two faults")
    parser.add_argument("--lasting", type=int, default=5, help="seconds of a stop")
    parser.add_argument("--at-once", type=int, default=3, help="comparisons side by side")
    parser.add_argument("--only", default="", help="what has this in its name")
    parser.add_argument("--keep-nothing", action="store_true", help="leave docs/faults.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        epochs = int(options.seconds / _PACE)
        wanted = Wanted(Path(folder), epochs, options.every, options.lasting)
        found = rows(wanted, options.only, options.at_once)
    print(table(found))
    if not options.keep_nothing:
        preface = _PREFACE.format(
            machine=machine(), load=os.getloadavg()[2], **vars(options), target=TARGET
        )
        (ROOT / "docs" / "faults.md").write_text(preface + table(found) + "\n")


_PREFACE = """# Faults

Written by `make chaos`: what one fault every {every} s costs a job that takes {seconds} s and more
without faults, on four ranks, with a checkpoint every 2 s (`bench/chaos/train.py`). Every
run meets the schedule of the same seed, drawn by `trainyard chaos`. A kill is SIGKILL for a rank, a
stop is SIGSTOP for {lasting} s, and a slow rank is stopped for half of {lasting} s. The target is a
ratio of at most {target} for every job.

- torchrun and torchx run as they do on one machine: one agent with four ranks, which is the least
  that can be in the way. There a stop holds up the rank alone, with trainyard its whole replica.
- torchx hands `--max_retries` to its scheduler, and the one of this machine makes no use of it.
- Neither has a controller or a server that could be killed; whoever kills the agent ends the job.

Machine: {machine}; load {load:.0f} in the last quarter of an hour.

"""

if __name__ == "__main__":
    main()
