"""A rank that is late again and again, in the pods of a real cluster.

What is said is held against what the ranks wrote down, as on an embedded cluster: where others use
the machine, a rank that nobody slowed down may well be late.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.cluster.real_node import reporting
from tests.cluster.test_commands import trainyard
from tests.cluster.yard import Object, Yard, pytorch_job, until
from tests.embedded.late_ranks import SCRIPT, Ranks, slowed
from trainyard.embedded.chaos_faults.target_processes import process_environment
from trainyard.kube.resources import EVENTS

JOB = "late"
SLOWED, MUCH = 1, 1.5
"""A rank, and by how much longer than it needs it takes."""
LONG_SECONDS = 900.0


def process_of(folder: Path, rank: int) -> int:
    """Of a rank that trains in that folder."""
    wanted = {str(SCRIPT).encode(), str(folder).encode()}
    [found] = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit()
        and wanted <= set(_command(entry))
        and process_environment(int(entry.name)).get("RANK") == str(rank)
    ]
    return found


def _command(entry: Path) -> list[bytes]:
    try:
        return (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


async def named(yard: Yard) -> list[int]:
    """The ranks that the status names."""
    status = (await yard.job(JOB)).get("status") or {}
    return [each["rank"] for each in status.get("stragglers") or ()]


async def told(yard: Yard) -> list[str]:
    """What events say of late ranks."""
    events, _ = await yard.client.list(EVENTS, yard.namespace)
    return [each["message"] for each in events if each["reason"] == "Straggler"]


async def cadence(yard: Yard) -> Object:
    """What is told of the collectives."""
    progress = ((await yard.job(JOB)).get("status") or {}).get("progress") or {}
    found: Object = progress.get("collectives") or {}
    return found


async def test_a_late_rank_is_named_until_it_keeps_up(yard: Yard, tmp_path: Path) -> None:
    ranks = Ranks(tmp_path / "job")
    made = pytorch_job(JOB, runPolicy={"observe": True})
    container = made["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    container["command"] = ["python3", str(SCRIPT), str(ranks.folder), "even"]

    async def steps() -> int:
        return ranks.steps

    async with reporting(yard, tmp_path / "node"):
        await yard.kubectl("apply", "-f", "-", stdin=json.dumps(made))
        await until(steps, lambda count: count >= 2, LONG_SECONDS)
        with slowed(process_of(ranks.folder, SLOWED), MUCH):
            found = await until(lambda: named(yard), lambda ranks: SLOWED in ranks, LONG_SECONDS)
            who = f"worker-{SLOWED} (rank {SLOWED})"
            for command, text in (
                ("show", f"Late:         {who}, for"),
                ("explain", f"{who} is late at most collectives"),
            ):
                await until(
                    lambda command=command: trainyard(yard, command, JOB),
                    lambda printed, text=text: text in printed,
                    LONG_SECONDS,
                )
            await until(lambda: told(yard), lambda texts: any(t.startswith(who) for t in texts))
        for rank in found:
            assert ranks.was_late(rank), ranks.lateness(rank)
        await until(lambda: named(yard), lambda ranks: SLOWED not in ranks, LONG_SECONDS)

        # The script tells no steps: how fast it gets on is told by its collectives.
        counted = await until(
            lambda: cadence(yard), lambda each: "periodSeconds" in each, LONG_SECONDS
        )
        assert 16 <= counted["count"] <= len(ranks.times(0)) + 2
        assert counted["periodCount"] == 1
        ranks.let_end()
        await yard.reaches(JOB, "Succeeded", seconds=LONG_SECONDS)
