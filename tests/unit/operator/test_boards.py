"""The controller serves TensorBoards, alone and of jobs; nobody runs their pods here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.operator.test_controller import PATIENCE_SECONDS, eventually, job, running
from tests.unit.operator.test_reconciles import Yard, in_yard
from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.api_server import ApiServer
from trainyard.embedded.registry import Registry
from trainyard.kinds.kind_registry import KINDS
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kube.client import Client
from trainyard.kube.resources import EVENTS, PODS, SERVICES
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.embedded_operator import run

JOBS = KINDS["PyTorchTrainingJob"].resource
BOARDS = KINDS["TensorBoard"].resource
SETTINGS = OperatorSettings(lifecycle=Settings.local())
LOGS = {"logDir": {"pvc": [{"name": "mnist"}]}}
BOARD_METADATA = {"name": "logs", "namespace": "default"}
BOARD = {
    "apiVersion": "tensorstack.dev/v1beta1",
    "kind": "TensorBoard",
    "metadata": BOARD_METADATA,
    "spec": LOGS,
}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of an embedded API server that keeps everything in memory."""
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    server = ApiServer(registry, None)
    await server.serve_unix(tmp_path / "api.sock")
    async with Client.unix(tmp_path / "api.sock", timeout_seconds=PATIENCE_SECONDS) as client:
        yield client
    await server.close()
    await registry.close()


async def pod(client: Client, name: str) -> dict[str, Any]:
    async def found() -> dict[str, Any] | None:
        return await client.get(PODS, name, "default")

    made: dict[str, Any] = await eventually(found)
    return made


async def report(client: Client, name: str, container: dict[str, Any]) -> None:
    """What a kubelet says of the only container of a pod."""
    present = await pod(client, name)
    status = {"phase": "Running", "containerStatuses": [{"name": "tensorboard", **container}]}
    await client.replace(PODS, {**present, "status": status}, subresource="status")


async def phase(client: Client, name: str, wanted: str) -> dict[str, Any]:
    async def reached() -> dict[str, Any] | None:
        board = await client.get(BOARDS, name, "default")
        return board if board["status"]["phase"] == wanted else None

    found: dict[str, Any] = await eventually(reached)
    return found


READY = {"state": {"running": {}}, "ready": True}


async def test_a_tensorboard_gets_a_pod_a_service_and_a_status(client: Client) -> None:
    async with running(run(client, SETTINGS)):
        stored = await client.create(BOARDS, BOARD)
        made = await pod(client, "logs-tb")
        service = await client.get(SERVICES, "logs-tb", "default")
        for child in (made, service):
            (owner,) = child["metadata"]["ownerReferences"]
            assert owner["uid"] == stored["metadata"]["uid"]
        await phase(client, "logs", "Pending")
        await report(client, "logs-tb", READY)
        board = await phase(client, "logs", "Running")
        port = service["spec"]["ports"][0]["nodePort"]
        assert board["status"]["url"] == f"http://127.0.0.1:{port}"

        async def told() -> list[Any]:
            events, _ = await client.list(EVENTS, "default")
            about = [e for e in events if e["involvedObject"]["kind"] == "TensorBoard"]
            return [e for e in about if e["reason"] == "Running"]

        await eventually(told)


async def test_a_pod_that_is_deleted_is_made_again(client: Client) -> None:
    async with running(run(client, SETTINGS)):
        await client.create(BOARDS, BOARD)
        before = await pod(client, "logs-tb")
        await client.delete(PODS, "logs-tb", "default", grace_seconds=0)

        async def another() -> bool:
            found = await client.get(PODS, "logs-tb", "default")
            return bool(found["metadata"]["uid"] != before["metadata"]["uid"])

        await eventually(another)


