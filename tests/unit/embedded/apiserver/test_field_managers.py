"""`managedFields` beyond what is recorded of a real server (`tests/differential/managers.py`)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.embedded.apiserver.port import Client, serving
from tests.unit.embedded.apiserver.test_decoding import APPLY, JOB, JOBS, JSON, MAPS, MERGE, PODS
from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.apiserver.patch.field_managers import Update
from trainyard.embedded.registry import Registry
from trainyard.embedded.storage.store import Store

NODES = "/api/v1/nodes"
LONG_AGO = "2020-01-01T00:00:00Z"


class Asking:
    """Requests over one connection, by programs that name themselves."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __call__(
        self, method: str, path: str, body: Any, kind: str = JSON, agent: str | None = "me/1.0"
    ) -> tuple[int, Any]:
        data = json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Type: {kind}"]
        lines += [f"User-Agent: {agent}"] if agent is not None else []
        head = "\r\n".join([*lines, f"Content-Length: {len(data)}", "", ""])
        self._client.send(head.encode("latin-1") + data)
        answer = await self._client.answer()
        return answer.status, json.loads(answer.body)


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Asking]:
    async with serving(tmp_path) as port, port.unix() as client:
        yield Asking(client)


def _map(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}


def _owners(obj: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (each["manager"], each["operation"], each.get("subresource", ""))
        for each in obj["metadata"].get("managedFields", ())
    ]


@pytest.mark.parametrize(
    ("agent", "manager"),
    [
        ("kubectl/v1.33 (linux)", "kubectl"),
        ("curl", "curl"),
        ("o\xaddd/1", "odd"),
        ("x" * 200, "x" * 128),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
async def test_a_writer_is_called_as_its_program(
    ask: Asking, agent: str | None, manager: str
) -> None:
    _, made = await ask("POST", MAPS, _map(a="1"), agent=agent)
    assert _owners(made) == [(manager, "Update", "")]


async def test_an_entry_has_the_time_of_its_last_change(ask: Asking) -> None:
    _, made = await ask("POST", MAPS, _map(a="1", b="1"))
    (entry,) = made["metadata"]["managedFields"]
    old = {"metadata": {"managedFields": [{**entry, "time": LONG_AGO}]}}
    await ask("PATCH", f"{MAPS}/m", old, MERGE)
    _, same = await ask("PATCH", f"{MAPS}/m", {"data": {"a": "1"}}, MERGE)
    assert same["metadata"]["managedFields"] == [{**entry, "time": LONG_AGO}]
    _, again = await ask("PATCH", f"{MAPS}/m", {"data": {"a": "1"}}, MERGE)
    assert again["metadata"]["resourceVersion"] == same["metadata"]["resourceVersion"]
    _, found = await ask("PATCH", f"{MAPS}/m", {"data": {"a": "2"}}, MERGE, "other")
    times = {each["manager"]: each["time"] for each in found["metadata"]["managedFields"]}
    assert times["me"] == LONG_AGO < times["other"]
    _, found = await ask("PATCH", f"{MAPS}/m", {"data": {"b": "2"}}, MERGE)
    assert all(each["time"] > LONG_AGO for each in found["metadata"]["managedFields"])


async def test_who_writes_a_status_owns_that_only_and_conflicts_name_it(ask: Asking) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await ask("POST", PODS, pod)
    status = {"podIP": "1.2.3.4", "message": "a"}
    _, found = await ask("PATCH", f"{PODS}/p/status", {"status": status}, MERGE, "node")
    (_, entry) = found["metadata"]["managedFields"]
    assert _owners(found) == [("me", "Update", ""), ("node", "Update", "status")]
    assert entry["fieldsV1"] == {"f:status": {"f:podIP": {}, "f:message": {}}}
    applied = {"apiVersion": "v1", "kind": "Pod", "status": {"message": "b"}}
    path = f"{PODS}/p/status?fieldManager=one"
    code, refused = await ask("PATCH", path, applied, APPLY)
    expected = (
        'Apply failed with 1 conflict: conflict with "node" with subresource "status" using v1'
    )
    assert (code, refused["message"]) == (409, f"{expected}: .status.message")
    code, found = await ask("PATCH", f"{path}&force=1", applied, APPLY)
    assert (code, found["status"]["message"]) == (200, "b")
    assert ("one", "Apply", "status") in _owners(found)


async def test_a_node_is_created_with_its_status(ask: Asking) -> None:
    node = {"metadata": {"name": "n"}, "status": {"capacity": {"memory": "1Gi"}}}
    _, made = await ask("POST", NODES, node)
    assert _owners(made) == [("me", "Update", "")]
    taint = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    _, found = await ask("PATCH", f"{NODES}/n", taint, MERGE, "other")
    assert _owners(found) == [("me", "Update", ""), ("other", "Update", "")]


async def test_what_trainyard_itself_made_belongs_to_nobody_until_it_is_applied(
    ask: Asking,
) -> None:
    by_us = "?fieldManager=trainyard"
    code, made = await ask("POST", JOBS + by_us, JOB)
    assert (code, _owners(made)) == (201, [])
    _, patched = await ask("PATCH", f"{JOBS}/j", {"metadata": {"labels": {"a": "b"}}}, MERGE)
    assert _owners(patched) == []
    head = {key: JOB[key] for key in ("apiVersion", "kind")}
    changed = {**head, "metadata": {"name": "j", "labels": {"a": "c"}}}
    code, refused = await ask("PATCH", f"{JOBS}/j?fieldManager=one", changed, APPLY)
    assert code == 409
    assert 'conflict with "before-first-apply"' in refused["message"]
    code, found = await ask("PATCH", f"{JOBS}/j?fieldManager=one&force=1", changed, APPLY)
    assert (code, len(_owners(found))) == (200, 2)
    status = {"status": {"phase": "Running"}}
    _, after = await ask("PATCH", f"{JOBS}/j/status{by_us}", status, MERGE)
    assert after["status"]["phase"] == "Running"
    assert after["metadata"]["managedFields"] == found["metadata"]["managedFields"]


async def test_the_record_is_there_after_a_restart(tmp_path: Path) -> None:
    served = RESOURCES["configmaps"]
    first = Registry(Store(tmp_path / "state.db"), resources=RESOURCES)
    await first.ensure_system_objects()
    made = await first.create("configmaps", _map(a="1"), record=Update("me", served).record)
    assert _owners(made) == [("me", "Update", "")]
    await first.close()
    second = Registry(Store(tmp_path / "state.db"), resources=RESOURCES)
    assert second.get("configmaps", "default", "m") == made
    await second.close()
