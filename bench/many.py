"""An operator that starts where there are thousands of jobs already, all running: time and memory.

The API server is a modelled one in a process of its own: it hands out jobs and pods page by page,
as a cluster stores them, and its watches stay silent. So the figures are the operator's alone. Run
as a program, this is that server: `python -m bench.many JOBS`. `measure()` gives rows (what, value,
unit, target).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import orjson
import yaml
from aiohttp import web
from tests.cluster.plane import free_port
from tests.cluster.yard import until

from bench.plane import JOBS, cpu_seconds, job, memory_mb, rests
from trainyard.kinds.kind_admission import admit
from trainyard.kinds.kind_registry import describe
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kube.resources import PODS, SERVICES
from trainyard.lifecycle import Observed, Owned, Pod, plan

Row = tuple[str, float | None, str, float | None]
SIZES = tuple(map(int, os.environ.get("BENCH_MANY", "2000,10000").split(",")))
LIMITS = {2000: 150.0, 10000: 800.0}
"""Megabytes."""
REPLICAS = 8
_CONDITIONS = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
RUNNING: dict[str, Any] = {
    "phase": "Running",
    "startTime": "2026-01-01T00:00:05Z",
    "conditions": [{"type": kind, "status": "True"} for kind in _CONDITIONS],
    "containerStatuses": [
        {
            "name": "pytorch",
            "ready": True,
            "started": True,
            "state": {"running": {"startedAt": "2026-01-01T00:00:10Z"}},
        }
    ],
}
"""Status of a pod that runs."""
_IDLE_SECONDS = 20.0


def measure() -> list[Row]:
    """A cold start and idleness, at each size."""
    rows: list[Row] = []
    for size in SIZES:
        rows += asyncio.run(_started(size))
    return rows


async def _started(size: int) -> list[Row]:
    port, own = free_port(), free_port()
    server = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-m", "bench.many", str(size), str(port)]
    )
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config"
        config.write_text(yaml.safe_dump(_kubeconfig(port)))
        try:
            async with aiohttp.ClientSession() as session:
                await until(lambda: _text(session, port, "/version"), bool, 600)
                return await operator(session, size, config, own, "modelled server")
        finally:
            server.kill()


async def operator(
    session: aiohttp.ClientSession, size: int, config: Path, port: int, server: str
) -> list[Row]:
    """What one costs that starts on a cluster with so many jobs; `server` is how that is called."""
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trainyard.cli.main", "operator", "--kubeconfig", str(config)),
        *("--no-leader-elect", "--host", "127.0.0.1", "--port", str(port)),
        stderr=asyncio.subprocess.DEVNULL,
    )

    async def ready() -> str:
        assert process.returncode is None, "the operator has ended"
        return await _text(session, port, "/readyz")

    try:
        await until(ready, lambda text: text == "leading", 600)
        took = time.perf_counter() - started
        await rests([process.pid])  # every job has been looked at
        spent = cpu_seconds(process.pid)
        await asyncio.sleep(_IDLE_SECONDS)
        idle = (cpu_seconds(process.pid) - spent) / _IDLE_SECONDS * 100
        most, now = memory_mb(process.pid, "VmHWM"), memory_mb(process.pid)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    of = f"{size:,} jobs, {size * REPLICAS:,} pods ({server})"
    return [
        (f"operator, {of}: process start to ready", took, "s", 4.3 if size == 2000 else None),
        ("most memory it ever had", most, "MB", LIMITS.get(size)),
        ("memory afterwards", now, "MB", None),
        ("processor time until every job was looked at, a job", spent / size * 1e3, "ms", None),
        ("of a core, idle", idle, "%", 0.2),
    ]


async def _text(session: aiohttp.ClientSession, port: int, path: str) -> str:
    try:
        async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
            return await answer.text()
    except aiohttp.ClientError:
        return ""


def _kubeconfig(port: int) -> dict[str, Any]:
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "c", "user": {}}],
    }


# The modelled server.


def _stored(number: int) -> tuple[bytes, list[bytes], bytes]:
    """A running job, its pods and its Service, as a cluster stores them."""
    now, settings = datetime.now(UTC), Settings()
    raw = job(f"job-{number}", REPLICAS)
    raw["metadata"] |= {
        "namespace": f"team-{number % 50}",
        "uid": f"00000000-0000-4000-8000-{number:012}",
        "resourceVersion": "10",
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    model: Any = admit(orjson.loads(orjson.dumps(raw))).model
    workload = describe(model, settings)
    pods = []
    for key in workload.keys:
        pod = workload.build_pod(key, 1, pod_group="", resumed=False)
        pod["metadata"] |= {"uid": f"{key.ordinal}-{number}", "resourceVersion": "10"}
        pod["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z"}
        pod["spec"]["nodeName"] = f"node-{number % 100}"
        pods.append({**pod, "status": RUNNING})
    meta = raw["metadata"]
    service = Owned(SERVICES, meta["namespace"], workload.base, f"s-{number}", "10", meta["uid"])
    observed = Observed(pods=tuple(map(Pod.decode, pods)), owned=(service,))
    while (made := plan(workload, raw.get("status"), observed, now, settings)).status is not None:
        raw["status"] = made.status
    owner = pods[0]["metadata"]["ownerReferences"]
    labels = pods[0]["metadata"]["labels"]
    metadata = {"name": workload.base, "namespace": meta["namespace"], "uid": f"s-{number}"}
    metadata |= {"resourceVersion": "10", "ownerReferences": owner, "labels": labels}
    body = orjson.dumps({"metadata": metadata, "spec": {"clusterIP": "None"}})
    return orjson.dumps(raw), [orjson.dumps(pod) for pod in pods], body


def _serve(size: int, port: int) -> None:
    stored = [_stored(number) for number in range(size)]
    lists = {
        JOBS.plural: [each for each, _, _ in stored],
        PODS.plural: [pod for _, pods, _ in stored for pod in pods],
        SERVICES.plural: [each for _, _, each in stored],
    }

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/version":
            return web.json_response({"major": "1", "minor": "33"})
        if request.method != "GET":
            everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
            return web.json_response({"status": {"resourceRules": [everything]}}, status=201)
        query = {k: v[0] for k, v in parse_qs(urlsplit(str(request.rel_url)).query).items()}
        if "watch" in query:
            silent = web.StreamResponse()
            await silent.prepare(request)
            await asyncio.sleep(3600)
            return silent
        items = lists.get(request.path.rsplit("/", 1)[1], [])
        start = int(query.get("continue") or 0)
        end = start + int(query.get("limit") or len(items) or 1)
        token = f'"continue":"{end}",' if end < len(items) else ""
        head = f'{{"kind":"List","metadata":{{{token}"resourceVersion":"10"}},"items":['
        body = head.encode() + b",".join(items[start:end]) + b"]}"
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))
