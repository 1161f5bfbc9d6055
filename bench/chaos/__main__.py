"""A job of each kind with a fault a minute, beside bare torchrun and torchx: `make chaos`.

All train the same (`train.py`), with and without faults, and meet the same schedule, one row after
the other. Each is kept in docs/faults.md as soon as it is there, unless `--keep-nothing`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from bench.__main__ import machine
from bench.chaos.bare import Bare
from bench.chaos.jobs import PACE, RANKS, RETRIES, TRAIN, Trained, jobs
from bench.chaos.page import PAGE, Row, keep, table
from bench.commands import TRAINYARD
from trainyard.api.chaos.chaos_schedule import Fault, planned

_TORCHX = PAGE.parent.parent / ".cache" / "torchx" / "bin" / "torchx"
_TORCHRUN = Path(sys.executable).with_name("torchrun")
SEED = 1
TARGET = 1.25
SHORT_SECONDS = 150
SAME = (Fault.KILL, Fault.STOP, Fault.SLOW)
"""What each of the three can meet."""
OURS = (Fault.CONTROLLER, Fault.SERVER)
_END_SECONDS = 120.0
"""For what ends after its limit."""


class Wanted(NamedTuple):
    """How it is to be compared."""

    folder: Path
    seconds: int
    """Of a run without faults, at least."""
    every: int
    """Seconds between two faults."""
    lasting: int
    """Seconds."""

    @property
    def epochs(self) -> int:
        return max(int(self.seconds / PACE), 1)

    @property
    def limit(self) -> int:
        """Seconds after which a run is given up."""
        return 3 * self.seconds + 120


def ours(name: str, trained: Trained, faults: Sequence[Fault], wanted: Wanted) -> Row:
    """A job by `trainyard chaos`."""
    row = Row(name, trained.what, ", ".join(faults), wanted.every, "")
    file = wanted.folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(trained.job))
    accuracy = "out:0/accuracy" if trained.job["kind"] == "GenericJob" else "out:accuracy"
    words = ["-f", str(file), "--faults", ",".join(faults), "--seed", str(SEED), "-o", "json"]
    words += [f"--every={wanted.every}s", f"--lasting={wanted.lasting}s", f"--result={accuracy}"]
    words += [f"--timeout={wanted.limit}s"]
    code, text, last = _told([*TRAINYARD, "chaos", *words], 2 * wanted.limit + _END_SECONDS)
    if code not in (0, 1) or not text:
        return row._replace(end=f"not measured: {last or f'ended with {code}'}")
    report = json.loads(text)
    end = "yes" if report["same"] else f"no, {'; '.join(report['differences'])}"
    without, under = (report[each]["seconds"] for each in ("baseline", "under_faults"))
    return row._replace(end=end, count=len(report["struck"]), without=without, under=under)


def _told(words: list[str], limit: float) -> tuple[int, str, str]:
    """Exit code and output of a command that tells how it goes, and the last that it told."""
    last = ""
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(words, stdout=output, stderr=subprocess.PIPE, text=True) as process,
    ):
        assert process.stderr is not None
        end = threading.Timer(limit, process.kill)
        end.start()
        try:
            for line in process.stderr:
                print(line, end="", file=sys.stderr, flush=True)
                last = line.strip() or last
            process.wait()
        finally:
            end.cancel()
            process.kill()  # its clusters end by themselves
        output.seek(0)
        return process.returncode, output.read(), last


def bare(name: str, what: str, command: list[str], wanted: Wanted) -> Row:
    """A command without us."""
    row = Row(name, what, ", ".join(SAME), wanted.every, "")
    words = [*command, "--epochs", str(wanted.epochs), "--pace", str(PACE)]
    folders = [wanted.folder / f"{name}-{run}" for run in ("without", "under")]
    plans = (iter(()), planned(SEED, SAME, wanted.every))
    for folder, plan in zip(folders, plans, strict=True):
        run = Bare([*words, "--folder", str(folder)], folder, RANKS)
        ended = run.run(plan, wanted.lasting, wanted.limit)
        print(f"  {folder.name}: {ended.seconds:.1f} s, {ended.code}", file=sys.stderr, flush=True)
        how = f"ended with {ended.code}"
        if ended.code is None:
            how = f"not ended after {ended.seconds:.0f} s"
        if ended.code != 0:
            print((folder / "log").read_text(errors="replace")[-2000:], file=sys.stderr)
        if folder is folders[0]:
            if ended.code != 0:
                return row._replace(end=f"not measured: {how} without faults")
            row = row._replace(without=ended.seconds)
    before, after = [(folder / "accuracy") for folder in folders]
    row = row._replace(count=ended.faults, under=ended.seconds)
    if not after.exists() or ended.code != 0:
        return row._replace(end=f"no, {how}")
    return row._replace(end="yes" if before.read_text() == after.read_text() else "no, by accuracy")


def rows(wanted: Wanted) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Each row, by its name."""
    trained = {each.name: each for each in jobs(wanted.epochs)}
    for name, job in trained.items():
        yield name, lambda name=name, job=job: ours(name, job, SAME, wanted)
    for name, of, faults in (
        ("disk", "job-plain", (Fault.DISK,)),
        ("control", "job-torchrun", OURS),
    ):
        yield (
            name,
            lambda name=name, of=of, faults=faults: ours(name, trained[of], faults, wanted),
        )
    here = [str(_TORCHRUN), "--standalone", "--nproc-per-node", str(RANKS)]
    torchrun = [*here, f"--max-restarts={RETRIES}", str(TRAIN)]
    yield "torchrun", lambda: bare("torchrun", "torchrun --max-restarts", torchrun, wanted)
    ddp = ["run", "-s", "local_cwd", "dist.ddp", "-j", f"1x{RANKS}", "--max_retries"]
    torchx = [str(_TORCHX), *ddp, str(RETRIES), "--script", str(TRAIN), "--"]
    yield "torchx", lambda: bare("torchx", "torchx run --max_retries", torchx, wanted)


