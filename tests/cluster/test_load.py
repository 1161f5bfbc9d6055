"""Many jobs at once: how many requests one costs, counted by the API server itself."""

from __future__ import annotations

import asyncio
import re
from collections import Counter

from tests.cluster.kubelet import running_kubelet
from tests.cluster.plane import RunningControlPlane
from tests.cluster.yard import PYTORCH, Yard, pytorch_job, until
from tests.tools import soak

SECONDS = 600.0
OURS = ("pods", "events", f"{PYTORCH.plural}/status")


def requests(plane: RunningControlPlane) -> Counter[tuple[str, str]]:
    """Requests served so far, by verb and resource: `("POST", "pods")`, `("PATCH", "x/status")`."""
    status, body = plane.get("/metrics")
    assert status == 200
    counted: Counter[tuple[str, str]] = Counter()
    for found in re.finditer(r"^apiserver_request_total\{(.*)\} (\S+)$", body.decode(), re.M):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', found[1]))
        resource = "/".join(filter(None, (labels["resource"], labels["subresource"])))
        counted[labels["verb"], resource] += int(float(found[2]))
    return counted


async def written_in_a_second(plane: RunningControlPlane) -> int:
    """What an operator requests in a second; the claim is about a length of time."""
    before = requests(plane)
    await asyncio.sleep(1)
    made = requests(plane) - before
    return sum(made[verb, each] for verb in ("GET", "POST", "PUT") for each in OURS)


async def test_the_requests_per_job_are_bounded(yard: Yard) -> None:
    """From creation to success: what has to be written, and nothing again and again."""
    count = soak(260, 500)
    names = [f"job-{number}" for number in range(count)]
    async with (
        yard.operator("--no-leader-elect") as operator,
        running_kubelet(yard.client, yard.namespace, lambda pod: 0),
    ):
        await operator.leads()
        before = requests(yard.plane)
        limit = asyncio.Semaphore(32)

        async def create(name: str) -> None:
            async with limit:
                await yard.client.create(PYTORCH, pytorch_job(name), yard.namespace)

        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(create(name))

        async def succeeded() -> int:
            items, _ = await yard.client.list(PYTORCH, yard.namespace)
            return sum((job.get("status") or {}).get("phase") == "Succeeded" for job in items)

        await until(succeeded, lambda found: found == count, SECONDS)
        made = requests(yard.plane) - before
        print({key: round(number / count, 2) for key, number in made.most_common(20)})
        assert made["POST", "pods"] == 2 * count
        status = sum(made[verb, f"{PYTORCH.plural}/status"] for verb in ("PUT", "PATCH"))
        assert status <= 8 * count
        assert made["GET", "pods"] + made["GET", PYTORCH.plural] <= 0.1 * count
        # Events arrive late. Then nothing is written any more.
        await until(lambda: written_in_a_second(yard.plane), lambda count: count == 0)
        assert "Traceback" not in operator.log
        await operator.kill()
        # Its successor lists in several pages what has ended, and leaves all of it alone.
        before = requests(yard.plane)
        async with yard.operator("--no-leader-elect") as successor:
            await until(
                lambda: successor.answer("/metrics"),
                lambda text: f'phase="Succeeded"}} {count}.0' in text,
            )
            assert await written_in_a_second(yard.plane) == 0
        made = requests(yard.plane) - before
        assert made["PUT", f"{PYTORCH.plural}/status"] == made["POST", "pods"] == 0
