"""Subresources of a pod: log, attach, exec, portforward, binding and eviction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from trainyard.embedded.api_errors import StatusCause, bad_request, invalid
from trainyard.embedded.apiserver.http.http_messages import Answer, Request, Stream, Upgrade
from trainyard.embedded.apiserver.pod_access import pod_eviction
from trainyard.embedded.apiserver.pod_access.bidirectional import until_one_ends
from trainyard.embedded.apiserver.requests import object_admission, request_body, response_encoding
from trainyard.embedded.apiserver.requests.request_limits import (
    positive_number,
    shortened,
    whole_number,
)
from trainyard.embedded.apiserver.requests.request_target import Target
from trainyard.embedded.kubelet_api import KubeletApi
from trainyard.embedded.registry import Registry
from trainyard.embedded.resources.served.pods_resource import chosen_container
from trainyard.embedded.storage.journal import Object
from trainyard.podruntime.log_reader import LogOptions
from trainyard.schema import times
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError

if TYPE_CHECKING:
    from trainyard.embedded.apiserver.http.upgraded_stream import UpgradedStream
    from trainyard.embedded.apiserver.pod_access.websocket import WebSocket

_REFUSAL_SECONDS = 0.2
_BINARY = "binary.k8s.io"
"""The protocol of logs over a WebSocket, which is also spoken where none is named."""


@dataclass(frozen=True, slots=True)
class PodSubresources:
    """Handlers of the subresources."""

    registry: Registry
    runtime: KubeletApi | None

    async def stream(self, request: Request, target: Target) -> Answer:
        """Attach to a container, run a command in it (exec), or reach its ports (portforward)."""
        pod = self.registry.get(*target.place)
        if self.runtime is None:
            raise bad_request(f"no node runs pods here, so pod {target.name} cannot be reached")
        _check_assigned(pod)
        if request.headers.get("upgrade", "").lower() not in ("websocket", "spdy/3.1"):
            raise bad_request("Upgrade request required")
        if target.subresource in ("attach", "exec"):
            from trainyard.embedded.apiserver.pod_access import exec_streams

            begin = exec_streams.attach if target.subresource == "attach" else exec_streams.execute
            return await begin(request, pod, self.runtime)
        from trainyard.embedded.apiserver.pod_access import port_forward

        return port_forward.respond(request, pod, self.runtime)

    async def log(self, request: Request, target: Target) -> Answer:
        """The log of one container, whole or followed."""
        pod, name = self.registry.get(*target.place), target.name
        _check_log_options(request)
        container = chosen_container(pod, request.query.get("container", ""))
        if self.runtime is None:
            raise bad_request(f"no node runs pods here, so pod {name} has no logs")
        _check_started(pod, container, request)
        options = LogOptions(
            follow=request.flag("follow"),
            tail=whole_number(request, "tailLines"),
            since=_since(request),
            timestamps=request.flag("timestamps"),
            limit=whole_number(request, "limitBytes"),
        )
        over_websocket = None
        if request.headers.get("upgrade", "").lower() == "websocket":
            from trainyard.embedded.apiserver.pod_access import websocket

            _, over_websocket = websocket.negotiate(request, "", (_BINARY,), unnamed=_BINARY)
        chunks = self.runtime.logs(pod, container, options, previous=request.flag("previous"))
        first = asyncio.ensure_future(_first_chunk(chunks))
        # Refusals come before the first byte; a log that is silent so far must not hold up
        # the head of the answer.
        await asyncio.wait({first}, timeout=_REFUSAL_SECONDS)
        if first.done() and isinstance(error := first.exception(), TrainyardError):
            raise bad_request(str(error)) from error
        if over_websocket is not None:
            return Upgrade(
                over_websocket, partial(_send_over_websocket, _with_first(first, chunks))
            )
        return Stream(_with_first(first, chunks), "text/plain")

    async def bind(self, request: Request, target: Target) -> Answer:
        """Assign a pod to a node (POST binding)."""
        binding = object_admission.decode_as(request_body.body_object(request)[0], "Binding")
        wanted = binding.get("target") or {}
        node = wanted.get("name")
        if not node or wanted.get("kind", "Node") not in ("", "Node"):
            raise bad_request("a Binding names a node in target.name")

        def change(copy: Object) -> Object:
            copy.setdefault("spec", {})["nodeName"] = node
            return copy

        await self.registry.update(*target.place, change)
        return response_encoding.json_response(201, response_encoding.SUCCESS)

    async def evict(self, request: Request, target: Target) -> Answer:
        """Evict a pod (POST eviction)."""
        return await pod_eviction.evict(self.registry, request, target)


def _check_log_options(request: Request) -> None:
    """Raises Invalid, or BadRequest for what is not a number."""
    causes = []
    for field, least in (("tailLines", 0), ("limitBytes", 1), ("sinceSeconds", 1)):
        below = request.query.get(field, "").startswith("-")
        number = positive_number(request, field)
        if below or (number < least and request.query.get(field)):
            causes.append(
                StatusCause(field, f"Invalid value: must be greater than or equal to {least}")
            )
    if request.query.get("sinceSeconds") and request.query.get("sinceTime"):
        text = "Forbidden: at most one of sinceTime or sinceSeconds may be specified"
        causes.append(StatusCause("", text, "FieldValueForbidden"))
    if causes:
        raise invalid("PodLogOptions", "", "", causes)


def _check_started(pod: Object, container: str, request: Request) -> None:
    status = pod.get("status") or {}
    statuses = [
        *(status.get("containerStatuses") or ()),
        *(status.get("initContainerStatuses") or ()),
        *(status.get("ephemeralContainerStatuses") or ()),
    ]
    found: dict[str, Any] = next((s for s in statuses if s.get("name") == container), {})
    name = pod["metadata"]["name"]
    if request.flag("previous"):
        if not (found.get("lastState") or {}).get("terminated"):
            raise bad_request(
                f'previous terminated container "{container}" in pod "{name}" not found'
            )
        return
    state = found.get("state") or {}
    if found and ("running" in state or "terminated" in state):
        return
    _check_assigned(pod)
    reason = (state.get("waiting") or {}).get("reason") or "ContainerCreating"
    raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {reason}')


def _check_assigned(pod: Object) -> None:
    if not pod["spec"].get("nodeName"):
        raise bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")


async def _first_chunk(chunks: AsyncIterator[bytes]) -> bytes:
    return await anext(chunks, b"")


async def _with_first(
    first: asyncio.Future[bytes], chunks: AsyncIterator[bytes]
) -> AsyncGenerator[bytes]:
    try:
        yield await first
        async for chunk in chunks:
            yield chunk
    finally:
        first.cancel()


async def _send_over_websocket(chunks: AsyncGenerator[bytes], upgraded: UpgradedStream) -> None:
    """Each chunk in a message of its own, until the log ends or the client is gone."""
    from trainyard.embedded.apiserver.pod_access.websocket import WebSocket

    socket = WebSocket(upgraded)
    await until_one_ends(_send(socket, chunks), _until_client_leaves(socket))


async def _send(socket: WebSocket, chunks: AsyncGenerator[bytes]) -> None:
    async with aclosing(chunks):
        async for chunk in chunks:
            await socket.send(chunk)
    await socket.close()


async def _until_client_leaves(socket: WebSocket) -> None:
    """Returns when the client closes; what it sends is ignored."""
    while await socket.receive() is not None:
        pass


def _since(request: Request) -> datetime | None:
    text = request.query.get("sinceTime", "")
    if text:
        try:
            return times.parse(text)
        except ValueError as error:
            message = f"sinceTime must be an RFC 3339 time, not {shortened(text)!r}"
            raise bad_request(message) from error
    seconds = whole_number(request, "sinceSeconds")
    if seconds is None:
        return None
    try:
        return datetime.now(UTC) - timedelta(seconds=seconds)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)  # before all there is
