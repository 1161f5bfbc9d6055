"""A restart in place by the operators of a real cluster, one of which is killed in the midst of it.

The kubelet here runs nothing: what holds the pods is played by the test, over HTTPS.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.cluster.kubelet import running_kubelet
from tests.cluster.plane import free_port
from tests.cluster.test_channel import Object, Pod, endpoint, pod_of
from tests.cluster.yard import Yard, pytorch_job, until
from trainyard.kinds.shared import labels
from trainyard.kube.resources import SERVICES


@dataclass
class Holder:
    """What holds one pod."""

    uid: str
    way: Pod
    attempt: int = 1
    code: int | None = None

    async def ask(self, port: int) -> tuple[int, Object]:
        """Say how the attempt is, and do what the answer says."""
        told: dict[str, Any] = {"uid": self.uid, "attempt": self.attempt, "message": "no luck"}
        told |= {"ended": self.code is not None, "exitCode": self.code or 0, "seconds": 0.1}
        status, answer = await self.way.post(port, {"hold": told})
        if status == 200 and answer["start"] > self.attempt:
            assert self.code is not None, "an attempt starts while another runs"
            self.attempt, self.code = answer["start"], None
        elif status == 200 and answer["wanted"] > self.attempt and self.code is None:
            self.code = 143
        return status, answer


async def holders_of(yard: Yard, job: str) -> list[Holder]:
    """One for each pod."""
    way = await pod_of(yard, job)
    url = urlsplit(way.path)
    own = parse_qs(url.query)["pod"][0]
    found = []
    for pod in await yard.pods(job):
        meta = pod["metadata"]
        path = way.path.replace(f"pod={own}", f"pod={meta['name']}")
        found.append(Holder(meta["uid"], replace(way, path=path)))
    return found


async def test_another_operator_ends_what_one_has_begun(yard: Yard) -> None:
    port = {"name": "reports", "port": 7443}
    service = {"metadata": {"name": "reports"}, "spec": {"ports": [port]}}
    await yard.client.create(SERVICES, service, yard.namespace)
    address = f"--channel-address=reports.{yard.namespace}.svc:7443"
    ports = free_port(), free_port()
    options = [
        (address, f"--channel-port={ports[n]}", f"--channel-endpoint=10.9.9.{n + 1}")
        for n in range(2)
    ]
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(yard.operator(*options[0]))
        await first.leads()
        second = await stack.enter_async_context(yard.operator(*options[1]))
        await until(lambda: second.answer("/readyz"), lambda text: text == "standby")
        kubelet = await stack.enter_async_context(running_kubelet(yard.client, yard.namespace))
        job = pytorch_job("digits", runPolicy={"restartMode": "InPlace", "backoffLimit": 2})
        template = job["spec"]["replicaSpecs"][0]["template"]
        template["spec"]["terminationGracePeriodSeconds"] = 600  # so long may it take
        await yard.kubectl("apply", "-f", "-", stdin=json.dumps(job))
        await yard.reaches("digits", "Running")
        zero, one = holders = await holders_of(yard, "digits")
        for each in holders:
            assert await each.ask(ports[0]) == (200, {"wanted": 1, "start": 1})

        one.code = 3
        await one.ask(ports[0])
        await until(lambda: yard.job("digits"), lambda job: job["status"].get("backoffCount") == 1)
        await until(lambda: zero.ask(ports[0]), lambda answer: answer[1].get("wanted") == 2)
        assert zero.code == 143
        await first.kill()
        await second.leads()
        await until(lambda: endpoint(yard), lambda found: found == "10.9.9.2")

        async def ask_both() -> set[int]:
            await asyncio.gather(*(each.ask(ports[1]) for each in holders))
            return {each.attempt for each in holders}

        await until(ask_both, lambda attempts: attempts == {2})
        pods = await yard.pods("digits")
        assert {pod["metadata"]["uid"] for pod in pods} == {each.uid for each in holders}
        notes = [pod["metadata"]["annotations"][labels.ATTEMPT] for pod in pods]
        assert notes == ["2", "2"]
        await kubelet.end_all("digits", 0)
        ended = await yard.reaches("digits", "Succeeded")
        assert ended["status"]["backoffCount"] == 1
        assert [task["restartCount"] for task in ended["status"]["tasks"]] == [2]
        before, last = ended["status"]["attempts"]
        assert (before["exitCode"], before["reason"]) == (3, "Error")
        assert "exitCode" not in last
