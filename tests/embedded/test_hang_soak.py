"""Forty jobs that hang and two hundred that are only slow, of all kinds, plain and launched.

How soon a hang is told is counted from when the last rank of the job says that it goes into its
case, by the machine's one clock, to when the API shows it. TRAINYARD_SOAK_SLOW is how many of the
slow ones to run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from tests.embedded.command_line import Object, until
from tests.embedded.lifecycle_yard import (
    ENDS,
    Yard,
    generic,
    manifest,
    pytorch,
    replicas,
    template,
    yard,
)
from tests.embedded.test_hangs import (
    AFTER_SECONDS,
    HEALTHY,
    LONG_SECONDS,
    NOBODYS,
    SCRIPT,
    SOAK,
    STOPPED,
    evidence,
    hung,
    name_of,
    named,
    policy,
    serving,
)

pytestmark = pytest.mark.skipif(not SOAK, reason="TRAINYARD_SOAK=1 runs it")
AT_ONCE = 3
LATEST_SECONDS = AFTER_SECONDS + 15
SHARE_NAMED = 0.9
SLOW_RUNS = int(os.environ.get("TRAINYARD_SOAK_SLOW", "200"))
BURNERS, STARVED_SECONDS = 3, 3600.0
SERVES = "serves"
BY_KIND = {
    "plain": "stopped skipped mismatched reordered dataloader fifo lock wrong_world_size",
    "torchrun": "stopped mismatched dataloader endless_check store_key ddp fsdp sends",
    "generic": "stopped skipped reordered fifo endless_loop wrong_world_size store_wait "
    "both_receive",
    "deepspeed": "stopped mismatched dataloader lock endless_loop store_key fsdp sends",
    "colossalai": "skipped reordered fifo two_locks store_wait ddp subgroup barrier",
}


class Row(NamedTuple):
    """One job."""

    kind: str
    case: str
    ranks: int
    number: int = 0
    starved: bool = False

    @property
    def name(self) -> str:
        starved = "s" if self.starved else ""  # there is little room in a pod's name
        return f"{self.kind}-{name_of(self.case)}-{self.ranks}-{self.number}{starved}"

    def manifest(self) -> Object:
        if self.case == SERVES:
            body = serving()
            body["metadata"]["name"] = self.name
            return body
        return MAKERS[self.kind](self)

    @property
    def env(self) -> Mapping[str, str]:
        slow = {"SLOW": "60"} if self.case == "checkpoint" else {}
        return {**slow, "STARVED": "1"} if self.starved else slow


def _plain(row: Row) -> Object:
    pods = template(["python", str(SCRIPT), row.case], env=dict(row.env))
    return pytorch(row.name, pods, replicas=row.ranks, runPolicy=policy())


def _torchrun(row: Row) -> Object:
    pods = template([str(SCRIPT), row.case], env=dict(row.env))
    config = {"enabled": True, "procPerNode": str(row.ranks)}
    return pytorch(row.name, pods, torchrunConfig=config, runPolicy=policy())


def _generic(row: Row) -> Object:
    ranked = {
        "RANK": "$(rank)",
        "WORLD_SIZE": "$(replicas[worker])",
        "MASTER_ADDR": "$(service.worker[0].host)",
        "MASTER_PORT": "29511",
    }
    pods = template(["python", str(SCRIPT), row.case], env={**ranked, **row.env})
    service = {"ports": [{"name": "store", "port": 29511}]}
    ranks = replicas("worker", row.ranks, pods)
    return generic(row.name, ranks, service=service, runPolicy=policy())


def _launched_pods(row: Row) -> Object:
    pods = template(["python"], env=dict(row.env))
    (main,) = pods["spec"]["containers"]
    del main["command"]
    main["name"] = "worker"
    return pods


def _deepspeed(row: Row) -> Object:
    words = [str(SCRIPT), row.case]
    config = {"slotsPerWorker": row.ranks // 2, "run": {"python": words}}
    spec = {"config": config, "worker": {"replicas": 2, "template": _launched_pods(row)}}
    return manifest("DeepSpeedJob", row.name, {**spec, "runPolicy": policy()})


def _colossalai(row: Row) -> Object:
    worker = {"type": "worker", "replicas": 2, "template": _launched_pods(row)}
    config = {"procPerWorker": row.ranks // 2, "script": [str(SCRIPT), row.case]}
    spec = {"torchConfig": config, "replicaSpecs": [worker], "runPolicy": policy()}
    return manifest("ColossalAIJob", row.name, spec)


MAKERS = {
    "plain": _plain,
    "torchrun": _torchrun,
    "generic": _generic,
    "deepspeed": _deepspeed,
    "colossalai": _colossalai,
}
HUNG = [
    Row(kind, case, 4 if (number + turn) % 3 == 2 else 2)
    for turn, (kind, cases) in enumerate(BY_KIND.items())
    for number, case in enumerate(cases.split())
]
WELL = [*HEALTHY, SERVES]
SLOW = [
    Row(
        "generic" if case == SERVES else [*MAKERS][number % len(MAKERS)],
        case,
        4 if number % 7 == 6 else 2,
        number,
        starved=(number + number // len(WELL)) % 2 == 1,
    )
    for number, case in enumerate((WELL * SLOW_RUNS)[:SLOW_RUNS])
]


class Outcome(NamedTuple):
    """What was told of a job: when, since its ranks went into their case, and what."""

    seconds: float
    told: Object
    is_named: bool


def is_named(row: Row, text: str) -> bool:
    """Whether the rank and the line are those that are to blame."""
    head = text if row.case == "mismatched" else text.partition(";")[0]
    is_rank = row.case in NOBODYS or "(rank 1)" in head
    if row.case in STOPPED:
        return is_rank and "is stopped by a signal" in head
    return is_rank and "# HANG" in named(text)


def hangs(made: Yard, row: Row) -> Outcome:
    """Run it until it is said to hang."""
    made.submit(row.manifest())
    try:
        until(lambda: hung(made, row.name).get("status") == "True", row.name, LONG_SECONDS)
        seen = time.time()
        told = hung(made, row.name)
        warm = re.findall(r"warm ([\d.]+)", made.run("logs", row.name))
        return Outcome(seen - max(map(float, warm)), told, is_named(row, told["message"]))
    finally:
        made.run("delete", row.name, "--yes", code=None)


def told_of(made: Yard, name: str, reason: str) -> list[str]:
    """The texts of a job's events."""
    _, listed = made.api.request("GET", "/api/v1/namespaces/default/events")
    mine = [e for e in listed["items"] if e["involvedObject"]["name"] == name]
    return [str(e["message"]) for e in mine if e["reason"] == reason]


