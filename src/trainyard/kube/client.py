"""The Kubernetes client: plain dicts in and out, over whichever transport reaches the server.

Decoding a pod into the classes of the usual Python clients costs 10 to 100 times as much as
orjson alone, so objects stay dicts here and callers decode the few fields they need.
"""

from __future__ import annotations

import asyncio
import copy
import json
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson

from trainyard.kube.errors import (
    ApiError,
    StreamError,
    TooManyRequests,
    Unreachable,
    error_of_response,
    error_of_status,
)
from trainyard.kube.measured_transport import MeasuredTransport, OnResponse
from trainyard.kube.paced_transport import PacedTransport, RequestLimits
from trainyard.kube.pagination import PAGE_SIZE, Page, decode_object, read_pages
from trainyard.kube.resources import FIELD_MANAGER, PODS, Resource
from trainyard.kube.transport import (
    Params,
    Request,
    Response,
    StreamResponse,
    Transport,
    lines,
    with_query,
)
from trainyard.schema.dataclass import dataclass

Object = dict[str, Any]

_WRITE = f"?fieldValidation=Strict&fieldManager={FIELD_MANAGER}"
_DRY_RUN = f"?dryRun=All&fieldManager={FIELD_MANAGER}"
_MAX_RETRY_AFTER_SECONDS = 30.0


class WatchEvent(NamedTuple):
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, and the object."""

    type: str
    object: Object


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects objects of a resource, by label, name or field selector."""

    labels: str = ""
    name: str = ""
    fields: str = ""

    @property
    def params(self) -> Params:
        """The query parameters."""
        name = f"metadata.name={self.name}" if self.name else ""
        fields = ",".join(each for each in (name, self.fields) if each)
        return {"labelSelector": self.labels, "fieldSelector": fields}


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which part of a container's log to read, and how."""

    follow: bool = False
    previous: bool = False
    tail: int | None = None
    timestamps: bool = False
    since_seconds: int | None = None
    since_time: str = ""
    """An RFC 3339 time; servers may round it down to whole seconds."""


_WHOLE_LOG = LogOptions()


