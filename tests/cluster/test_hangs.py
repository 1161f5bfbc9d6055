"""Ranks that hang in the pods of a real cluster: what its operators find, keep and do."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path

from tests.cluster.real_node import channel, commands, node
from tests.cluster.test_commands import trainyard
from tests.cluster.yard import Object, Yard, pytorch_job, until
from trainyard.kinds.shared import labels
from trainyard.kube.client import Selection
from trainyard.kube.resources import CONFIG_MAPS, EVENTS

SCRIPT = Path(__file__).parent.parent / "embedded" / "hanging.py"
AFTER_SECONDS = 8
LONG_SECONDS = 600.0
CULPRIT = "worker-1 (rank 1) has not entered all_reduce #21; it sleeps in wait_for_peer"


async def apply(yard: Yard, name: str, action: str, script: str) -> None:
    """A job of two ranks with that answer to a hang."""
    hang = {"afterSeconds": AFTER_SECONDS, "action": action}
    made = pytorch_job(name, runPolicy={"hang": hang, "backoffLimit": 1}, restart_policy="Never")
    container = made["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    container["command"] = ["sh", "-c", script]
    await yard.kubectl("apply", "-f", "-", stdin=json.dumps(made))


async def hung(yard: Yard, name: str) -> Object:
    """Its condition."""
    conditions = ((await yard.job(name)).get("status") or {}).get("conditions") or ()
    found: Object = next((each for each in conditions if each["type"] == "Hung"), {})
    return found


async def evidence(yard: Yard, name: str) -> list[Object]:
    """What was kept of its hangs, by attempt."""
    uid = (await yard.job(name))["metadata"]["uid"]
    listed, _ = await yard.client.list(
        CONFIG_MAPS, yard.namespace, Selection(labels=f"{labels.JOB_UID}={uid}")
    )
    found = [each for each in listed if "stacks" in (each.get("data") or {})]
    return sorted(found, key=lambda each: str(each["metadata"]["name"]))


async def told(yard: Yard, name: str) -> int:
    """How many events there were of its hang."""
    events, _ = await yard.client.list(EVENTS, yard.namespace)
    mine = [each for each in events if each["involvedObject"]["name"] == name]
    return sum(each.get("count") or 1 for each in mine if each["reason"] == "Hung")


async def test_a_hang_is_told_kept_and_acted_upon_by_whichever_operator_leads(
    yard: Yard, tmp_path: Path
) -> None:
    (folder := tmp_path / "job").mkdir()
    hangs = f"exec python3 {SCRIPT} skipped"
    mark = f"{folder}/again-$RANK"
    async with AsyncExitStack() as stack:
        agent = await stack.enter_async_context(node(yard, tmp_path / "node"))
        await stack.enter_async_context(commands(yard, agent))
        options = await stack.enter_async_context(channel(yard, agent, 2))
        first = await stack.enter_async_context(yard.operator(*options[0]))
        await first.leads()
        second = await stack.enter_async_context(yard.operator(*options[1]))
        await until(lambda: second.answer("/readyz"), lambda text: text == "standby")

        await apply(yard, "stays", "Explain", hangs)
        condition = await until(
            lambda: hung(yard, "stays"), lambda found: found.get("status") == "True", LONG_SECONDS
        )
        assert condition["reason"] == "Hung"
        assert condition["message"].startswith(CULPRIT)
        stacks = await trainyard(yard, "stacks", "stays")
        assert "worker-1 (rank 1): idle\n    wait_for_peer (" in stacks
        assert "worker-0 (rank 0): waiting\n    all_reduce (" in stacks

        await first.kill()
        await second.leads()
        # What the second acts on it has heard itself.
        await apply(yard, "ends", "Fail", hangs)
        script = f"test -e {mark} && exec true; touch {mark}; {hangs}"
        await apply(yard, "again", "Restart", script)
        ended = await yard.reaches("ends", "Failed", seconds=LONG_SECONDS)
        failed = next(each for each in ended["status"]["conditions"] if each["type"] == "Failed")
        assert failed["reason"] == "Hung"
        assert CULPRIT in failed["message"]
        kept = await trainyard(yard, "stacks", "ends")
        assert kept.startswith(f"when it hung: {CULPRIT}")

        ended = await yard.reaches("again", "Succeeded", seconds=LONG_SECONDS)
        assert ended["status"]["backoffCount"] == 1
        assert ended["status"]["attempts"][0]["reason"] == "Hung"
        assert ended["status"]["goodput"]["hung"] >= AFTER_SECONDS
        (found,) = await evidence(yard, "again")
        assert "worker-1 (rank 1): idle\n    wait_for_peer (" in found["data"]["stacks"]

        # The one that hung all the while is still said to, once, with the evidence of then.
        assert await hung(yard, "stays") == condition
        (found,) = await evidence(yard, "stays")
        assert found["data"]["finding"] == condition["message"]
        assert await told(yard, "stays") == 1
