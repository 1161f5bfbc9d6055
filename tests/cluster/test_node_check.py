"""Nodes that are checked before the start, by the operators of a real cluster, one of which is
killed in the midst of it.

The kubelet here runs nothing: what tests the nodes is played by the test, over HTTPS.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

from tests.cluster.kubelet import running_kubelet
from tests.cluster.plane import free_port
from tests.cluster.test_channel import Object, endpoint
from tests.cluster.test_in_place import holders_of
from tests.cluster.yard import Yard, pytorch_job, until
from trainyard.kube.resources import SERVICES


async def test_another_operator_says_what_became_of_a_check(yard: Yard) -> None:
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
        job = pytorch_job("digits", runPolicy={"nodeCheck": {"enabled": True}})
        await yard.kubectl("apply", "-f", "-", stdin=json.dumps(job))
        await yard.reaches("digits", "Running")
        pods = await holders_of(yard, "digits")
        told: list[dict[str, Any]] = [
            {"uid": pod.uid, "attempt": 1, "stage": "ready", "host": f"h{n}", "port": 7}
            for n, pod in enumerate(pods)
        ]
        for each, seconds in zip(told, (0.1, 0.9), strict=True):
            each["seconds"] = seconds

        async def ask(port: int) -> list[Object]:
            asked = (p.way.post(port, {"nodeCheck": t}) for p, t in zip(pods, told, strict=True))
            return [answer for _, answer in await asyncio.gather(*asked)]

        def say(word: str) -> Any:
            return lambda answers: all(each.get("say") == word for each in answers)

        answers = await until(lambda: ask(ports[0]), say("check"))
        assert len({each["run"] for each in answers}) == 1
        assert [pair["rank"] for each in answers for pair in each["pairs"]] == [0, 1]
        await first.kill()
        await second.leads()
        await until(lambda: endpoint(yard), lambda found: found == "10.9.9.2")
        for each, answer in zip(told, answers, strict=True):
            pairs = [{"replica": answer["pairs"][0]["replica"], "seconds": 0.1, "error": ""}]
            each |= {"stage": "done", "run": answer["run"], "pairs": pairs}
        await until(lambda: ask(ports[1]), say("start"))
        found = (await yard.job("digits"))["status"]["nodeCheck"]
        assert found["state"] == "BadNodes"
        assert [each["replica"] for each in found["badNodes"]] == [
            answers[0]["pairs"][0]["replica"]
        ]
        await kubelet.end_all("digits", 0)
        await yard.reaches("digits", "Succeeded")
