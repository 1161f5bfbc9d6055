"""Which cluster a command speaks to."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.api.async_client import AsyncClient
from trainyard.api.commands import Where, ask
from trainyard.client.cluster_target import CommandError
from trainyard.kube.errors import ConfigError
from trainyard.schema.errors import TrainyardError


@pytest.fixture(autouse=True)
def _nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "somebody-elses"))


async def namespace(client: AsyncClient) -> str:
    return (await client.target()).namespace


def test_without_a_cluster_the_error_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"none is up in .*trainyard up.*--kubeconfig"):
        ask(Where(), namespace)


def test_a_kubeconfig_is_used_only_when_it_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(
        "current-context: lab\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "contexts: [{name: lab, context: {cluster: c, namespace: team}}]\n"
    )
    assert ask(Where(kubeconfig=str(file)), namespace) == "team"
    assert ask(Where(namespace="own", kubeconfig=str(file)), namespace) == "own"
    with pytest.raises(ConfigError, match="no context 'other'"):
        ask(Where(kubeconfig=str(file), context="other"), namespace)


def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="/nowhere/config does not exist"):
        ask(Where(kubeconfig="/nowhere/config"), namespace)


def test_an_error_in_a_task_group_is_the_error_of_the_command(tmp_path: Path) -> None:
    import asyncio

    file = tmp_path / "config"
    file.write_text(
        "current-context: lab\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "contexts: [{name: lab, context: {cluster: c}}]\n"
    )

    async def fail(_: AsyncClient) -> None:
        async def one() -> None:
            raise TrainyardError("told to the user")

        async with asyncio.TaskGroup() as outer, asyncio.TaskGroup() as inner:
            outer.create_task(asyncio.sleep(60))
            inner.create_task(one())

    with pytest.raises(TrainyardError, match="told to the user"):
        ask(Where(kubeconfig=str(file)), fail)
