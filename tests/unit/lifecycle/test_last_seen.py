"""An attempt that ended without a word says where its rank stood by the last report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.lifecycle.test_hang_policy import Reporting, job
from trainyard.lifecycle import Observed
from trainyard.lifecycle.hang.rank_reports import RankReport

LINE = "rank 1 stood at train.py:12 in main, at its end"


class Remembering(Reporting):
    """What was reported is remembered, with the memory that a rank had."""

    memory: tuple[tuple[float, int], ...] = ()

    def observed(self) -> Observed:
        seen = super().observed()
        ranks = tuple(replace(each, memory=self.memory) for each in seen.reports.ranks)
        return replace(seen, reports=replace(seen.reports, ranks=ranks))


def ended(code: int, reason: str = "Error", attempt: int = 1, **given: Any) -> dict[str, Any]:
    """The last attempt of a job whose second replica ended so."""
    world = Remembering(job(policy="Never", backoffLimit=0))
    world.running()
    world.say("Waiting", "Waiting", attempt=attempt)
    world.memory = given.pop("memory", ())
    world.exit("1", code, reason=reason, **given).settle()
    found: dict[str, Any] = world.status["attempts"][-1]
    return found


@pytest.mark.parametrize(("code", "reason"), [(137, "OOMKilled"), (137, "Error"), (3, "Error")])
def test_where_the_rank_stood_is_told(code: int, reason: str) -> None:
    assert ended(code, reason)["lastSeen"] == LINE


def test_of_a_replica_that_restarts_alone_too() -> None:
    world = Remembering(job(restartScope="Replica"))
    world.running()
    world.say("Waiting", "Waiting").exit("1", 137, reason="OOMKilled").settle()
    assert LINE in [each.get("lastSeen") for each in world.status["attempts"]]


def test_its_memory_is_told_over_time() -> None:
    memory = ((0.0, 3072), (20.0, 2048), (40.0, 1024), (60.0, 512))
    told = ended(137, "OOMKilled", memory=memory)["lastSeen"]
    assert told == f"{LINE}; its memory was 3,072 MiB (2,048 20s before, 1,024 40s before)"


@pytest.mark.parametrize(("code", "attempt"), [(143, 1), (137, 2)])
def test_nothing_is_told_of_who_was_asked_to_end_or_of_another_attempt(
    code: int, attempt: int
) -> None:
    assert "lastSeen" not in ended(code, attempt=attempt)


@pytest.mark.parametrize("who", ["rank 0", "the launch"])
def test_the_rank_that_a_launcher_blames_is_meant(who: str) -> None:
    told = ended(1, message=f"trainyard: {who} on worker-0 failed with exit code 137 (SIGKILL)")
    assert told["lastSeen"].startswith("rank 0 stood at train.py:12 in main")


@pytest.mark.parametrize("memory", [[1], [[1]], [["x", 2]], [[1, -2]]])
def test_reports_of_memory_may_be_anything(memory: Any) -> None:
    obj = {"kind": "New", "memory": memory}
    with pytest.raises(ValueError, match="observation"):
        RankReport.decode(obj, "worker-0", Reporting(job()).now)
