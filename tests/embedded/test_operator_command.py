"""`trainyard operator` as a process of its own, over TLS, by a kubeconfig."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import yaml

from tests.embedded.kubectl import JOB, JOBS, Cluster, running_cluster

PATHS = {"PYTHONPATH": os.pathsep.join(sys.path)}
"""Of other Pythons, which are to run the same code as this one."""


@asynccontextmanager
async def operator(
    cluster: Cluster, *options: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A running operator, and the address of its endpoints."""
    process = await started(cluster, "--host", "127.0.0.1", "--port", "0", *options)
    assert process.stderr is not None
    told = b""
    try:
        async with asyncio.timeout(120):
            while not (found := re.search(rb"on port (\d+)", told)):
                line = await process.stderr.readline()
                assert line, f"the operator has ended: {told.decode()}"
                told += line
        yield process, f"http://127.0.0.1:{found[1].decode()}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def started(cluster: Cluster, *options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "trainyard.cli.main", "operator", *options),
        env={**cluster.environment, **PATHS},
        stderr=asyncio.subprocess.PIPE,
    )


async def answers(url: str, text: str) -> None:
    async with asyncio.timeout(120), aiohttp.ClientSession() as session:
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
            async with asyncio.timeout(120):
                pods = {(await anext(created)).object["metadata"]["name"] for _ in range(2)}
            assert {name[-9:] for name in pods} == {"-worker-0", "-worker-1"}
            await answers(
                f"{first_url}/metrics",
                'trainyard_jobs_created_total{job_kind="PyTorchTrainingJob"} 1.0',
            )
            await ends(first, signal.SIGTERM)
            await answers(f"{second_url}/readyz", "leading")
            await ends(second, signal.SIGINT)


async def ends(process: asyncio.subprocess.Process, by: signal.Signals) -> None:
    process.send_signal(by)
    async with asyncio.timeout(120):
        assert await process.wait() == 0


LAUNCHED = """
apiVersion: batch.tensorstack.dev/v1beta1
kind: DeepSpeedJob
metadata:
  name: launched
spec:
  config:
    run:
      python: [train.py]
  worker:
    replicas: 1
    template:
      spec:
        containers:
        - name: worker
          image: python
"""


async def test_a_record_replays_and_holds_no_secrets(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    async with (
        running_cluster("", tmp_path) as cluster,
        operator(cluster, "--record", str(record)) as (process, url),
    ):
        await answers(f"{url}/readyz", "leading")
        created = cluster.registry.subscribe("pods")
        await cluster.registry.create(JOBS, yaml.safe_load(JOB))
        await cluster.registry.create(
            "deepspeedjobs.batch.tensorstack.dev", yaml.safe_load(LAUNCHED)
        )
        async with asyncio.timeout(120):
            for _ in range(3):
                await anext(created)
        secrets = cluster.registry.list("secrets")
        await ends(process, signal.SIGTERM)
    told = record.read_text()
    assert all(f'"{part}":' in told for part in ("seen", "decided", "did", "ended"))
    keys = [value for secret in secrets for value in secret["data"].values()]
    assert keys
    assert not [key for key in keys if key in told or b64decode(key).decode().strip() in told]
    code, said = await replayed(record)
    passes = sum('"input":' in line for line in told.splitlines())
    assert (code, said) == (0, f"{passes} passes are decided as they were\n")
    record.write_text(
        re.sub(r"create pods/(digits-\w+)-worker-0 ", r"create pods/\1-worker-9 ", told)
    )
    code, said = await replayed(record)
    assert code == 1
    assert "pytorchtrainingjob/default/digits is decided otherwise" in said


async def replayed(record: Path) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.simulation", "--replay", str(record)),
        env={**os.environ, **PATHS},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        said, _ = await process.communicate()
    return process.returncode, said.decode()


async def test_a_record_that_cannot_be_kept_is_said_at_once(tmp_path: Path) -> None:
    async with running_cluster("", tmp_path) as cluster:
        process = await started(cluster, "--record", str(tmp_path / "no" / "record"))
        async with asyncio.timeout(120):
            _, told = await process.communicate()
    assert process.returncode == 1
    assert b"error: cannot record in " in told
    assert b"Traceback" not in told
