"""What containers use, measured of real processes and of the files that the kernel shows."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainyard.embedded.node.containers import resource_usage
from trainyard.embedded.node.containers.resource_usage import RunningContainer, UsageMeter

MIB = 1 << 20
# A first process of ours above a program, which has a child that works and one that has ended.
WORK = """
import os, sys, time
if os.fork():
    os.wait()  # as the first process, which holds memory that is not the container's
    sys.exit()
held = b"x" * (40 << 20)
if not os.fork():
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    os._exit(0)
os.wait()
print("ready", flush=True)
if sys.stdin.readline():
    while True:
        pass
"""


@pytest.fixture
def first() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", WORK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.communicate()


async def test_cpu_time_and_memory_of_all_below_the_first_process(
    first: subprocess.Popen[str],
) -> None:
    box = RunningContainer("uid", "main", first.pid)
    meter = UsageMeter()
    idle = (await meter.measure([box])).containers["uid"]["main"]
    assert idle.cpu < 0.05
    assert 40 * MIB <= idle.memory < 80 * MIB
    assert idle.gpu is None
    assert first.stdin is not None
    first.stdin.write("go\n")
    first.stdin.flush()
    while True:  # as soon as the machine gives it time
        await asyncio.sleep(1)
        measured = await meter.measure([box])
        if measured.containers["uid"]["main"].cpu > 0.05:
            break
    assert measured.node.cpu > 0
    assert measured.node.memory > 40 * MIB


async def test_time_of_children_that_have_ended_counts(first: subprocess.Popen[str]) -> None:
    reading = resource_usage._read([RunningContainer("uid", "main", first.pid)])
    assert reading.seconds["uid", "main", first.pid] >= 0.25, "of 0.3, counted in ticks of 10 ms"


async def test_a_container_that_has_ended_is_left_out(first: subprocess.Popen[str]) -> None:
    os.killpg(first.pid, 9)
    first.wait()
    assert (
        await UsageMeter().measure([RunningContainer("uid", "main", first.pid)])
    ).containers == {}


async def test_many_who_ask_at_once_cost_one_reading(
    first: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = []
    read = resource_usage._read
    monkeypatch.setattr(resource_usage, "_read", lambda boxes: readings.append(1) or read(boxes))
    monkeypatch.setattr(resource_usage, "_FRESH_SECONDS", 1000.0)
    meter, box = UsageMeter(), RunningContainer("uid", "main", first.pid)
    found = await asyncio.gather(*(meter.measure([box]) for _ in range(20)))
    assert len(readings) == 2  # before and after
    assert all(each is found[0] for each in found)


async def test_nothing_is_read_before_somebody_asks() -> None:
    meter = UsageMeter()
    await asyncio.sleep(0.2)
    assert meter._last_reading is None


VERSION_2 = {
    "cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
    "memory.current": str(100 * MIB),
    "memory.stat": f"anon 5\ninactive_file {30 * MIB}\n",
}
VERSION_1 = {
    "cpuacct.usage": "2500000000",
    "memory.usage_in_bytes": str(100 * MIB),
    "memory.stat": f"inactive_file 1\ntotal_inactive_file {30 * MIB}\n",
}


@pytest.mark.parametrize("files", [VERSION_2, VERSION_1], ids=["version 2", "version 1"])
def test_control_groups_that_count_both_are_believed(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert resource_usage._cgroup_usage([str(tmp_path)]) == (2.5, 70 * MIB)


@pytest.mark.parametrize("missing", ["cpu.stat", "memory.current"])
def test_those_that_count_only_one_are_not(tmp_path: Path, missing: str) -> None:
    for name, text in VERSION_2.items():
        if name != missing:
            (tmp_path / name).write_text(text)
    assert resource_usage._cgroup_usage([str(tmp_path), "/nonexistent"]) is None


def test_gpus_are_told_by_their_device_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the driver's own tool prints, in another order than that of the device nodes."""
    tool = tmp_path / "nvidia-smi"
    lines = "00000000:AF:00.0, 75, 1024\n00000000:3B:00.0, [N/A], 10\n00000000:5E:00.0, 50, 512"
    tool.write_text(f"#!/bin/sh\ncat <<END\n{lines}\nEND\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert resource_usage._gpus([(), ()]) == {}  # nobody has one
    found = resource_usage._gpus([(0,), (2,)])
    assert found == {0: (0.75, 1024 * MIB), 2: (0.5, 512 * MIB)}
    assert resource_usage._gpu_usage((0, 2), found) == (1.25, 1536 * MIB)
    assert resource_usage._gpu_usage((1,), found) == (None, None)
    driver = tmp_path / "gpus" / "0000:af:00.0"
    driver.mkdir(parents=True)
    (driver / "information").write_text("Model: A100\nDevice Minor: \t 3\n")
    assert resource_usage._minor("00000000:AF:00.0", 0, tmp_path / "gpus") == 3


@pytest.mark.parametrize("script", ["exit 9", "sleep 30"])
def test_a_tool_that_fails_or_hangs_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(resource_usage, "_GPU_SECONDS", 0.2)
    assert resource_usage._gpus([(0,)]) == {}