def main() -> None:
    """Measure, print, and keep."""
    names = [name for name, _ in rows(Wanted(Path(), 1, 1, 1))]
    options = _options(names)
    if "torchx" in options.rows and not _TORCHX.exists():
        sys.exit("torchx is not there: `make chaos` installs it, --rows leaves it out")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what runs then is ended
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    where = machine().rpartition(",")[0]
    preface = _PREFACE.format(target=TARGET, lasting=options.lasting, machine=where)
    found = []
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        wanted = Wanted(Path(folder), options.seconds, options.every, options.lasting)
        for name, measure in rows(wanted):
            if name not in options.rows:
                continue
            print(f"{name}: at most {2 * wanted.limit:.0f} s", file=sys.stderr, flush=True)
            row = measure()
            if options.seconds == SHORT_SECONDS:
                row = row._replace(end=f"{row.end}, half as long")
            found.append(row.cells())
            if not options.keep_nothing:
                keep(found[-1], names, preface)
            print(table(found[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    print(table(found))


def _options(names: list[str]) -> argparse.Namespace:
    def chosen(text: str) -> list[str]:
        found = [name for name in text.split(",") if name]
        for name in found:
            if name not in names:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(names)}")
        return found or names

    parser = argparse.ArgumentParser(prog="python -m bench.chaos")
    parser.add_argument("--rows", type=chosen, default=names, help=f"some of {','.join(names)}")
    parser.add_argument("--seconds", type=int, default=300, help="of each run without faults")
    parser.add_argument(
        "--short",
        action="store_const",
        dest="seconds",
        const=SHORT_SECONDS,
        help=f"--seconds {SHORT_SECONDS}: five minutes for a row",
    )
    parser.add_argument("--every", type=int, default=60, help="seconds between two faults")
    parser.add_argument("--lasting", type=int, default=5, help="seconds of a stop")
    parser.add_argument("--keep-nothing", action="store_true", help="leave docs/faults.md")
    return parser.parse_args()


_PREFACE = """# Faults

What faults cost a job of four ranks with a checkpoint every 2 s (`bench/chaos/train.py`). The table
is written by `make chaos`, row by row, and what stands below it by hand. `make chaos
ROWS=inplace-preload,torchrun` measures these alone, and `SHORT=1` half as long. Every run meets the
schedule of the same seed, drawn by `trainyard chaos`. A kill is SIGKILL for a rank, a stop is
SIGSTOP for {lasting} s, a slow rank is stopped for half of {lasting} s, and a full disk is full for
{lasting} s. The target is a ratio of at most {target}. Load is the load average of the machine over
the last five minutes of the row, with what was measured.

Machine: {machine}.

"""

if __name__ == "__main__":
    main()
