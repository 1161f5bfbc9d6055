"""The routes of the API server: from a request to the function that answers it."""

from __future__ import annotations

import logging
from typing import Any

from trainyard.kube.errors import ApiError
from trainyard.local.apiserver import discovery, formats, scale
from trainyard.local.apiserver.admission import Admitter
from trainyard.local.apiserver.http import Answer, Request, Response
from trainyard.local.apiserver.podaccess import PodAccess
from trainyard.local.apiserver.target import Target, parse
from trainyard.local.apiserver.verbs import Verbs
from trainyard.local.failures import bad_request, internal, method_not_allowed, no_such_path
from trainyard.local.registry import Registry
from trainyard.local.runtime import PodRuntime
from trainyard.schema.errors import TrainyardError

_log = logging.getLogger(__name__)

_KUBERNETES = (1, 33)
"""The Kubernetes minor version whose API is spoken; kubectl warns when too far from its own."""
_HEALTH = ("healthz", "livez", "readyz")


class Api:
    """Answers requests; shared by all listeners."""

    def __init__(self, registry: Registry, runtime: PodRuntime | None) -> None:
        self._registry = registry
        self._verbs = Verbs(registry, Admitter())
        self._pods = PodAccess(registry, runtime)
        self._runtime = runtime

    async def __call__(self, request: Request) -> Answer:
        """The answer to one request; refusals become Status objects."""
        try:
            return await self._route(request)
        except ApiError as error:
            return formats.error_response(error)
        except TrainyardError as error:
            return formats.error_response(internal(str(error)))
        except (TypeError, AttributeError, KeyError, ValueError) as error:
            # Mostly an object of a shape that no schema has checked.
            _log.exception("%s %s failed", request.method, request.path)
            what = f"{request.method} {request.path}: {type(error).__name__}: {error}"
            return formats.error_response(internal(f"cannot do {what}"))

    async def _route(self, request: Request) -> Answer:
        parts = [part for part in request.path.split("/") if part]
        root = parts[0] if parts else ""
        depth = 2 if root == "api" else 3
        if root in ("api", "apis"):
            if len(parts) <= depth:
                return discovery.respond(request, parts)
            if root == "apis" and parts[1] in ("authorization.k8s.io", "authentication.k8s.io"):
                from trainyard.local.apiserver import reviews

                return reviews.respond(request, parts)
            return await self._resource(request, parse(parts))
        if root in _HEALTH:
            return Response(200, b"ok", "text/plain")
        if root == "version":
            return formats.json_response(200, _version())
        if root == "openapi":
            from trainyard.local.apiserver import openapi

            return openapi.respond(request, parts)
        if not root:
            return formats.json_response(200, {"paths": ["/api", "/apis", "/openapi", "/version"]})
        raise no_such_path()

    async def _resource(self, request: Request, target: Target) -> Answer:
        verbs, method = self._verbs, request.method
        if target.served.read_only:
            from trainyard.local.apiserver import schemas

            schemas.show_definitions(self._registry)
        if target.subresource not in ("", "status"):
            return await self._subresource(request, target)
        if method in ("GET", "HEAD"):
            if request.flag("watch") and not target.subresource:
                return verbs.watch(request, target)
            return (verbs.get if target.name else verbs.collection)(request, target)
        write = {
            ("POST", False): verbs.create,
            ("PUT", True): verbs.replace,
            ("PATCH", True): verbs.patch,
            ("DELETE", True): verbs.delete,
            ("DELETE", False): verbs.delete_collection,
        }.get((method, bool(target.name)))
        refused = target.served.read_only or (target.subresource and method == "DELETE")
        if write is None or refused:
            raise method_not_allowed(method, target.served.resource)
        return await write(request, target)

    async def _subresource(self, request: Request, target: Target) -> Answer:
        served, kind, method = target.served, target.subresource, request.method
        if kind == "scale" and served.scale:
            return await self._scale(request, target)
        if served.resource == "namespaces" and kind == "finalize" and method == "PUT":
            return await self._verbs.finalize(request, target)
        if served.resource != "pods":
            raise no_such_path()
        namespace, name = target.namespace or "", target.name
        if kind in ("exec", "portforward") and method in ("GET", "POST"):
            return await self._stream(request, target)
        if kind == "log" and method == "GET":
            return await self._pods.log(request, namespace, name)
        if kind == "binding" and method == "POST":
            return await self._pods.bind(request, namespace, name)
        if kind == "eviction" and method == "POST":
            return await self._pods.evict(request, namespace, name)
        raise no_such_path()

    async def _stream(self, request: Request, target: Target) -> Answer:
        pod = self._registry.get(*target.place)
        if self._runtime is None:
            raise bad_request(f"no node runs pods here, so pod {target.name} cannot be reached")
        if request.headers.get("upgrade", "").lower() not in ("websocket", "spdy/3.1"):
            raise bad_request("Upgrade request required")
        if target.subresource == "exec":
            from trainyard.local.apiserver import execution

            return await execution.respond(request, pod, self._runtime)
        from trainyard.local.apiserver import forwarding

        return forwarding.respond(request, pod, self._runtime)

    async def _scale(self, request: Request, target: Target) -> Response:
        if request.method == "GET":
            obj = self._registry.get(*target.place)
            return formats.json_response(200, scale.to_scale(obj))
        return await self._verbs.scale(request, target)


def _version() -> dict[str, Any]:
    major, minor = _KUBERNETES
    return {
        "major": str(major),
        "minor": str(minor),
        "gitVersion": f"v{major}.{minor}.0+trainyard",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }
