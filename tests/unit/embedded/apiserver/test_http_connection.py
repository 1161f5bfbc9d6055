"""The API server over its Unix socket: what clients other than kubectl rely on."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.api_server import ApiServer, ServeError
from trainyard.embedded.registry import Registry
from trainyard.kube.transport import Request
from trainyard.kube.unix_transport import UnixTransport
from trainyard.schema.errors import TrainyardError

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
JOBS = "/apis/batch.tensorstack.dev/v1beta1/namespaces/default/pytorchtrainingjobs"
JOB = {
    "apiVersion": "batch.tensorstack.dev/v1beta1",
    "kind": "PyTorchTrainingJob",
    "metadata": {"name": "j"},
}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@dataclass
class Router:
    """A server and a client of it."""

    registry: Registry
    transport: UnixTransport
    path: Path

    async def __call__(self, method: str, path: str, body: Any = None, **extra: Any) -> Any:
        """Status code and decoded body."""
        data = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
        answer = await self.transport.request(Request(method, path, data, **extra), 10)
        return answer.status, orjson.loads(answer.body)

    @asynccontextmanager
    async def watch(self, query: str, path: str = CONFIG_MAPS) -> AsyncIterator[Lines]:
        request = Request("GET", f"{path}?watch=1&{query}")
        async with self.transport.stream(request, 10) as response:
            yield Lines(response.status, response.chunks)


class Lines:
    """The events of a watch stream."""

    def __init__(self, status: int, chunks: AsyncIterator[bytes]) -> None:
        self.status = status
        self._chunks = chunks
        self._buffer = b""

    async def next(self) -> Any:
        """The next event, or None at the end of the stream."""
        async with asyncio.timeout(120):
            while b"\n" not in self._buffer:
                try:
                    self._buffer += await anext(self._chunks)
                except StopAsyncIteration:
                    return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return orjson.loads(line)

    async def take(self, count: int) -> list[tuple[str, str]]:
        """Type and name of the next events."""
        events = [await self.next() for _ in range(count)]
        return [(each["type"], each["object"]["metadata"]["name"]) for each in events]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Router]:
    registry = Registry(resources=RESOURCES, journal_bytes=4_000)
    await registry.ensure_system_objects()
    server = ApiServer(registry)
    await server.serve_unix(tmp_path / "api.sock")
    transport = UnixTransport(tmp_path / "api.sock")
    yield Router(registry, transport, tmp_path / "api.sock")
    await transport.aclose()
    await server.close()
    await registry.close()


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "data": {}}


async def test_only_this_user_may_open_the_socket(api: Router) -> None:
    assert stat.S_IMODE(api.path.stat().st_mode) == 0o600


async def test_a_socket_lies_in_its_folder_however_deep_that_is(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    server = ApiServer(Registry(resources=RESOURCES))
    await server.serve_unix(deep / "api.sock")
    transport = UnixTransport(deep / "api.sock")
    assert (await transport.request(Request("GET", "/healthz"), 10)).body == b"ok"
    await transport.aclose()
    await server.close()
    assert not list(deep.iterdir())


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    from trainyard.embedded.apiserver.auth import certificates

    made = certificates.ensure(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServeError, match=f"cannot listen on 127.0.0.1:{port}"):
            await ApiServer(Registry(resources=RESOURCES)).serve_tls(
                port, certificate=made.certificate, key=made.key, token="t"
            )


async def test_certificates_are_kept_and_private(tmp_path: Path) -> None:
    from trainyard.embedded.apiserver.auth import certificates

    first = certificates.ensure(tmp_path)
    before = first.certificate.read_bytes()
    assert certificates.ensure(tmp_path).certificate.read_bytes() == before
    assert stat.S_IMODE(first.key.stat().st_mode) == 0o600
    first.certificate.write_text("spoilt")
    assert certificates.ensure(tmp_path).certificate.read_bytes() != before


async def test_create_get_replace_delete(api: Router) -> None:
    code, made = await api("POST", CONFIG_MAPS, config_map("c"))
    assert code == 201
    code, read = await api("GET", f"{CONFIG_MAPS}/c")
    assert (code, read) == (200, made)
    code, changed = await api("PUT", f"{CONFIG_MAPS}/c", {**made, "data": {"k": "v"}})
    assert (code, changed["data"]) == (200, {"k": "v"})
    code, status = await api("PUT", f"{CONFIG_MAPS}/c", made)
    assert (code, status["reason"]) == (409, "Conflict")
    code, status = await api("DELETE", f"{CONFIG_MAPS}/c")
    assert (code, status["status"]) == (200, "Success")
    code, status = await api("GET", f"{CONFIG_MAPS}/c")
    assert (code, status["reason"]) == (404, "NotFound")


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "text"),
    [
        ("POST", CONFIG_MAPS, b"{", 400, "not JSON"),
        ("POST", CONFIG_MAPS, b"[]", 400, "not an object"),
        ("POST", CONFIG_MAPS, {"kind": "Secret", "apiVersion": "v1"}, 400, "does not fit the URL"),
        ("POST", CONFIG_MAPS, {"metadata": {}}, 422, "name"),
        ("POST", CONFIG_MAPS, {"metadata": {"name": "A b"}}, 422, "metadata.name"),
        ("POST", CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "b"}}, 400, "namespace"),
        ("POST", CONFIG_MAPS, {"metadata": {"name": "a", "labels": {"x": "ä"}}}, 422, "labels"),
        ("PUT", f"{CONFIG_MAPS}/a", {"metadata": {"name": "b"}}, 400, "name"),
        ("GET", "/api/v1/nonsense", None, 404, "could not find"),
        ("GET", f"{CONFIG_MAPS}?labelSelector=a%3D%3D%3Db", None, 400, "requirement"),
        ("GET", f"{CONFIG_MAPS}?fieldSelector=data.x%3D1", None, 400, "not supported"),
        ("GET", f"{CONFIG_MAPS}?continue=x", None, 400, "continue token"),
        ("DELETE", f"{CONFIG_MAPS}/a?dryRun=Some", None, 422, "dryRun"),
        ("POST", f"{CONFIG_MAPS}/a", {}, 405, "not supported"),
        ("POST", JOBS, {**JOB, "spec": 3}, 422, "spec"),
    ],
)
async def test_a_bad_request_gets_a_status_that_says_why(
    api: Router, method: str, path: str, body: Any, code: int, text: str
) -> None:
    found, status = await api(method, path, body)
    assert (found, status["kind"]) == (code, "Status")
    assert text in status["message"]


async def test_a_body_that_is_too_large_is_refused(api: Router) -> None:
    answer = await api.transport.request(Request("POST", CONFIG_MAPS, b" " * (4 << 20)), 10)
    assert answer.status == 413


async def test_bytes_that_are_not_http_are_refused(api: Router) -> None:
    reader, writer = await asyncio.open_unix_connection(str(api.path))
    writer.write(os.urandom(10) + b"\r\n\r\n")
    async with asyncio.timeout(120):
        assert b"400 Bad Request" in await reader.read()
    writer.close()


async def test_pipelined_requests_are_answered_in_turn(api: Router) -> None:
    reader, writer = await asyncio.open_unix_connection(str(api.path))
    request = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"
    writer.write(request * 3 + request.replace(b"Host", b"Connection: close\r\nHost"))
    async with asyncio.timeout(120):
        assert (await reader.read()).count(b"200 OK") == 4
    writer.close()


async def test_deleting_a_collection_honours_selectors(api: Router) -> None:
    for name in ("a", "b", "c"):
        await api("POST", CONFIG_MAPS, config_map(name, keep="yes" if name == "c" else "no"))
    await api("DELETE", f"{CONFIG_MAPS}?labelSelector=keep%3Dno")
    assert [each["metadata"]["name"] for each in api.registry.list("configmaps")] == ["c"]


async def test_pages_show_every_object_that_was_there_throughout(api: Router) -> None:
    for number in range(10):
        await api("POST", CONFIG_MAPS, config_map(f"c{number}"))
    _, page = await api("GET", f"{CONFIG_MAPS}?limit=4")
    assert page["metadata"]["remainingItemCount"] == 6
    names = [each["metadata"]["name"] for each in page["items"]]
    await api("DELETE", f"{CONFIG_MAPS}/c1")
    while token := page["metadata"].get("continue"):
        _, page = await api("GET", f"{CONFIG_MAPS}?limit=4&continue={token}")
        names += [each["metadata"]["name"] for each in page["items"]]
    assert names == [f"c{number}" for number in range(10)]


async def test_a_watch_goes_on_from_a_version(api: Router) -> None:
    _, made = await api("POST", CONFIG_MAPS, config_map("a"))
    await api("POST", CONFIG_MAPS, config_map("b"))
    version = made["metadata"]["resourceVersion"]
    async with api.watch(f"resourceVersion={version}") as lines:
        assert await lines.take(1) == [("ADDED", "b")]
        await api("DELETE", f"{CONFIG_MAPS}/a")
        deleted = await lines.next()
    assert deleted["type"] == "DELETED"
    assert int(deleted["object"]["metadata"]["resourceVersion"]) > int(version)


async def test_a_watch_from_zero_begins_with_what_there_is(api: Router) -> None:
    await api("POST", CONFIG_MAPS, config_map("a"))
    async with api.watch("") as lines:
        assert await lines.take(1) == [("ADDED", "a")]


@pytest.mark.parametrize("version", ["1", "999999"], ids=["too old", "from another life"])
async def test_a_watch_that_cannot_be_resumed_is_gone(api: Router, version: str) -> None:
    for number in range(40):
        await api("POST", CONFIG_MAPS, config_map(f"c{number}"))
    async with api.watch(f"resourceVersion={version}") as lines:
        event = await lines.next()
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        assert await lines.next() is None


async def test_objects_enter_and_leave_a_selection(api: Router) -> None:
    async with api.watch("labelSelector=tier%3Dgold") as lines:
        await api("POST", CONFIG_MAPS, config_map("a", tier="tin"))
        patch = {"metadata": {"labels": {"tier": "gold"}}}
        merge = {"content_type": "application/merge-patch+json"}
        await api("PATCH", f"{CONFIG_MAPS}/a", patch, **merge)
        await api("PATCH", f"{CONFIG_MAPS}/a", {"data": {"x": "y"}}, **merge)
        await api("PATCH", f"{CONFIG_MAPS}/a", {"metadata": {"labels": None}}, **merge)
        await api("DELETE", f"{CONFIG_MAPS}/a")
        await api("POST", CONFIG_MAPS, config_map("b", tier="gold"))
        assert await lines.take(4) == [
            ("ADDED", "a"),
            ("MODIFIED", "a"),
            ("DELETED", "a"),
            ("ADDED", "b"),
        ]


async def test_a_watch_ends_in_time_with_a_bookmark(api: Router) -> None:
    async with api.watch("timeoutSeconds=1&allowWatchBookmarks=true") as lines:
        event = await lines.next()
        assert event["type"] == "BOOKMARK"
        assert event["object"]["metadata"]["resourceVersion"] == str(api.registry.revision)
        assert await lines.next() is None


async def test_initial_events_end_with_their_bookmark(api: Router) -> None:
    await api("POST", CONFIG_MAPS, config_map("a"))
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with api.watch(query) as lines:
        assert await lines.take(1) == [("ADDED", "a")]
        mark = await lines.next()
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_table_watch_names_its_columns_once(api: Router) -> None:
    request = Request("GET", f"{CONFIG_MAPS}?watch=1", accept=TABLE)
    await api("POST", CONFIG_MAPS, config_map("a"))
    await api("POST", CONFIG_MAPS, config_map("b"))
    async with api.transport.stream(request, 10) as response:
        lines = Lines(response.status, response.chunks)
        first, second = await lines.next(), await lines.next()
    assert [each["name"] for each in first["object"]["columnDefinitions"]] == [
        "Name",
        "Data",
        "Age",
    ]
    assert second["object"]["columnDefinitions"] == []
    assert second["object"]["rows"][0]["cells"][:2] == ["b", 0]


METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


async def test_metadata_alone_is_told_to_whom_it_is_enough(api: Router) -> None:
    """As client-go's metadata client asks, which collects garbage."""
    await api("POST", CONFIG_MAPS, config_map("a"))
    _, one = await api("GET", f"{CONFIG_MAPS}/a", accept=METADATA)
    assert (one["kind"], one["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert one["metadata"]["name"] == "a"
    assert one.keys() == {"kind", "apiVersion", "metadata"}
    many = METADATA.replace("Metadata;", "MetadataList;")
    preferred = many.replace("json", "vnd.kubernetes.protobuf")
    _, listed = await api("GET", CONFIG_MAPS, accept=f"{preferred},{many}")
    assert listed["kind"] == "PartialObjectMetadataList"
    assert [each["kind"] for each in listed["items"]] == ["PartialObjectMetadata"]
    request = Request("GET", f"{CONFIG_MAPS}?watch=1", accept=METADATA)
    async with api.transport.stream(request, 10) as response:
        assert (await Lines(response.status, response.chunks).next())["object"] == one


@pytest.mark.parametrize(
    ("accept", "code"),
    [
        ("text/html", 406),
        ("application/vnd.kubernetes.protobuf", 406),
        ("application/json;as=Chair;g=meta.k8s.io;v=v1", 406),
        ("application/json;as=Table;g=example.com;v=v1", 406),
        ("application/json;as=Chair,application/json;q=0.1", 200),
        ("text/html, */*;q=0.8", 200),
        ("application/yaml", 200),
        ("application/json;q=x", 200),
    ],
)
async def test_what_a_client_does_not_take_is_not_sent(api: Router, accept: str, code: int) -> None:
    assert (await api("GET", CONFIG_MAPS, accept=accept))[0] == code


async def test_nothing_is_done_whose_answer_is_not_taken(api: Router) -> None:
    assert (await api("POST", CONFIG_MAPS, config_map("a"), accept="text/html"))[0] == 406
    assert (await api("GET", f"{CONFIG_MAPS}/a"))[0] == 404


async def test_events_are_shown_in_both_groups(api: Router) -> None:
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p"},
        "reason": "Started",
        "message": "it runs",
    }
    await api("POST", "/api/v1/namespaces/default/events", event)
    newer = "/apis/events.k8s.io/v1/namespaces/default/events"
    _, shown = await api("GET", f"{newer}?fieldSelector=regarding.name%3Dp")
    assert shown["items"][0]["note"] == "it runs"
    assert shown["items"][0]["apiVersion"] == "events.k8s.io/v1"
    code, made = await api(
        "POST", newer, {"metadata": {"name": "f"}, "note": "n", "regarding": {"kind": "Pod"}}
    )
    assert (code, made["note"]) == (201, "n")
    assert api.registry.get("events", "default", "f")["message"] == "n"


async def test_status_is_written_apart(api: Router) -> None:
    await api.registry.create(
        "pytorchtrainingjobs.batch.tensorstack.dev", {"metadata": {"name": "j"}, "spec": {}}
    )
    _, job = await api("GET", f"{JOBS}/j")
    body = {**job, "spec": {"changed": True}, "status": {"phase": "Running"}}
    code, stored = await api("PUT", f"{JOBS}/j/status", body)
    assert (code, stored["spec"], stored["status"]) == (200, {}, {"phase": "Running"})


async def test_a_refused_write_leaves_the_object_alone(api: Router) -> None:
    _, made = await api("POST", CONFIG_MAPS, config_map("c"))
    patch = [{"op": "test", "path": "/data", "value": {"not": "so"}}]
    code, _ = await api(
        "PATCH", f"{CONFIG_MAPS}/c", patch, content_type="application/json-patch+json"
    )
    assert code == 422
    assert api.registry.get("configmaps", "default", "c") == made


async def test_binding_and_eviction(api: Router) -> None:
    pods = "/api/v1/namespaces/default/pods"
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await api("POST", pods, pod)
    code, _ = await api("POST", f"{pods}/p/binding", {"target": {"kind": "Node", "name": "n"}})
    assert code == 201
    assert api.registry.get("pods", "default", "p")["spec"]["nodeName"] == "n"
    changes = api.registry.watch("pods", api.registry.revision)
    eviction = {"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 0}}
    code, _ = await api("POST", f"{pods}/p/eviction?dryRun=All", eviction)
    assert code == 201
    code, fields = await api("POST", f"{pods}/p/eviction", eviction)
    assert (code, fields["status"]) == (201, "Success")
    assert api.registry.list("pods") == []
    marked, gone = await anext(changes), await anext(changes)
    assert (marked.type, gone.type) == ("MODIFIED", "DELETED")
    assert "deletionTimestamp" not in marked.object["metadata"]
    (condition,) = marked.object["status"]["conditions"]
    fields = [condition[key] for key in ("type", "status", "reason")]
    assert fields == ["DisruptionTarget", "True", "EvictionByEvictionAPI"]
    api.registry.unsubscribe(changes)


class SilentRuntime:
    """A node whose containers have not written anything yet."""

    def __init__(self) -> None:
        self.written = asyncio.Event()
        self.readers = 0

    async def logs(self, *_: Any, **__: Any) -> AsyncIterator[bytes]:
        self.readers += 1
        try:
            async with asyncio.timeout(120):
                await self.written.wait()
            yield b"at last\n"
        finally:
            self.readers -= 1

    async def exec(self, *_: Any, **__: Any) -> Any:
        raise TrainyardError("no commands run here")

    async def attach(self, *_: Any, **__: Any) -> Any:
        raise TrainyardError("nothing can be attached to here")

    async def connect(self, *_: Any) -> Any:
        raise TrainyardError("no ports are open here")


@asynccontextmanager
async def silent_pod(folder: Path) -> AsyncIterator[SilentRuntime]:
    """A pod `p` that runs, of a server at `api.sock`."""
    registry, runtime = Registry(resources=RESOURCES), SilentRuntime()
    await registry.ensure_system_objects()
    server = ApiServer(registry, runtime)
    await server.serve_unix(folder / "api.sock")
    pod = {
        "metadata": {"name": "p"},
        "spec": {"nodeName": "here", "containers": [{"name": "c", "image": "i"}]},
    }
    await registry.create("pods", pod)
    states = [{"name": "c", "state": {"running": {}}}]
    await registry.update(
        "pods",
        "default",
        "p",
        lambda copy: {**copy, "status": {"phase": "Running", "containerStatuses": states}},
        subresource="status",
    )
    try:
        yield runtime
    finally:
        await server.close()
        await registry.close()


LOG = "/api/v1/namespaces/default/pods/p/log?follow=true"


async def test_a_silent_log_is_answered_before_it_has_a_line(tmp_path: Path) -> None:
    async with silent_pod(tmp_path) as runtime:
        transport = UnixTransport(tmp_path / "api.sock")
        async with transport.stream(Request("GET", LOG), 5) as response:
            assert response.status == 200
            runtime.written.set()
            async with asyncio.timeout(120):
                assert b"".join([chunk async for chunk in response.chunks]) == b"at last\n"
        await transport.aclose()


@pytest.mark.parametrize("protocols", [["binary.k8s.io"], []], ids=str)
async def test_a_log_comes_over_a_websocket(tmp_path: Path, protocols: list[str]) -> None:
    connector = aiohttp.UnixConnector(str(tmp_path / "api.sock"))
    url = f"http://localhost{LOG}"
    async with silent_pod(tmp_path) as runtime, aiohttp.ClientSession(connector=connector) as made:
        async with made.ws_connect(url, protocols=protocols) as gone:
            assert gone.protocol == (protocols[0] if protocols else None)
        async with asyncio.timeout(120):
            while runtime.readers:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        async with made.ws_connect(url, protocols=protocols) as log, asyncio.timeout(120):
            runtime.written.set()
            assert [message.data async for message in log] == [b"at last\n"]
            assert log.close_code == 1000


async def test_a_log_is_not_sent_in_a_protocol_that_nobody_speaks(tmp_path: Path) -> None:
    connector = aiohttp.UnixConnector(str(tmp_path / "api.sock"))
    async with silent_pod(tmp_path), aiohttp.ClientSession(connector=connector) as made:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await made.ws_connect(f"http://localhost{LOG}", protocols=["v4.channel.k8s.io"])
        assert refused.value.status == 400


async def test_openapi_defines_what_its_paths_and_bodies_hold(api: Router) -> None:
    _, index = await api("GET", "/openapi/v3")
    for path in index["paths"]:
        _, document = await api("GET", f"/openapi/v3/{path}")
        for where, operations in document["paths"].items():
            defined = {each["name"] for each in operations["parameters"] if each["in"] == "path"}
            assert defined == set(re.findall(r"{(\w+)}", where)), where
            for verb in operations.keys() & {"post", "put"}:
                operation = operations[verb]
                assert (
                    operation["x-kubernetes-action"] == "connect"
                    or operation["requestBody"]["required"]
                )


async def test_openapi_describes_lists_and_their_parameters(api: Router) -> None:
    _, document = await api("GET", "/openapi/v3/api/v1")
    for where in ("/api/v1/pods", "/api/v1/namespaces/{namespace}/pods"):
        listing = document["paths"][where]["get"]
        assert listing["x-kubernetes-action"] == "list"
        asked = {each["name"] for each in listing["parameters"]}
        assert {"labelSelector", "limit", "watch"} <= asked
        answer = listing["responses"]["200"]["content"]["application/json"]["schema"]
        assert answer == {"$ref": "#/components/schemas/io.k8s.api.core.v1.PodList"}
    named = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]
    assert named.keys() == {"parameters", "get", "put", "patch", "delete"}
    assert document["components"]["schemas"]["io.k8s.api.core.v1.PodList"]["required"] == ["items"]


async def test_openapi_describes_what_discovery_tells_of(api: Router) -> None:
    """Subresources too: every path, every verb, and schemas that are there."""
    verbs = {"get": "get", "create": "post", "update": "put", "patch": "patch", "delete": "delete"}
    _, index = await api("GET", "/openapi/v3")
    below = set()
    for path in index["paths"]:
        if path.count("/") != (1 if path.startswith("api/") else 2):
            continue
        _, document = await api("GET", f"/openapi/v3/{path}")
        _, discovery = await api("GET", f"/{path}")
        for each in discovery["resources"]:
            plural, _, name = each["name"].partition("/")
            of_all = f"/{path}/namespaces/{{namespace}}" if each["namespaced"] else f"/{path}"
            found = document["paths"][f"{of_all}/{plural}/{{name}}{'/' * bool(name)}{name}"]
            if name:
                below.add(each["name"])
                assert found.keys() - {"parameters"} == {verbs[verb] for verb in each["verbs"]}
        referred = set(re.findall(r'"\$ref": "#/components/schemas/([^"]*)"', json.dumps(document)))
        assert referred <= document["components"]["schemas"].keys()
    assert {"pods/exec", "pods/eviction", "pytorchtrainingjobs/scale", "nodes/status"} <= below
    _, document = await api("GET", "/openapi/v3/api/v1")
    run = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/exec"]["post"]
    assert run["x-kubernetes-action"] == "connect"
    assert "command" in {each["name"] for each in run["parameters"]}


async def test_openapi_of_version_2_says_what_that_of_version_3_does(api: Router) -> None:
    _, document = await api("GET", "/openapi/v2")
    assert document["swagger"] == "2.0"
    _, index = await api("GET", "/openapi/v3")
    for path in index["paths"]:
        _, newer = await api("GET", f"/openapi/v3/{path}")
        assert newer["paths"].keys() <= document["paths"].keys()
        assert newer["components"]["schemas"].keys() <= document["definitions"].keys()
    text = json.dumps(document)
    referred = set(re.findall(r'"\$ref": "([^"]*)"', text))
    assert referred <= {f"#/definitions/{name}" for name in document["definitions"]}
    job = "dev.tensorstack.batch.v1beta1.PyTorchTrainingJob"
    create = document["paths"][
        "/apis/batch.tensorstack.dev/v1beta1/namespaces/{namespace}/pytorchtrainingjobs"
    ]["post"]
    (body,) = [each for each in create["parameters"] if each["in"] == "body"]
    assert body["schema"] == {"$ref": f"#/definitions/{job}"}
    assert "oneOf" not in text


async def test_a_refusal_is_written_as_kubernetes_writes_it(api: Router) -> None:
    """Some clients' own suites compare the text."""
    path = "/api/v1/namespaces/default/pods/none"
    answer = await api.transport.request(Request("GET", path, b""), 60)
    assert answer.body == (
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
        b'"message":"pods \\"none\\" not found","reason":"NotFound",'
        b'"details":{"name":"none","kind":"pods"},"code":404}\n'
    )