def is_slow(made: Yard, row: Row) -> str:
    """Run it to its end, or for long if it has none; what it is wrongly said to do."""
    made.submit(row.manifest())
    try:
        if row.case == SERVES:
            made.await_phase(row.name, "Running", seconds=STARVED_SECONDS)
            time.sleep(4 * AFTER_SECONDS)  # nothing is to come of it, however long it waits
        else:
            made.await_phase(row.name, *ENDS, seconds=STARVED_SECONDS)
        if told := told_of(made, row.name, "Hung"):
            return "\n".join((*told, evidence(made, row.name)))
        return made.story(row.name) if made.phase(row.name) == "Failed" else ""
    finally:
        made.run("delete", row.name, "--yes", code=None)


@contextmanager
def burning(count: int) -> Iterator[None]:
    """With so many processes that want the core on which the starved ones run."""
    program = "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"
    words = [sys.executable, "-IS", "-c", program]
    # The kernel shares a core out among sessions (sched_autogroup), and each rank has its own.
    started = [subprocess.Popen(words, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


@contextmanager
def at_once() -> Iterator[ThreadPoolExecutor]:
    """Threads for the block; those that still run when it fails or is interrupted end with the
    yard, and no other begins."""
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with yard(tmp_path_factory.mktemp("soak")) as found:
        yield found


def test_hangs_are_told_in_time_and_nine_in_ten_with_the_rank_and_the_line(made: Yard) -> None:
    with at_once() as pool:
        running: dict[Row, Future[Outcome]] = {row: pool.submit(hangs, made, row) for row in HUNG}
        for row, outcome in running.items():
            if (error := outcome.exception()) is not None:
                print(f"not told: {row.name}: {error}", flush=True)
                continue
            seconds, told, right = outcome.result()
            print(f"{seconds:5.1f} {right!s:5} {row.name}: {told['message']}", flush=True)
    assert not [row.name for row, found in running.items() if found.exception()]
    found = {row.name: future.result() for row, future in running.items()}
    right = [name for name, outcome in found.items() if outcome.is_named]
    assert len(right) >= SHARE_NAMED * len(HUNG), sorted(found.keys() - set(right))
    late = {name: outcome.seconds for name, outcome in found.items()}
    assert not {name: took for name, took in late.items() if took > LATEST_SECONDS}


def test_slow_jobs_are_never_said_to_hang(made: Yard) -> None:
    wrong = []
    with burning(BURNERS), at_once() as pool:
        running = {pool.submit(is_slow, made, row): row.name for row in SLOW}
        for number, outcome in enumerate(as_completed(running), start=1):
            name, told = running[outcome], outcome.exception() or outcome.result()
            wrong += [name] if told else []
            load = os.getloadavg()[0]
            print(f"{number}, load {load:.0f}: {name}: {told or 'well'}", flush=True)
    assert not wrong