async def test_a_changed_spec_is_taken_up(client: Client) -> None:
    async with running(run(client, SETTINGS)):
        await client.create(BOARDS, BOARD)
        await pod(client, "logs-tb")
        await client.patch(BOARDS, "logs", {"spec": {"image": "other:2"}}, "default")

        async def changed() -> bool:
            found = await client.get(PODS, "logs-tb", "default")
            return bool(found["spec"]["containers"][0]["image"] == "other:2")

        await eventually(changed)
        await client.patch(BOARDS, "logs", {"spec": {"suspend": True}}, "default")
        await phase(client, "logs", "Suspended")

        async def gone() -> bool:
            pods, _ = await client.list(PODS, "default")
            return not pods

        await eventually(gone)
        assert await client.get(SERVICES, "logs-tb", "default")


async def test_a_job_tells_of_its_tensorboard_and_is_not_disturbed_by_it(client: Client) -> None:
    async with running(run(client, SETTINGS)):
        manifest = job("train", replicas=1)
        manifest["spec"]["tensorboardSpec"] = LOGS
        await client.create(JOBS, manifest)

        async def viewer() -> dict[str, Any] | None:
            found = await client.get(JOBS, "train", "default")
            link: dict[str, Any] = found["status"]["tensorboard"]
            return link if link["dependent"]["uid"] else None

        name = (await eventually(viewer))["dependent"]["name"]
        missing = {"exitCode": 127, "message": "command not found: tensorboard"}
        await report(client, f"{name}-tb", {"state": {"terminated": missing}})

        async def warned() -> bool:
            return bool((await viewer() or {})["type"] == "Warning")

        await eventually(warned)
        found = await client.get(JOBS, "train", "default")
        assert found["status"]["phase"] == "Pending"
        assert found["status"]["aggregate"]["creating"] == 1
        await report(client, f"{name}-tb", READY)

        async def ready() -> bool:
            status = await viewer() or {}
            return bool(status["ready"] and status["url"].startswith("http://127.0.0.1:"))

        await eventually(ready)


async def test_a_tensorboard_without_logs_is_told_and_gets_no_pod(client: Client) -> None:
    async with running(run(client, SETTINGS)):
        await client.create(BOARDS, {**BOARD, "spec": {}})
        board = await phase(client, "logs", "Failed")
        reasons = {c["type"]: c["reason"] for c in board["status"]["conditions"]}
        assert reasons["Ready"] == "NoLogs"
        assert (await client.list(PODS, "default"))[0] == []


async def test_another_controllers_tensorboards_are_left_alone(client: Client) -> None:
    settings = replace(SETTINGS, serves_tensorboards=False)
    async with running(run(client, settings)):
        manifest = job("train", replicas=1)
        manifest["spec"]["tensorboardSpec"] = LOGS
        await client.create(JOBS, manifest)

        async def made() -> list[Any]:
            return (await client.list(BOARDS, "default"))[0]

        (board,) = await eventually(made)
        await client.create(BOARDS, BOARD)

        async def job_is_told() -> bool:
            found = await client.get(JOBS, "train", "default")
            return bool(found["status"]["tensorboard"]["dependent"]["uid"])

        await eventually(job_is_told)
        pods, _ = await client.list(PODS, "default")
        assert [p["metadata"]["ownerReferences"][0]["kind"] for p in pods] == [JOBS.kind]
        found = await client.get(BOARDS, board["metadata"]["name"], "default")
        assert not found.get("status")


def test_a_tensorboard_that_was_stored_though_invalid_is_told_with_its_paths() -> None:
    """As on a server without our admission; what it was made of before goes on."""

    async def body(yard: Yard) -> None:
        key = yard.submit({**BOARD, "metadata": dict(BOARD_METADATA)})
        await asyncio.sleep(1)
        assert [pod["metadata"]["name"] for pod in yard.pods()] == ["logs-tb"]
        yard.server.patch(key, {"spec": {"logDirs": {}}})
        await asyncio.sleep(1)
        ready = yard.condition(key, "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "InvalidSpec")
        assert "spec.logDirs" in ready["message"]
        assert yard.status(key)["phase"] == "Failed"
        assert [pod["metadata"]["name"] for pod in yard.pods()] == ["logs-tb"]

    in_yard(body)