class Client:
    """Requests to one API server.

    Every request ends within `timeout_seconds`. 429 answers are retried up to `max_retries`
    times, after the time the server asks for; nothing else is retried here, since only the
    caller knows whether a write may be repeated.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        timeout_seconds: float = 30.0,
        max_retries: int = 4,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
        namespace: str = "default",
        quiet: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self._transport = transport
        self.quiet = quiet
        """Waits until few of our requests are in flight, for so many seconds at most, if paced."""
        self._timeout = timeout_seconds
        self._max_retries = max_retries
        self._sleep = sleep
        self._jitter = jitter
        self.namespace = namespace
        """The namespace that the kubeconfig's context names."""

    @classmethod
    def unix(cls, path: str | Path, *, timeout_seconds: float = 30.0) -> Client:
        """A client of the embedded API server at a Unix socket."""
        from trainyard.kube.unix_transport import UnixTransport

        return cls(UnixTransport(path), timeout_seconds=timeout_seconds)

    @classmethod
    async def from_kubeconfig(
        cls,
        path: str | Path | None = None,
        context: str | None = None,
        *,
        timeout_seconds: float = 30.0,
    ) -> Client:
        """A client of the cluster that a kubeconfig names, or of the one this pod runs in.

        Without `path`: `$KUBECONFIG`, then `~/.kube/config`, then the pod's service account.
        Raises `ConfigError` when none of them can be used.
        """
        from trainyard.kube.cluster_transport import connect

        transport, namespace = await connect(path, context)
        return cls(transport, timeout_seconds=timeout_seconds, namespace=namespace)

    @classmethod
    async def paced(
        cls, path: str | Path | None, context: str | None, limits: RequestLimits
    ) -> Client:
        """The same, for a client of many requests: it keeps to limits."""
        from trainyard.kube.cluster_transport import connect

        transport, namespace = await connect(path, context, connections=0)
        paced, timeout = PacedTransport(transport, limits), limits.timeout_seconds
        return cls(paced, timeout_seconds=timeout, namespace=namespace, quiet=paced.quiet)

    def with_metrics(self, on_response: OnResponse) -> Client:
        """Return a client of the same connections that calls `on_response` for each request."""
        twin = copy.copy(self)
        twin._transport = MeasuredTransport(self._transport, on_response)
        return twin

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()

    async def server_version(self) -> tuple[int, int]:
        """Major and minor version of Kubernetes: (1, 33)."""
        version = await self._json("GET", "/version", "read the server's version")
        found = [re.match(r"\d+", str(version.get(part, ""))) for part in ("major", "minor")]
        major, minor = (int(each[0]) if each else 0 for each in found)  # minor may be "33+"
        return major, minor

    async def get(
        self, resource: Resource, name: str, namespace: str | None = None, *, subresource: str = ""
    ) -> Object:
        """Read one object."""
        path = resource.path(namespace, name, subresource)
        return await self._json("GET", path, f"read {_title(resource, namespace, name)}")

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        which: Selection = EVERYTHING,
    ) -> tuple[list[Object], str]:
        """Read a whole collection, page by page: its items and its resourceVersion.

        `namespace` None reads all namespaces. Items carry `apiVersion` and `kind` only if the
        server put them there (kube-apiserver leaves them out of lists).
        """
        items: list[Object] = []
        page = Page([], "")
        async with aclosing(self.pages(resource, namespace, which)) as found:
            async for page in found:
                items += page.items
        return items, page.resource_version

    def pages(
        self, resource: Resource, namespace: str | None = None, which: Selection = EVERYTHING
    ) -> AsyncGenerator[Page]:
        """Read a collection a page at a time, which needs memory for one page only.

        Raises `Gone` if it takes longer than the server keeps the list: read all of it again.
        """
        path, what = resource.path(namespace), f"list {_title(resource, namespace)}"

        async def get(token: str) -> bytes:
            url = with_query(path, {"limit": PAGE_SIZE, **which.params, "continue": token})
            return (await self.raw(Request("GET", url), what)).body

        return read_pages(get, what)

    async def create(
        self,
        resource: Resource,
        body: Object,
        namespace: str | None = None,
        *,
        dry_run: bool = False,
    ) -> Object:
        """Create an object in `namespace` (default: its own) and return it as stored.

        With `dry_run` nothing is stored, and fields that the server does not know are left out.
        """
        metadata = body.get("metadata") or {}
        namespace = namespace or metadata.get("namespace")
        name = metadata.get("name") or f"{metadata.get('generateName', '')}*"
        what = f"create {_title(resource, namespace, name)}"
        url = resource.path(namespace) + (_DRY_RUN if dry_run else _WRITE)
        return await self._json("POST", url, what, body)

    async def replace(self, resource: Resource, body: Object, *, subresource: str = "") -> Object:
        """Write a whole object or subresource; `Conflict` unless its resourceVersion is current."""
        metadata = body["metadata"]
        namespace, name = metadata.get("namespace"), metadata["name"]
        what = f"update {_title(resource, namespace, name, subresource)}"
        url = resource.path(namespace, name, subresource) + _WRITE
        return await self._json("PUT", url, what, body)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        namespace: str | None = None,
        *,
        subresource: str = "",
    ) -> Object:
        """Patch an object (RFC 7396; RFC 6902 where `body` is a list); a resourceVersion in `body`
        guards against races."""
        what = f"patch {_title(resource, namespace, name, subresource)}"
        url = resource.path(namespace, name, subresource) + _WRITE
        kind = "json-patch" if isinstance(body, list) else "merge-patch"
        return await self._json("PATCH", url, what, body, f"application/{kind}+json")

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
        propagation: Literal["Background", "Foreground", "Orphan"] | None = None,
    ) -> Object:
        """Delete an object; `Conflict` if a given `uid` is not its own.

        Returns the object when it is still terminating, else a Status.
        """
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation is not None:
            options["propagationPolicy"] = propagation
        what = f"delete {_title(resource, namespace, name)}"
        return await self._json("DELETE", resource.path(namespace, name), what, options)

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        which: Selection = EVERYTHING,
        *,
        resource_version: str,
        timeout_seconds: int | None = None,
        idle_seconds: float | None = None,
    ) -> AsyncGenerator[WatchEvent]:
        """Follow changes after `resource_version`, bookmarks included.

        Ends when the server ends the watch, at the latest after `timeout_seconds`. Raises `Gone`
        when the resourceVersion is too old, and `StreamError` when nothing at all arrives for
        `idle_seconds`. Close it (`contextlib.aclosing`) to free the connection at once.
        """
        params: Params = {
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": resource_version,
            **which.params,
            "timeoutSeconds": timeout_seconds,
        }
        what = f"watch {_title(resource, namespace)}"
        url = with_query(resource.path(namespace), params)
        async with self.stream(Request("GET", url), what) as response:
            async for line in lines(response.chunks, idle_seconds, what):
                try:
                    event = orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    raise StreamError(f"cannot {what}: not a JSON line: {error}") from error
                if event["type"] == "ERROR":
                    raise error_of_status(event["object"], what)
                yield WatchEvent(event["type"], event["object"])

    async def logs(
        self,
        name: str,
        namespace: str,
        container: str | None = None,
        options: LogOptions = _WHOLE_LOG,
    ) -> AsyncGenerator[bytes]:
        """The log of a container in chunks; with `follow`, until the container ends."""
        params: Params = {
            "container": container,
            "follow": options.follow or None,
            "previous": options.previous or None,
            "tailLines": options.tail,
            "sinceSeconds": options.since_seconds,
            "sinceTime": options.since_time or None,
            "timestamps": options.timestamps or None,
        }
        url = with_query(PODS.path(namespace, name, "log"), params)
        async with self.stream(Request("GET", url, accept="*/*"), f"read logs of {name}") as answer:
            async for chunk in answer.chunks:
                yield chunk

    @asynccontextmanager
    async def stream(self, request: Request, what: str) -> AsyncIterator[StreamResponse]:
        """Open any streaming request; `what` completes "cannot …" in errors."""
        async with self._transport.stream(request, self._timeout) as response:
            if response.status >= 300:
                async with asyncio.timeout(self._timeout):
                    body = b"".join([chunk async for chunk in response.chunks])
                raise error_of_response(
                    response.status, body, what, retry_after=_retry_after(response.headers)
                )
            yield response

    async def raw(self, request: Request, what: str) -> Response:
        """Send any request; raises the matching `ApiError` unless it succeeds."""
        for attempt in range(self._max_retries + 1):
            response = await self._transport.request(request, self._timeout)
            if response.status < 300:
                return response
            error = error_of_response(
                response.status, response.body, what, retry_after=_retry_after(response.headers)
            )
            if not _is_retriable(error) or attempt == self._max_retries:
                raise error
            await self._sleep(self._delay(error, attempt))
        raise Unreachable(f"cannot {what}: no attempt was made")

    def _delay(self, error: ApiError, attempt: int) -> float:
        asked = error.retry_after if error.retry_after is not None else 0.1 * 2**attempt
        return min(asked, _MAX_RETRY_AFTER_SECONDS) * (1 + 0.2 * self._jitter())

    async def _json(
        self,
        method: str,
        path: str,
        what: str,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Object:
        data = b"" if body is None else _encoded(body)
        response = await self.raw(Request(method, path, data, content_type), what)
        return decode_object(response.body, what)


def _encoded(body: Any) -> bytes:
    """As JSON; raises UnicodeEncodeError for names of files and the like that are no UTF-8."""
    try:
        return orjson.dumps(body)
    except TypeError:
        json.dumps(body, ensure_ascii=False).encode()
        raise


def _is_retriable(error: ApiError) -> bool:
    # 429 (priority and fairness, also evictions) and 503 with Retry-After were not applied.
    # https://kubernetes.io/docs/concepts/cluster-administration/flow-control/
    return isinstance(error, TooManyRequests) or (
        error.code == 503 and error.retry_after is not None
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    value = headers.get("retry-after", "")
    return float(value) if value.isdigit() else None


def _title(resource: Resource, namespace: str | None, name: str = "", subresource: str = "") -> str:
    if not name:
        return resource.full_name + (f" in namespace {namespace}" if namespace else "")
    title = f"{resource.kind} {namespace}/{name}" if namespace else f"{resource.kind} {name}"
    return f"{subresource} of {title}" if subresource else title
