"""How soon an operator asks for the first pod of a job, by the API server's own clock.

Its audit log says when each request came and when it was answered. What passes between the answer
to a job's creation and the first request for a pod is in part the server's own: the operator waits
until the job's Service is stored.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

import orjson
import yaml

from bench.plane import JOBS, job
from bench.yardstick import budget
from trainyard.kube.client import Client
from trainyard.kube.resources import PODS
from trainyard.schema.times import parse

REPLICAS = 8
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "verbs": ["create", "update"],
            "resources": [
                {"group": "", "resources": ["pods", "services"]},
                {"group": JOBS.group, "resources": [JOBS.plural, f"{JOBS.plural}/status"]},
            ],
        },
        {"level": "None"},
    ],
}
_LOG = "audit.log"
_FLUSH_SECONDS = 2.0
_PAUSE_SECONDS = 0.1
"""Between two jobs, for the events of the last one."""


class Request(NamedTuple):
    """A write: of what, and from when to when, in seconds."""

    what: str
    came: float
    answered: float


class Wait(NamedTuple):
    """Milliseconds from a job's creation to the first request for a pod; the server's part."""

    total: float
    server: float


def options(folder: Path) -> tuple[str, ...]:
    """Of an API server that keeps an audit log in `folder`."""
    policy = folder / "policy.yaml"
    policy.write_text(yaml.safe_dump(_POLICY))
    return (
        f"--audit-policy-file={policy}",
        f"--audit-log-path={folder / _LOG}",
        "--audit-log-mode=batch",
        "--audit-log-batch-max-wait=1s",
    )


async def one_by_one(client: Client, where: str, jobs: int) -> None:
    """Create jobs, each when the one before has come to rest."""
    told: asyncio.Queue[str] = asyncio.Queue()

    async def watch() -> None:
        async with aclosing(client.watch(JOBS, where, resource_version="0")) as events:
            async for _, found in events:
                if (found.get("status") or {}).get("replicas") == REPLICAS:
                    told.put_nowait(found["metadata"]["name"])

    watching = asyncio.create_task(watch())
    try:
        for number in range(jobs):
            name = f"one-{number}"
            await client.create(JOBS, job(name, REPLICAS), where)
            async with asyncio.timeout(60):
                while await told.get() != name:
                    pass
            await asyncio.sleep(_PAUSE_SECONDS)
    finally:
        watching.cancel()
    await asyncio.sleep(_FLUSH_SECONDS)


def rows(folder: Path, where: str) -> list[tuple[str, float | None, str, float | None]]:
    """What the audit log in `folder` says of all jobs of a namespace."""
    found = waits((folder / _LOG).read_bytes(), where)
    totals, server = [wait.total for wait in found], [wait.server for wait in found]
    own = [wait.total - wait.server for wait in found]
    what = f"{len(found)} jobs one by one: created to the first request for a pod"
    return [
        (f"{what}, p50", _part(totals, 50), "ms", budget(7.2)),
        ("the same, p99", _part(totals, 99), "ms", budget(15.0)),
        (
            "of it until the server has stored the Service, p50",
            _part(server, 50),
            "ms",
            None,
        ),
        ("the same, p99", _part(server, 99), "ms", None),
        ("the rest, the watch's delivery included, p50", _part(own, 50), "ms", None),
        ("the same, p99", _part(own, 99), "ms", None),
    ]


def waits(log: bytes, where: str) -> list[Wait]:
    """Of each job of a namespace in an audit log."""
    by_job: dict[str, list[Request]] = {}
    for line in map(orjson.loads, log.splitlines()):
        reference = line["objectRef"]
        if reference["namespace"] != where:
            continue
        # Objects of job one-7 are called one-7-<hash> and so on.
        name = "-".join(reference["name"].split("-")[:2])
        what = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
        times = (_seconds(line["requestReceivedTimestamp"]), _seconds(line["stageTimestamp"]))
        by_job.setdefault(name, []).append(Request(what, *times))
    return [_wait(requests) for requests in by_job.values()]


def _wait(requests: Sequence[Request]) -> Wait:
    created = next(each.answered for each in requests if each.what == JOBS.plural)
    asked = min(each.came for each in requests if each.what == PODS.plural)
    covered, until = 0.0, created
    for each in sorted(requests, key=lambda each: each.came):
        if each.what != JOBS.plural and each.came < asked:
            covered += max(0.0, min(each.answered, asked) - max(each.came, until))
            until = max(until, each.answered)
    return Wait((asked - created) * 1e3, covered * 1e3)


def _seconds(text: str) -> float:
    moment = parse(text)
    assert moment is not None
    return moment.timestamp()


def _part(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
