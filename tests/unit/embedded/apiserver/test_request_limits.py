"""No body, selector or stream costs more than its size tells: each is refused, and why."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import time
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from tests.unit.embedded.apiserver.port import Client, serving
from trainyard.embedded.apiserver.patch import field_sets, patch_formats
from trainyard.embedded.apiserver.pod_access import spdy
from trainyard.embedded.apiserver.pod_access.websocket import WebSocket

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
APPLY, JSON_PATCH = "application/apply-patch+yaml", "application/json-patch+json"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
MANAGER = "?fieldManager=me"
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(12)
)
ENOUGH_SECONDS = 20.0
"""Of this process, which is client and server; what took minutes takes a second or less now."""


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with serving(tmp_path) as port, port.unix() as opened:
        made = await request(opened, "POST", MAPS, {"metadata": {"name": "m"}})
        assert made[0] == 201
        yield opened


async def request(
    client: Client, method: str, path: str, body: Any = b"", kind: str = "application/json"
) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n"
    client.send(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    answer = await client.answer()
    return answer.status, orjson.loads(answer.body)


def nested(depth: int) -> bytes:
    return b'{"metadata":{"name":"m"},"data":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"


BODIES = [
    ("PATCH", MAPS + "/m" + MANAGER, APPLY, b"[" * 100_000, 400, "100 levels"),
    ("PATCH", MAPS + "/m" + MANAGER, APPLY, b"{a: " * 100_000, 400, "100 levels"),
    ("PATCH", MAPS + "/m" + MANAGER, APPLY, BOMB.encode(), 400, "values"),
    ("PATCH", MAPS + "/m" + MANAGER, APPLY, b"a: 1\n" * 200_000, 413, "YAML has at most"),
    ("PATCH", MAPS + "/m" + MANAGER, APPLY, b"a: 1\n---\nb: 2\n", 400, "one YAML document"),
    ("PATCH", MAPS + "/m" + MANAGER, APPLY, "a: 1".encode("utf-16"), 400, "UTF-8"),
    ("POST", MAPS, "application/yaml", b"- " * 50_000, 400, "100 levels"),
    ("POST", MAPS, "application/json", nested(2_000), 400, "depth limit"),
    ("POST", MAPS, "application/json", nested(900), 400, "100 levels"),
    ("POST", MAPS + "?fieldValidation=Strict", "application/json", nested(900), 400, "100 levels"),
    ("POST", MAPS, "application/json", b"[" + b"[]," * 300_000 + b"[]]", 413, "values"),
    ("PATCH", MAPS + "/m", MERGE, nested(900), 400, "100 levels"),
    ("PATCH", PODS + "/m", STRATEGIC, nested(900), 400, "100 levels"),
    ("PATCH", MAPS + "/m", JSON_PATCH, [{}], 400, "operation"),
    ("PATCH", MAPS + "/m", JSON_PATCH, [1], 400, "operation"),
    (
        "PATCH",
        MAPS + "/m",
        JSON_PATCH,
        [{"op": "test", "path": "/kind"}] * 10_001,
        413,
        "10000 operations",
    ),
    (
        "PATCH",
        MAPS + "/m",
        JSON_PATCH,
        [{"op": "add", "path": "/data", "value": {"x": "y" * 100}}]
        + [{"op": "copy", "from": "/data", "path": f"/data/d{n}"} for n in range(40)],
        413,
        "copies at most",
    ),
    (
        "PATCH",
        MAPS + "/m",
        JSON_PATCH,
        [{"op": "add", "path": "/x", "value": [0] * 150_000}]
        + [{"op": "add", "path": "/x/0", "value": 0}] * 4_000,
        413,
        "long lists",
    ),
    (
        "PATCH",
        MAPS + "/m",
        JSON_PATCH,
        [{"op": "add", "path": "/x" * (n + 1), "value": {}} for n in range(150)],
        400,
        "100 levels",
    ),
    ("PATCH", MAPS + "/m", MERGE, b'{"metadata":null}', 400, "metadata"),
    ("DELETE", MAPS + "/m", "application/json", {"gracePeriodSeconds": "x"}, 400, "grace"),
    ("DELETE", MAPS + "/m", "application/json", {"preconditions": 1}, 400, "preconditions"),
    ("DELETE", MAPS + "/m", "application/json", {"propagationPolicy": [1]}, 400, "propagation"),
    ("POST", PODS + "/x/binding", "application/json", {"target": 3}, 400, "target"),
    ("POST", PODS + "/x/eviction", "application/json", {"deleteOptions": 3}, 400, "deleteOptions"),
]


@pytest.mark.parametrize(("method", "path", "kind", "body", "code", "why"), BODIES)
async def test_a_body_that_costs_too_much_is_refused(
    client: Client, method: str, path: str, kind: str, body: Any, code: int, why: str
) -> None:
    started = time.process_time()
    found, status = await request(client, method, path, body, kind)
    assert found == code, status
    assert why in status.get("message", ""), status
    assert len(str(status)) < 2_000
    assert time.process_time() - started < ENOUGH_SECONDS


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("labelSelector=a" + "%20" * 15_000 + "b", "label key"),
        ("labelSelector=" + "a" * 20_000, "characters"),
        ("labelSelector=a" + ",a" * 5_000, "requirements"),
        ("labelSelector=a>" + "9" * 5_000, "label key"),
        ("fieldSelector=" + "%20" * 15_000 + "x%20%20=", "field label"),
        ("limit=%C2%B2", "limit"),
        ("limit=" + "9" * 5_000, "limit"),
        ("resourceVersion=%C2%B2", "resourceVersion"),
        ("resourceVersion=" + "9" * 5_000, "resourceVersion"),
        ("watch=1&timeoutSeconds=" + "9" * 5_000, "timeoutSeconds"),
        ("continue=%00%ff", "continue token"),
        ("continue=" + base64.b64encode(b'["a","b",1e999]').decode(), "continue token"),
        ("continue=" + base64.b64encode(b"[" * 5_000).decode(), "continue token"),
    ],
)
async def test_a_query_that_makes_no_sense_is_refused(client: Client, query: str, why: str) -> None:
    started = time.process_time()
    code, status = await request(client, "GET", f"{MAPS}?{query}")
    assert code == 400, status
    assert why in status["message"]
    assert len(status["message"]) < 1_000
    assert time.process_time() - started < ENOUGH_SECONDS


async def test_long_lists_are_merged_in_bounded_time(client: Client) -> None:
    items = [{"name": f"v{n}", "value": "x"} for n in range(40_000)]
    started = time.process_time()
    merged = patch_formats.strategic_merge_patch({"env": list(items)}, {"env": list(items)})
    assert len(merged["env"]) == 40_000
    target = {"spec": {"containers": items}}
    fields = field_sets.applied(target, custom=False)
    changed, removed = field_sets.compare({"spec": {}}, target, custom=False)
    assert list(field_sets.common(fields, field_sets.minus(changed, removed)))
    field_sets.remove(target, fields, {})
    assert target == {}
    assert time.process_time() - started < ENOUGH_SECONDS


async def test_junk_as_managed_fields_harms_nobody(client: Client) -> None:
    junk = [{"manager": 1}, {"fieldsV1": 3}, "x", {"manager": "a", "operation": "Update"}]
    for fields in (junk, {"a": 1}, 7, [{"manager": "a", "operation": "b", "fieldsV1": {"x": {}}}]):
        change = {"metadata": {"managedFields": fields, "labels": {"a": "b"}}}
        code, status = await request(client, "PATCH", MAPS + "/m", change, MERGE)
        assert code in (200, 400, 422), status
        applied = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}}
        path = f"{MAPS}/m{MANAGER}&force=1"
        code, status = await request(client, "PATCH", path, applied, APPLY)
        assert code == 200, status
        code, status = await request(client, "PATCH", MAPS + "/m", {"data": {"k": "w"}}, MERGE)
        assert code == 200, status


class Bytes:
    """A wire with everything there; what is sent is kept."""

    def __init__(self, data: bytes) -> None:
        self.data, self.sent = data, b""

    async def read(self, count: int) -> bytes:
        if len(self.data) < count:
            raise asyncio.IncompleteReadError(self.data, count)
        data, self.data = self.data[:count], self.data[count:]
        return data

    async def write(self, data: bytes) -> None:
        self.sent += data


def syn_stream(number: int, block: bytes) -> bytes:
    body = struct.pack(">IIH", number, 0, 0) + block
    return struct.pack(">HHI", 0x8003, 1, len(body)) + body


async def streams(data: bytes) -> list[Any]:
    return [stream async for stream in spdy.SpdyConnection(Bytes(data)).accept()]


def compressed(*blocks: bytes) -> list[bytes]:
    deflater = zlib.compressobj(zdict=spdy.DICTIONARY)
    return [deflater.compress(each) + deflater.flush(zlib.Z_SYNC_FLUSH) for each in blocks]


@pytest.mark.parametrize(
    "block",
    [
        struct.pack(">I", 0xFFFFFFFF) + b"\0" * (64 << 20),
        struct.pack(">II", 1, 50 << 20) + b"x" * (50 << 20),
        struct.pack(">II", 1, 0xFFFFFFFF),
        struct.pack(">I", 1),
    ],
)
async def test_compressed_headers_are_bounded(block: bytes) -> None:
    assert await streams(syn_stream(1, compressed(block)[0])) == []


async def test_streams_of_one_connection_are_counted() -> None:
    blocks = compressed(*[struct.pack(">I", 0)] * 1_500)
    frames = [syn_stream(2 * n + 1, block) for n, block in enumerate(blocks)]
    assert len(await streams(b"".join(frames))) == 1_000


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (b"\x82\x00", 1002),  # not masked
        (b"\xf2\x80\0\0\0\0", 1002),  # reserved bits
        (b"\x83\x80\0\0\0\0", 1002),  # unknown opcode
        (b"\x80\x80\0\0\0\0", 1002),  # a continuation of nothing
        (b"\x02\x80\0\0\0\0" * 2, 1002),  # a message in a message
        (b"\x89\xfe\x01\x00\0\0\0\0" + b"x" * 256, 1002),  # a long ping
        (b"\x09\x80\0\0\0\0", 1002),  # half a ping
        (b"\x82\xff" + struct.pack(">Q", 1 << 63) + b"\0" * 4, 1009),
        (b"\x02\x80\0\0\0\0" + b"\x00\x80\0\0\0\0" * 20_000, 1009),  # fragments without end
    ],
)
async def test_a_websocket_that_breaks_the_rules_is_closed(frames: bytes, code: int) -> None:
    wire = Bytes(frames)
    assert await WebSocket(wire).receive() is None
    assert wire.sent[:1] == b"\x88"
    assert struct.unpack(">H", wire.sent[2:4]) == (code,)


async def test_every_odd_path_gets_an_answer(client: Client) -> None:
    for path in ("http://localhost/version", "/version?%00", "/version//", "/%76ersion"):
        code, _ = await request(client, "GET", path)
        assert code == 200, path
    for path in ("//version", f"{MAPS.replace('/default', '//default')}"):
        assert (await request(client, "GET", path))[0] == 404, path
    for raw in ("%00", "%ff", "a%00b", "..", "%2e%2e", quote("ä"), "\xff"):
        code, status = await request(client, "GET", f"{MAPS}/{raw}")
        assert code in (400, 404), (raw, status)


def test_the_alias_bomb_is_one() -> None:
    assert len(BOMB) < 2_000
    assert json.dumps(BOMB).count("*") > 100


async def test_an_object_keeps_its_kind(client: Client) -> None:
    for change in ({"kind": False}, {"kind": "Secret"}, {"apiVersion": "v2"}):
        code, status = await request(client, "PATCH", MAPS + "/m", change, MERGE)
        assert (code, "must be" in status["message"]) == (422, True)
