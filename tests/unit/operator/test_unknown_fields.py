"""Jobs that were stored by a server without our admission: with pod fields that nobody knows, and
with fields that have no effect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.operator.test_controller import eventually, job, running
from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.api_server import ApiServer
from trainyard.embedded.registry import Registry
from trainyard.kinds.kind_registry import KINDS
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kube.client import Client
from trainyard.kube.resources import EVENTS, PODS
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.embedded_operator import run

JOBS = KINDS["PyTorchTrainingJob"].resource


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    """What an API server stores, to be written to past its admission."""
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    yield registry
    await registry.close()


@pytest.mark.parametrize("is_open", [True, False], ids=["judged by the server", "judged by us"])
async def test_the_job_fails_and_has_no_pods(
    is_open: bool, registry: Registry, tmp_path: Path
) -> None:
    """A misspelt command that is silently left out would run something else."""
    server = ApiServer(registry, None)
    await server.serve_unix(tmp_path / "api.sock")
    stored = job("train")
    (spec,) = stored["spec"]["replicaSpecs"]
    spec["template"]["spec"]["containers"][0]["commands"] = ["train"]
    await registry.create(JOBS.full_name, stored)
    settings = OperatorSettings(lifecycle=Settings.local(), open_templates=is_open)
    async with Client.unix(tmp_path / "api.sock", timeout_seconds=5) as client:
        async with running(run(client, settings)):

            async def failed() -> dict[str, Any] | None:
                status = (await client.get(JOBS, "train", "default")).get("status") or {}
                return status if status.get("phase") == "Failed" else None

            status = await eventually(failed)
        conditions = {each["type"]: each for each in status["conditions"]}
        assert conditions["Failed"]["reason"] == "InvalidSpec"
        assert "commands" in conditions["Failed"]["message"]
        assert (await client.list(PODS))[0] == []
    await server.close()


async def test_what_has_no_effect_is_told_in_events(registry: Registry, tmp_path: Path) -> None:
    """The same words that `validate` has; each once."""
    server = ApiServer(registry, None)
    await server.serve_unix(tmp_path / "api.sock")
    stored = job("train")
    stored["spec"]["runPolicy"] = {"backoffLimit": 5}
    stored["spec"]["elastic"] = {"minReplicas": 2}
    await registry.create(JOBS.full_name, stored)
    settings = OperatorSettings(lifecycle=Settings.local())
    async with (
        Client.unix(tmp_path / "api.sock", timeout_seconds=5) as client,
        running(run(client, settings)),
    ):

        async def told() -> list[str] | None:
            events = (await client.list(EVENTS))[0]
            found = [e["message"] for e in events if e["reason"] == "IgnoredField"]
            return found if len(found) >= 2 else None

        found = await eventually(told)
    assert sorted(text.partition(": ")[0] for text in found) == [
        "spec.elastic",
        "spec.runPolicy.backoffLimit",
    ]
    await server.close()
