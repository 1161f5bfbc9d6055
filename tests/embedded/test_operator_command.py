"""`trainyard operator` as a process of its own, over TLS, by a kubeconfig."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import yaml

from tests.embedded.kubectl import JOB, JOBS, Cluster, running_cluster


@asynccontextmanager
async def operator(cluster: Cluster) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A running operator, and the address of its endpoints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "trainyard.cli.main", "operator", "--host", "127.0.0.1", "--port", "0"),
        env=cluster.environment,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            while not (found := re.search(rb"on port (\d+)", await process.stderr.readline())):
                assert process.returncode is None
        yield process, f"http://127.0.0.1:{found[1].decode()}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def answers(url: str, text: str) -> None:
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        while True:
            async with session.get(url) as answer:
                if text in await answer.text() and answer.status == 200:
                    return
            await asyncio.sleep(0.05)


async def test_of_two_operators_one_works_and_the_other_takes_over(tmp_path: Path) -> None:
    async with running_cluster("", tmp_path) as cluster, operator(cluster) as (first, first_url):
        await answers(f"{first_url}/readyz", "leading")
        async with operator(cluster) as (second, second_url):
            await answers(f"{second_url}/readyz", "standby")
            created = cluster.registry.subscribe("pods")
            await cluster.registry.create(JOBS, yaml.safe_load(JOB))
            async with asyncio.timeout(60):
                pods = {(await anext(created)).object["metadata"]["name"] for _ in range(2)}
            assert {name[-9:] for name in pods} == {"-worker-0", "-worker-1"}
            await answers(f"{first_url}/metrics", 'job_name="digits"')
            await ends(first, signal.SIGTERM)
            await answers(f"{second_url}/readyz", "leading")
            await ends(second, signal.SIGINT)


async def ends(process: asyncio.subprocess.Process, by: signal.Signals) -> None:
    process.send_signal(by)
    async with asyncio.timeout(30):
        assert await process.wait() == 0
