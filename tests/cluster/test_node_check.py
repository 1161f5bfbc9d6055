"""Nodes that are checked before the start, by the operators of a real cluster, one of which is
killed in the midst of it.

The kubelet here runs nothing: what tests the nodes is played by the test, over HTTPS.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

from tests.cluster.kubelet import NODE, running_kubelet
from tests.cluster.plane import free_port
from tests.cluster.test_channel import Object, endpoint
from tests.cluster.test_in_place import holders_of
from tests.cluster.yard import Yard, pytorch_job, until
from trainyard.kube.resources import NODES, SERVICES
from trainyard.lifecycle.observed import Pod


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


def kept_off(pod: Object) -> list[str]:
    """Nodes that the pod may not run on, as the API server has it."""
    by_node = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = by_node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    (term,) = required.get("nodeSelectorTerms") or [{}]
    fields = term.get("matchFields") or ()
    assert all((f["key"], f["operator"]) == ("metadata.name", "NotIn") for f in fields)
    return [name for field in fields for name in field["values"]]


async def played(yard: Yard, port: int, attempt: int, *seconds: float) -> Object:
    """What came of the check of this attempt, in which each pod says how long its matmul took."""
    pods = await holders_of(yard, "digits")
    told: list[dict[str, Any]] = [
        {"uid": pod.uid, "attempt": attempt, "stage": "ready", "host": f"h{n}", "port": 7}
        for n, pod in enumerate(pods)
    ]

    async def ask() -> list[Object]:
        asked = (p.way.post(port, {"nodeCheck": t}) for p, t in zip(pods, told, strict=True))
        return [answer for _, answer in await asyncio.gather(*asked)]

    answers = await until(ask, lambda found: all(each.get("say") == "check" for each in found))
    for pod, each, answer, took in zip(pods, told, answers, seconds, strict=True):
        pairs = [{"replica": answer["pairs"][0]["replica"], "seconds": 0.1, "error": ""}]
        body = {**each, "stage": "done", "run": answer["run"], "seconds": took, "pairs": pairs}
        await until(
            lambda pod=pod, body=body: pod.way.post(port, {"nodeCheck": body}),
            lambda found: found[0] == 200,
        )
    job = await until(
        lambda: yard.job("digits"), lambda job: job["status"]["nodeCheck"]["state"] != "Checking"
    )
    found: Object = job["status"]["nodeCheck"]
    assert found["attempt"] == attempt
    return found


async def test_pods_are_kept_off_a_bad_node(yard: Yard) -> None:
    bad, port = f"bad-{yard.namespace}", free_port()
    service = {"metadata": {"name": "reports"}, "spec": {"ports": [{"name": "r", "port": 7443}]}}
    await yard.client.create(SERVICES, service, yard.namespace)
    address = f"--channel-address=reports.{yard.namespace}.svc:7443"
    options = address, f"--channel-port={port}", "--channel-endpoint=10.9.9.1"
    async with AsyncExitStack() as stack:
        operator = await stack.enter_async_context(yard.operator(*options))
        await operator.leads()
        kubelet = await stack.enter_async_context(running_kubelet(yard.client, yard.namespace))
        await kubelet.join(bad)
        stack.push_async_callback(yard.client.delete, NODES, bad)
        kubelet.node_of = lambda pod: (
            bad if pod["metadata"]["name"].endswith("-1") and bad not in kept_off(pod) else NODE
        )
        job = pytorch_job("digits", runPolicy={"nodeCheck": {"enabled": True}})
        await yard.kubectl("apply", "-f", "-", stdin=json.dumps(job))
        await yard.reaches("digits", "Running")
        found = await played(yard, port, 1, 0.1, 0.9)
        assert found["avoided"] == [each["node"] for each in found["badNodes"]] == [bad]
        await until(
            lambda: yard.pods("digits"),
            lambda pods: (
                [(kept_off(pod), Pod.decode(pod).node, pod["status"]["phase"]) for pod in pods]
                == [([bad], NODE, "Running")] * 2
            ),
        )
        found = await played(yard, port, 2, 0.1, 0.1)
        assert (found["state"], found["avoided"]) == ("Passed", [bad])
        await kubelet.end_all("digits", 0)
        ended = await yard.reaches("digits", "Succeeded")
        assert ended["status"]["backoffCount"] == 0
