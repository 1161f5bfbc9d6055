"""Pods that report to the operators of a real cluster, by whatever speaks HTTPS.

The kubelet here runs nothing: what a pod would send is sent for it, with what it has been given.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from tests.cluster.kubelet import running_kubelet
from tests.cluster.plane import free_port
from tests.cluster.yard import Yard, pytorch_job, until
from trainyard.kube.resources import ENDPOINTS, SECRETS, SERVICES

Object = dict[str, Any]
URL = "KUBEFLOW_TRAINER_SERVER_URL"


@dataclass
class Pod:
    """What a pod has been given to report with."""

    path: str
    token: str
    context: ssl.SSLContext

    async def post(self, port: int, body: Any, token: str = "") -> tuple[int, Object]:
        """Status and body of the answer."""
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token or self.token}"}
        async with aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{port}{self.path}"
            async with session.post(url, data=text, headers=headers, ssl=self.context) as answer:
                return answer.status, await answer.json()


def report(step: int, **more: Any) -> Object:
    """As Hugging Face's trainer sends it."""
    named = {"current_step": step, "total_steps": 1000, "loss": 0.5}
    metrics = [{"name": name, "value": str(value)} for name, value in named.items()]
    return {"trainerStatus": {"metrics": metrics, **more}}


async def pod_of(yard: Yard, job: str) -> Pod:
    """Its first pod, once it is there with its Secret."""
    pods = await until(lambda: yard.pods(job), lambda found: len(found) == 2)
    container, spec = pods[0]["spec"]["containers"][0], pods[0]["spec"]
    env = {each["name"]: each.get("value", "") for each in container["env"]}
    (volume,) = (v["secret"] for v in spec["volumes"] if v["name"] == "trainyard-channel")
    assert volume["optional"], "pods do not wait for it"
    secret = await yard.client.get(SECRETS, volume["secretName"], yard.namespace)
    data = {name: base64.b64decode(text).decode() for name, text in secret["data"].items()}
    url = urlsplit(env[URL])
    assert url.hostname == f"reports.{yard.namespace}.svc"
    context = ssl.create_default_context(cadata=data["ca.crt"])
    return Pod(f"{url.path}?{url.query}", data["token"], context)


async def endpoint(yard: Yard) -> str:
    """To whom the Service points."""
    found = await yard.client.get(ENDPOINTS, "reports", yard.namespace)
    return str(found["subsets"][0]["addresses"][0]["ip"])


async def test_reports_reach_the_leader_and_outlive_it(yard: Yard) -> None:
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
        first = await stack.enter_async_context(yard.operator(*options[0], "--job-metrics"))
        await first.leads()
        second = await stack.enter_async_context(yard.operator(*options[1]))
        await until(lambda: second.answer("/readyz"), lambda text: text == "standby")
        kubelet = await stack.enter_async_context(running_kubelet(yard.client, yard.namespace))
        for name in ("digits", "others"):
            await yard.kubectl("apply", "-f", "-", stdin=json.dumps(pytorch_job(name)))
            await yard.reaches(name, "Running")
        pod, other = await pod_of(yard, "digits"), await pod_of(yard, "others")

        assert await pod.post(ports[0], report(100)) == (200, report(100))
        told = await _progress(yard, 100)
        assert told["message"] == "step 100/1,000"
        assert "step 100/1,000" in await yard.kubectl("get", "pytorchtrainingjobs", "-o", "wide")
        metrics = await first.answer("/metrics")
        assert 'trainyard_reports_total{code="200"} 1.0' in metrics
        assert "trainyard_job_progress_ratio{" in metrics
        for body, token, status in (
            (report(101), "nonsense", 401),
            (report(101), other.token, 401),
            (b"x" * (1 << 20), "", 413),
            (b"{", "", 400),
            ({"trainerStatus": {"progressPercentage": 101}}, "", 422),
        ):
            code, answer = await pod.post(ports[0], body, token)
            assert (code, answer["kind"]) == (status, "Status"), answer
        assert (await pod.post(ports[1], report(101)))[0] == 503
        assert await endpoint(yard) == "10.9.9.1"

        await first.kill()
        await second.leads()
        await until(lambda: endpoint(yard), lambda found: found == "10.9.9.2")
        made = {"path": "/out/200.pt", "step": 200}
        assert (await pod.post(ports[1], report(200, checkpoint=made)))[0] == 200
        told = await _progress(yard, 200)
        assert told["checkpoint"]["path"] == "/out/200.pt"
        await kubelet.end_all("digits", 0)
        ended = await yard.reaches("digits", "Succeeded")
        assert ended["status"]["progress"]["step"] == 200
        assert (await pod.post(ports[1], report(300)))[0] == 409
        await asyncio.sleep(0)
        assert (await yard.job("digits"))["status"]["progress"]["step"] == 200


async def _progress(yard: Yard, step: int) -> Object:
    job = await until(
        lambda: yard.job("digits"),
        lambda job: (job["status"].get("progress") or {}).get("step") == step,
    )
    found: Object = job["status"]["progress"]
    return found
