"""How bodies are read (what they have twice, unknown fields, nulls, kinds), and lists as they were.

The words of warnings and refusals are those of a kube-apiserver 1.36, which was asked.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.embedded.apiserver.port import Answer, Client, serving
from tests.unit.kinds import manifests

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch.tensorstack.dev/v1beta1/namespaces/default/pytorchtrainingjobs"
JOB = {**manifests.pytorch(), "metadata": {"name": "j"}}
JSON, YAML, MERGE, PATCH, APPLY = (
    "application/json",
    "application/yaml",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
)
TWICE = b'{"metadata":{"name":"m","labels":{"a":"b","a":"c"},"labels":{"x":"y","x":"z"}}}'
WARNED = ['duplicate field "metadata.labels.a"', 'duplicate field "metadata.labels"']
WARNED.append('duplicate field "metadata.labels.x"')


class Asking:
    """Requests over one connection."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __call__(
        self, method: str, path: str, body: Any, kind: str = JSON
    ) -> tuple[int, Any, list[str]]:
        """Status, body and warnings of an answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Type: {kind}"]
        head = "\r\n".join([*lines, f"Content-Length: {len(data)}", "", ""]).encode()
        warnings: list[str] = []
        answer = await self._answer(head + data, warnings)
        return answer.status, json.loads(answer.body), warnings

    async def _answer(self, request: bytes, told: list[str]) -> Answer:
        reader = self._client.reader
        self._client.send(request)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
        pairs = [line.split(": ", 1) for line in lines[1:]]
        for name, value in pairs:
            if name.lower() == "warning":
                told.append(json.loads(value.removeprefix("299 - ")))
        headers = {name.lower(): value for name, value in pairs}
        body = await reader.readexactly(int(headers["content-length"]))
        return Answer(int(lines[0].split()[1]), headers, body)


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Asking]:
    async with serving(tmp_path) as port, port.unix() as client:
        yield Asking(client)


async def test_a_key_that_is_there_twice_is_warned_of_unless_nobody_wants_to_know(
    ask: Asking,
) -> None:
    code, made, told = await ask("POST", MAPS, TWICE)
    assert (code, made["metadata"]["labels"], told) == (201, {"x": "z"}, WARNED)
    code, _, told = await ask("POST", f"{MAPS}?fieldValidation=Ignore&dryRun=All", TWICE)
    assert (code, told) == (409, [])
    code, refused, _ = await ask("POST", f"{MAPS}?fieldValidation=Strict", TWICE)
    assert (code, refused["reason"]) == (400, "BadRequest")
    assert f"strict decoding error: {', '.join(WARNED)}" in refused["message"]


async def test_what_only_looks_like_a_key_that_is_there_twice_is_none(ask: Asking) -> None:
    for number, text in enumerate(('{"a": "b:c", "d": ":::"}', '{"a": "\\u003a", "c": "::"}')):
        body = f'{{"metadata": {{"name": "m{number}"}}, "data": {text}}}'.encode()
        assert (await ask("POST", MAPS, body))[::2] == (201, [])
    hidden = b'{"metadata":{"name":"x"},"data":{"a":"b","a":"\\u003a"}}'
    assert (await ask("POST", MAPS, hidden))[2] == ['duplicate field "data.a"']


async def test_a_key_that_is_there_twice_in_yaml_counts_as_it_does_to_kubectl(ask: Asking) -> None:
    text = b"metadata:\n  name: m\ndata:\n  a: b\n  a: c\n"
    code, refused, _ = await ask("POST", f"{MAPS}?fieldValidation=Strict", text, YAML)
    assert (code, "line 5: " in refused["message"]) == (400, True)
    code, made, told = await ask("POST", MAPS, text, YAML)
    assert (code, made["data"]) == (201, {"a": "c"})
    assert told == ["line 5: duplicate key 'a'"]
    applied = b"apiVersion: v1\nkind: ConfigMap\n" + text
    code, made, told = await ask("PATCH", f"{MAPS}/m?fieldManager=me", applied, APPLY)
    assert (code, told) == (200, ["line 7: duplicate key 'a'"])
    strict = f"{MAPS}/m?fieldManager=me&fieldValidation=Strict"
    assert (await ask("PATCH", strict, applied, APPLY))[0] == 400


async def test_a_patch_is_told_of_in_its_own_words(ask: Asking) -> None:
    await ask("POST", MAPS, {"metadata": {"name": "m"}})
    twice = b'{"data":{"a":"b","a":"c"}}'
    assert (await ask("PATCH", f"{MAPS}/m", twice, MERGE))[2] == ['duplicate field "data.a"']
    strict = f"{MAPS}/m?fieldValidation=Strict"
    code, refused, _ = await ask("PATCH", strict, {"odd": 1}, MERGE)
    assert (code, refused["details"]["causes"][0]["field"]) == (422, "patch")
    odd = b'[{"op":"add","path":"/data/b","value":"1","odd":2,"op":"add"}]'
    code, _, told = await ask("PATCH", f"{MAPS}/m", odd, PATCH)
    wanted = ['json patch unknown field "[0].odd"', 'json patch duplicate field "[0].op"']
    assert (code, told) == (200, wanted)
    assert (await ask("PATCH", strict, odd, PATCH))[0] == 422


async def test_of_a_job_what_nobody_knows_is_dropped_and_its_status_left_out(ask: Asking) -> None:
    body = {**JOB, "metadata": {"name": "j", "odd": 1}, "status": {"phase": 1, "odd": 2}}
    code, made, told = await ask("POST", JOBS, body)
    assert (code, told) == (201, ['unknown field "metadata.odd"'])
    assert ("odd" in made["metadata"], "status" in made) == (False, False)


async def test_a_write_of_a_job_leaves_its_status(ask: Asking) -> None:
    assert (await ask("POST", JOBS, JOB))[0] == 201
    status = {"status": {"phase": "Running"}}
    assert (await ask("PATCH", f"{JOBS}/j/status", status, MERGE))[0] == 200
    change = {"spec": {"runMode": {"pause": {"enabled": True}}}, "status": {"phase": 1}}
    code, found, _ = await ask("PATCH", f"{JOBS}/j", change, MERGE)
    assert (code, found["status"]) == (200, {"phase": "Running"})


async def test_a_null_is_no_field_of_a_job_and_a_whole_number_an_integer(ask: Asking) -> None:
    text = json.dumps(JOB).replace('"replicas": 4', '"replicas": 4e0, "restartPolicy": null')
    text = text.replace('"spec": {', '"spec": {"runPolicy": {"backoffLimit": null}, ', 1)
    code, made, _ = await ask("POST", JOBS, text.encode())
    (worker,) = made["spec"]["replicaSpecs"]
    assert (code, repr(worker["replicas"]), "restartPolicy" in worker) == (201, "4", False)
    assert made["spec"]["runPolicy"] == {}
    huge = text.replace("4e0", "1e300").encode()
    assert (await ask("POST", JOBS, huge))[0] == 422


async def test_a_null_in_a_list_of_a_pod_is_an_empty_value(ask: Asking) -> None:
    main = {"name": "main", "image": "i", "args": [None, "a"]}
    body = {"metadata": {"name": "p"}, "spec": {"containers": [main], "imagePullSecrets": [None]}}
    code, made, _ = await ask("POST", PODS, body)
    spec = made["spec"]
    wanted = (201, ["", "a"], [{}])
    assert (code, spec["containers"][0]["args"], spec["imagePullSecrets"]) == wanted
    body["spec"]["containers"] = [None]
    assert (await ask("POST", PODS, body))[0] == 422


@pytest.mark.parametrize(
    ("change", "code", "word"),
    [
        ({"kind": None}, 400, "does not say its kind"),
        ({"apiVersion": ""}, 400, "does not say its apiVersion"),
        ({"kind": "Pod"}, 422, "must be PyTorchTrainingJob"),
        ({"kind": 1}, 400, "does not fit"),
        ({"kind": "Pod", "apiVersion": "v1"}, 400, "does not fit"),
    ],
)
async def test_a_job_says_its_own_kind(ask: Asking, change: Any, code: int, word: str) -> None:
    found, refused, _ = await ask("POST", JOBS, {**JOB, **change})
    assert (found, word in refused["message"]) == (code, True), refused


async def test_nobody_can_apply_a_field_that_is_not_there(ask: Asking) -> None:
    for path, body in (
        (f"{JOBS}/j", {**JOB, "spec": {**JOB["spec"], "odd": 1}}),
        (f"{JOBS}/j", {**JOB, "odd": 1}),
        (f"{MAPS}/m", {"apiVersion": "v1", "kind": "ConfigMap", "odd": 1}),
    ):
        code, refused, _ = await ask("PATCH", f"{path}?fieldManager=me", body, APPLY)
        assert (code, "odd: field not declared in schema" in refused["message"]) == (400, True)


async def test_only_what_is_elastic_has_a_scale(ask: Asking) -> None:
    await ask("POST", JOBS, JOB)
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "j"}}
    wanted = {**scale, "spec": {"replicas": 2}}
    for method, body, kind in (("GET", b"", JSON), ("PATCH", wanted, MERGE), ("PUT", wanted, JSON)):
        code, refused, _ = await ask(method, f"{JOBS}/j/scale", body, kind)
        assert (code, "not elastic" in refused["message"]) == (422, True)


async def test_what_is_said_of_managers_and_cannot_be_used_does_not_count(ask: Asking) -> None:
    for fields in ([None], [{}], [{"manager": "a", "operation": "Steal"}]):
        body = {"metadata": {"name": "m", "managedFields": fields}}
        code, made, _ = await ask("POST", f"{MAPS}?dryRun=All", body)
        assert (code, "managedFields" in made["metadata"]) == (201, False)
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}
    _, made, _ = await ask("PATCH", f"{MAPS}/m?fieldManager=me", applied, APPLY)
    change = {"metadata": {"managedFields": [{"operation": "Steal"}]}}
    code, found, _ = await ask("PATCH", f"{MAPS}/m", change, MERGE)
    assert (code, found["metadata"]["managedFields"]) == (200, made["metadata"]["managedFields"])


async def test_a_list_can_be_had_as_it_was(ask: Asking) -> None:
    other = MAPS.replace("default", "kube-system")
    states: list[tuple[str, dict[str, Any]]] = []

    async def remember() -> None:
        _, found, _ = await ask("GET", MAPS, b"")
        data = {each["metadata"]["name"]: each.get("data") for each in found["items"]}
        states.append((found["metadata"]["resourceVersion"], data))

    await remember()
    for method, path, body in (
        ("POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "1"}}),
        ("POST", MAPS, {"metadata": {"name": "b"}, "data": {"k": "1"}}),
        ("PUT", f"{MAPS}/a", {"metadata": {"name": "a"}, "data": {"k": "2"}}),
        ("POST", other, {"metadata": {"name": "c"}}),
        ("DELETE", f"{MAPS}/b", {}),
        ("POST", MAPS, {"metadata": {"name": "b"}, "data": {"k": "3"}}),
    ):
        code, answer, _ = await ask(method, path, body)
        assert code in (200, 201), answer
        await remember()
    assert len({str(data) for _, data in states}) == 6
    for version, data in states:
        query = f"resourceVersion={version}&resourceVersionMatch=Exact"
        code, found, _ = await ask("GET", f"{MAPS}?{query}", b"")
        assert code == 200, found
        shown = {each["metadata"]["name"]: each.get("data") for each in found["items"]}
        assert (code, found["metadata"]["resourceVersion"], shown) == (200, version, data)
        query += "&fieldSelector=metadata.name%3Db"
        _, named, _ = await ask("GET", f"{MAPS}?{query}", b"")
        assert [each["data"] for each in named["items"]] == [data[k] for k in data if k == "b"]
