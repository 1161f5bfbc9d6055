"""What it costs a rank to be observed: its start, its steps, and a share of a core."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.observer_folder import lay_out

from trainyard.payloads.observer.rank_observer import VARIABLE

Row = tuple[str, float | None, str, float | None]
_STARTS = 40
_TOLD = "attempt=1,after=300,files=/nowhere,url=https://127.0.0.1:9/nobody?pod=worker-0"
_STEPS = """\
import json, os, statistics, sys, time, zipimport
import torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
program = sys.modules["sitecustomize"].program
loading = []
for _ in range(9):
    for name in list(sys.modules):
        if name.startswith(("trainyard_observer", "encodings.idna", "stringprep")):
            del sys.modules[name]
    zipimport._zip_directory_cache.clear()
    before = time.process_time()
    observer = program("observer")
    loading.append(1000 * (time.process_time() - before))
settings = observer.Settings(sys.argv[1])
teller = observer.telling.Teller(settings.url, settings.files)
keeper = observer.Keeper(observer.Observer(settings, teller))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256))
batch = torch.ones(64, 256)

def rate(seconds=2.0):
    begun, steps = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        model(batch).sum().backward()
        steps += 1
    return steps / (time.perf_counter() - begun)

def seconds_of_thread():
    stat = open("/proc/self/task/%d/schedstat" % keeper.thread.native_id).read()
    return int(stat.split()[0]) / 1e9

rate(1.0)
ratios = []
for _ in range(15):
    without = rate()
    keeper.begin()
    ratios.append(rate() / without)
    keeper.end(5)
keeper.begin()
rate()
spent, watched = seconds_of_thread(), 100.0  # what costs much comes once in 40 s
rate(watched)
share = (seconds_of_thread() - spent) / watched
found = [statistics.median(loading), statistics.median(ratios), share * 100]
json.dump(found, sys.stdout)
"""


def measure() -> list[Row]:
    """Of a rank, with torch and without; steps with and without alternate in one process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lay_out(folder)
        start = _start(folder)
        words = [sys.executable, "-c", _STEPS, _TOLD]
        env = {**os.environ, "PYTHONPATH": name, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    rows: list[Row] = [("Python: observed, more at its start", start, "ms", 10.0)]
    if done.returncode:
        return [*rows, ("rank: observed (torch)", None, "", None)]
    loading, ratio, share = json.loads(done.stdout)
    return [
        *rows,
        ("rank: observed, more at its start", start + loading, "ms", 10.0),
        ("rank: steps, observed", ratio * 100, "% of it", 99.0),
        ("rank: its observer, of a core", share, "%", 0.2),
    ]


def _start(folder: Path) -> float:
    """Processor time that the hook adds to a Python; nothing that was compiled is kept in a pod."""
    without, observed = [], []
    for _ in range(_STARTS):
        without.append(_spent({}))
        observed.append(_spent({"PYTHONPATH": str(folder), VARIABLE: _TOLD}))
    return statistics.median(observed) - statistics.median(without)


def _spent(variables: dict[str, str]) -> float:
    """Milliseconds of processor time of a Python that does nothing."""
    others = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {**others, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    subprocess.run([sys.executable, "-c", "pass"], env=env, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
