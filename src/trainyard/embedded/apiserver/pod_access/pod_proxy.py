"""The subresource proxy of pods and Services: forwards an HTTP request to a port of a pod.

https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import AsyncGenerator
from urllib.parse import quote

import httptools

from trainyard.embedded.api_errors import bad_request, not_found
from trainyard.embedded.apiserver.http.http_messages import (
    Answer,
    Request,
    Response,
    Stream,
    Upgrade,
)
from trainyard.embedded.apiserver.http.upgraded_stream import UpgradedStream
from trainyard.embedded.apiserver.pod_access.bidirectional import until_one_ends
from trainyard.embedded.apiserver.requests.request_target import Target
from trainyard.embedded.kubelet_api import KubeletApi, PodConnection
from trainyard.embedded.registry import Registry
from trainyard.embedded.service_endpoints import route_targets
from trainyard.embedded.storage.journal import Object
from trainyard.kube.errors import ApiError, NotFound, ServerError
from trainyard.kube.resources import ENDPOINTS, PODS
from trainyard.schema.errors import TrainyardError

_BEFORE = re.compile(r"(?:/+[^/]+){7}")
"""Of a path: all up to `proxy`."""
_CHUNK = 64 << 10
_CONNECT_SECONDS = 10.0
_OF_ONE_CONNECTION = ("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade")
"""Headers that are not passed on (RFC 9110, section 7.6.1)."""
_OURS = (*_OF_ONE_CONNECTION, "authorization", "content-length", "expect", "host")
"""Of a request: also its token, which no pod may see."""
_BODILESS = (204, 304)


async def respond(
    request: Request, target: Target, registry: Registry, runtime: KubeletApi | None
) -> Answer:
    """The answer from the port; 503 where there is none."""
    path = _BEFORE.sub("", request.path, count=1)
    upgrade = request.headers.get("upgrade", "")
    if not path and not upgrade:  # links of the page would lead nowhere (issue 4958)
        question = f"?{request.query_string}" if request.query_string else ""
        location = f"{_quoted(request.path)}/{question}"
        return Response(301, b"", "text/plain", [("Location", location)])
    connection = await _connect(target, registry, runtime)
    try:
        await connection.write(_request_head(request, path, target, upgrade) + request.body)
        answer = _Answer(connection)
        await answer.head()
        if answer.is_switch and not upgrade:
            raise ValueError("it changed to another protocol without being asked")
    except (OSError, ValueError) as error:
        await connection.close()
        raise _unreachable(f"{error}") from error
    except BaseException:
        await connection.close()
        raise
    return answer.upgrade() if answer.is_switch else answer.stream(request.method)


def _request_head(request: Request, path: str, target: Target, upgrade: str) -> bytes:
    where = _quoted(path or "/")
    where += f"?{request.query_string}" if request.query_string else ""
    lines = [f"{request.method} {where} HTTP/1.1", f"Host: {request.headers.get('host', '')}"]
    lines += [f"{name}: {value}" for name, value in request.headers.items() if name not in _OURS]
    lines.append(f"X-Forwarded-Uri: {_quoted(request.path)}")
    lines += ["Connection: Upgrade", f"Upgrade: {upgrade}"] if upgrade else ["Connection: close"]
    if request.body or request.method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(request.body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def _quoted(path: str) -> str:
    return quote(path, safe="/:@!$&'()*+,;=~")


# Where to.


async def _connect(target: Target, registry: Registry, runtime: KubeletApi | None) -> PodConnection:
    is_pod = target.served.name == PODS.full_name
    name, port = _target_name_and_port(target)
    found = registry.get(target.storage, target.namespace or "", name)
    pod, number = _pod_port(found, port) if is_pod else _service_target(found, port, registry)
    if runtime is None:
        raise _unreachable("no node runs pods here")
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await runtime.connect(pod, number)
    except TimeoutError:
        raise _unreachable(f"no connection within {_CONNECT_SECONDS:g} s") from None
    except TrainyardError as error:
        raise _unreachable(f"{error}") from error


def _target_name_and_port(target: Target) -> tuple[str, str]:
    """Name and port of `[http:]NAME[:PORT]`; an empty port is the first one."""
    scheme, *rest = parts = target.name.split(":")
    if len(parts) == 3 and scheme in ("", "http"):
        return rest[0], rest[1]
    if len(parts) == 3 and scheme == "https":
        raise bad_request("only http is passed on to pods here, not https")
    if len(parts) > 2 or not parts[0]:
        raise not_found(target.served.name, target.name)
    return parts[0], "".join(rest)


def _pod_port(pod: Object, port: str) -> tuple[Object, int]:
    containers = pod["spec"]["containers"]
    listed = [each["containerPort"] for c in containers for each in c.get("ports") or ()]
    number = port or str((listed or [80])[0])
    if not number.isdecimal() or not 0 < int(number) < 1 << 16:
        raise bad_request(f"a port of a pod is a number from 1 to 65535, not {number!r}")
    return pod, int(number)


def _service_target(service: Object, port: str, registry: Registry) -> tuple[Object, int]:
    spec, name = service["spec"], service["metadata"]["name"]
    ports = spec.get("ports") or ()
    chosen = [p for p in ports if port in (p.get("name") or "", str(p["port"]))]
    if not port and len(ports) == 1:
        chosen = list(ports)
    if not chosen:
        raise _unavailable(f"no service port {port!r} found for service {name!r}")
    namespace, endpoints = service["metadata"]["namespace"], {}
    with contextlib.suppress(NotFound):
        endpoints = registry.get(ENDPOINTS.full_name, namespace, name)
    pods = registry.list(PODS.full_name, namespace)
    found = route_targets(service, chosen[0], pods, endpoints)
    if not found:
        raise _unavailable(f"no endpoints available for service {name!r}")
    pod, number = random.choice(found)
    return dict(pod), number


def _unavailable(text: str) -> ApiError:
    return ServerError(text, code=503, reason="ServiceUnavailable")


def _unreachable(why: str) -> ApiError:
    return _unavailable(f"error trying to reach service: {why}")


# What it answers.


class _Answer:
    """A response that is being read."""

    def __init__(self, connection: PodConnection) -> None:
        self._connection = connection
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._rest = b""
        self._is_head_read = self._is_complete = False
        self.is_switch = False

    # Called by the parser.

    def on_message_begin(self) -> None:
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        self._is_head_read = self._parser.get_status_code() >= 200

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._is_complete = self._is_head_read

    async def head(self) -> None:
        """Read status line and headers; raises OSError, or ValueError for what is not HTTP."""
        while not self._is_head_read and not self.is_switch:
            if not await self._read():
                raise ValueError("the connection was closed without an answer")

    async def _read(self) -> bool:
        data = await self._connection.read(_CHUNK)
        try:
            if data:
                self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.is_switch, self._rest = True, data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            raise ValueError("what listens there does not speak HTTP") from error
        return bool(data)

    def _forwarded_headers(self) -> list[tuple[str, str]]:
        hidden = (*_OF_ONE_CONNECTION, "content-type")
        return [pair for pair in self._headers if pair[0].lower() not in hidden]

    def _header(self, name: str) -> str:
        return next((value for key, value in self._headers if key.lower() == name), "")

    def stream(self, method: str) -> Stream:
        """The answer, with its body as it arrives."""
        status = self._parser.get_status_code()
        bare = method == "HEAD" or status in _BODILESS
        sized = bare or bool(self._header("content-length"))
        headers = self._forwarded_headers()
        chunks = self._chunks(ends_with_connection=not sized, bare=bare)
        return Stream(chunks, self._header("content-type"), status, headers, sized)

    async def _chunks(self, *, ends_with_connection: bool, bare: bool) -> AsyncGenerator[bytes]:
        ends_with_connection &= not self._header("transfer-encoding")
        try:
            while not bare:
                for piece in self._body:
                    yield piece
                self._body.clear()
                if self._is_complete:
                    return
                if not await self._read():
                    if not self._is_complete and not ends_with_connection:
                        raise ConnectionError("the answer from the pod broke off")
                    return
        finally:
            await self._connection.close()

    def upgrade(self) -> Upgrade:
        """Switch the client to the protocol to which the pod has switched."""

        async def run(wire: UpgradedStream) -> None:
            async def upstream() -> None:
                while data := await wire.read_some(_CHUNK):
                    await self._connection.write(data)
                await self._connection.write_eof()

            async def downstream() -> None:
                await wire.write(self._rest)
                while data := await self._connection.read(_CHUNK):
                    await wire.write(data)

            try:
                await until_one_ends(upstream(), downstream())
            finally:
                await self._connection.close()

        headers = [pair for pair in self._headers if pair[0].lower() != "content-length"]
        return Upgrade(headers, run)
