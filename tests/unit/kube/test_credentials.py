"""Kubeconfig files and credential plugins, against the embedded API server under TLS."""

from __future__ import annotations

import base64
import contextlib
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded import tls_files
from trainyard.embedded.api_server import ApiServer
from trainyard.embedded.apiserver.auth import certificates
from trainyard.embedded.registry import Registry
from trainyard.kube import credentials
from trainyard.kube.client import Client
from trainyard.kube.errors import ConfigError, Unauthorized, Unreachable
from trainyard.kube.resources import CONFIG_MAPS, NAMESPACES

TOKEN = "open-sesame"


@pytest.fixture
async def config(tmp_path: Path) -> AsyncIterator[dict[str, Any]]:
    """The kubeconfig of a running server."""
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    server = ApiServer(registry, None)
    made = certificates.ensure(tmp_path / "pki")
    port = await server.serve_tls(0, certificate=made.certificate, key=made.key, token=TOKEN)
    yield tls_files.make_kubeconfig(port=port, authority=made.authority, token=TOKEN)
    await server.close()
    await registry.close()


def write(path: Path, config: dict[str, Any]) -> Path:
    path.write_text(json.dumps(config))
    return path


def user_of(config: dict[str, Any]) -> dict[str, Any]:
    user: dict[str, Any] = config["users"][0]["user"]
    return user


async def names(path: Path) -> list[str]:
    """The namespaces, as read with a kubeconfig."""
    async with await Client.from_kubeconfig(path, timeout_seconds=120) as client:
        items, _ = await client.list(NAMESPACES)
    return [item["metadata"]["name"] for item in items]


async def test_a_kubeconfig_with_authority_and_token_is_enough(
    config: dict[str, Any], tmp_path: Path
) -> None:
    path = write(tmp_path / "config", config)
    assert "default" in await names(path)
    async with await Client.from_kubeconfig(path) as client:
        made = await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, "default")
        watch = client.watch(CONFIG_MAPS, "default", resource_version="0", timeout_seconds=5)
        async with contextlib.aclosing(watch) as events:
            assert (await anext(events)).object["metadata"]["uid"] == made["metadata"]["uid"]


async def test_a_wrong_token_is_refused(config: dict[str, Any], tmp_path: Path) -> None:
    user_of(config)["token"] = "wrong"
    with pytest.raises(Unauthorized):
        await names(write(tmp_path / "config", config))


async def test_a_server_of_another_authority_is_not_trusted(
    config: dict[str, Any], tmp_path: Path
) -> None:
    other = certificates.ensure(tmp_path / "other").authority.read_bytes()
    cluster = config["clusters"][0]["cluster"]
    cluster["certificate-authority-data"] = base64.b64encode(other).decode()
    with pytest.raises(Unreachable, match="certificate"):
        await names(write(tmp_path / "config", config))


async def test_a_token_file_is_read_relative_to_the_kubeconfig(
    config: dict[str, Any], tmp_path: Path
) -> None:
    del user_of(config)["token"]
    user_of(config)["tokenFile"] = "token"
    (tmp_path / "token").write_text(TOKEN + "\n")
    assert "default" in await names(write(tmp_path / "config", config))


def plugin(tmp_path: Path, script: str) -> dict[str, Any]:
    """A credential plugin, as in a kubeconfig."""
    program = tmp_path / "plugin"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    version = "client.authentication.k8s.io/v1"
    return {"apiVersion": version, "command": str(program), "env": [{"name": "W", "value": TOKEN}]}


async def test_a_plugin_is_asked_for_a_token_once_until_it_expires(
    config: dict[str, Any], tmp_path: Path
) -> None:
    user_of(config).pop("token")
    script = (
        f'echo x >> {tmp_path}/calls; case "$KUBERNETES_EXEC_INFO" in *ExecCredential*) '
        'printf \'{"status":{"token":"%s","expirationTimestamp":"2999-01-01T00:00:00Z"}}\' "$W";; '
        "esac"
    )
    user_of(config)["exec"] = plugin(tmp_path, script)
    path = write(tmp_path / "config", config)
    async with await Client.from_kubeconfig(path) as client:
        for _ in range(3):
            await client.list(NAMESPACES)
    assert (tmp_path / "calls").read_text() == "x\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo no such account >&2; exit 3", r"failed \(3\): no such account"),
        ("echo hello", "printed no ExecCredential"),
    ],
    ids=["failing", "talking nonsense"],
)
async def test_a_plugin_that_fails_is_told(
    config: dict[str, Any], tmp_path: Path, script: str, message: str
) -> None:
    user_of(config).pop("token")
    user_of(config)["exec"] = plugin(tmp_path, script)
    with pytest.raises(ConfigError, match=message):
        await names(write(tmp_path / "config", config))


def two_files(tmp_path: Path) -> list[Path]:
    def entry(kind: str, name: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"name": name, kind: body}]

    first = {
        "current-context": "b",
        "contexts": entry("context", "a", {"cluster": "one", "namespace": "team"}),
        "clusters": entry("cluster", "one", {"server": "https://one"}),
    }
    second = {
        "current-context": "a",
        "contexts": entry("context", "b", {"cluster": "one", "user": "me"})
        + entry("context", "a", {"cluster": "two"}),
        "users": entry("user", "me", {"username": "me", "password": "pw"}),
    }
    return [write(tmp_path / "first", first), write(tmp_path / "second", second)]


def test_several_files_are_merged_and_the_first_to_say_something_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, two_files(tmp_path))))
    cluster = credentials.load()
    assert (cluster.server, cluster.namespace) == ("https://one", "default")
    assert cluster.authorization == "Basic " + base64.b64encode(b"me:pw").decode()
    assert credentials.load(context="a").namespace == "team"


def test_a_context_that_is_not_there_is_named_with_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, two_files(tmp_path))))
    with pytest.raises(ConfigError, match=r"no context 'prod'.*there: a, b"):
        credentials.load(context="prod")


def test_no_kubeconfig_at_all_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing does not exist"):
        credentials.load(tmp_path / "missing")


def test_in_a_pod_the_service_account_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("token", "t"), ("namespace", "team"), ("ca.crt", "pem")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    cluster = credentials.load()
    assert (cluster.server, cluster.namespace) == ("https://[fd00::1]:443", "team")
    assert cluster.token_file == tmp_path / "token"


async def test_the_kernel_probes_connections_that_are_quiet(
    config: dict[str, Any], tmp_path: Path
) -> None:
    """A server that vanishes without a word would else hold a watch up until its timeout."""
    path = write(tmp_path / "config", config)
    port = int(config["clusters"][0]["cluster"]["server"].rsplit(":", 1)[1])
    async with await Client.from_kubeconfig(path) as client:
        await client.list(NAMESPACES)
        table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    timers = [row[5][:2] for row in table if row[2].endswith(f":{port:04X}") and row[3] == "01"]
    assert timers == ["02"], "the timer of an established connection that is kept alive"
