"""Routes a request to the function that answers it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from trainyard.embedded.api_errors import (
    bad_request,
    insufficient_storage,
    internal,
    kind_without_effect,
    method_not_allowed,
    no_such_path,
)
from trainyard.embedded.apiserver import metrics_api
from trainyard.embedded.apiserver.auth import access_reviews
from trainyard.embedded.apiserver.auth.authorization import Authorizer
from trainyard.embedded.apiserver.auth.kubeconfig_endpoint import PATH, KubeconfigEndpoint
from trainyard.embedded.apiserver.auth.request_identity import TokenHolder
from trainyard.embedded.apiserver.discovery import api_discovery
from trainyard.embedded.apiserver.http.http_messages import Answer, Request, Response
from trainyard.embedded.apiserver.pod_access.pod_subresources import PodSubresources
from trainyard.embedded.apiserver.requests import request_limits, response_encoding
from trainyard.embedded.apiserver.requests.program_output import OutputFilter
from trainyard.embedded.apiserver.requests.representation import negotiate_representation
from trainyard.embedded.apiserver.requests.request_target import PROXY, Target, parse
from trainyard.embedded.apiserver.requests.resource_verbs import Verbs
from trainyard.embedded.kubelet_api import KubeletApi
from trainyard.embedded.registry import Registry
from trainyard.embedded.resources.pod import ephemeral_containers
from trainyard.embedded.service_supervisor import Supervisor
from trainyard.embedded.storage.row_writes import DiskFull
from trainyard.kube.errors import ApiError
from trainyard.machine.users import NOBODY_ELSE, AllowList
from trainyard.schema.errors import TrainyardError

_log = logging.getLogger(__name__)

_KUBERNETES = (1, 33)
"""The Kubernetes minor version whose API is spoken; kubectl warns when too far from its own."""
FINDINGS_PATH = ["debug", "findings"]
_HEALTH = ("healthz", "livez", "readyz")
_COLLECTION = {"POST": "create", "DELETE": "deletecollection"}
"""As `_VERBS`, of what is done with a collection."""
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch"}
"""Kubernetes' words for what is done with one object."""


class Router:
    """Answers requests; shared by all listeners."""

    def __init__(
        self,
        registry: Registry,
        runtime: KubeletApi | None,
        supervisor: Supervisor | None = None,
        allowed: AllowList = NOBODY_ELSE,
    ) -> None:
        self._registry = registry
        self._runtime = runtime
        self._authorizer = Authorizer(registry)
        self._supervisor = supervisor if supervisor is not None else Supervisor()
        output_filter = OutputFilter(registry.resources.extension)
        self._verbs = verbs = Verbs(registry, self._authorizer, output_filter, allowed)
        self.kubeconfigs: KubeconfigEndpoint | None = None
        """Set once a port is open for those who have one."""
        self.holder: TokenHolder = lambda token: None
        """Set once a port is open that takes tokens."""
        pods = PodSubresources(registry, runtime)
        self._subresources: Mapping[str, Callable[[Request, Target], Awaitable[Answer]]] = {
            "scale": verbs.scale,
            "finalize": verbs.finalize,
            ephemeral_containers.SUBRESOURCE: verbs.part,
            "log": pods.log,
            "attach": pods.stream,
            "exec": pods.stream,
            "portforward": pods.stream,
            "binding": pods.bind,
            "eviction": pods.evict,
        }

    async def __call__(self, request: Request) -> Answer:
        """Answer one request; errors become Status objects."""
        try:
            if not request.identity.is_admin:
                await self._authorizer.ensure_namespace(request.identity)
            if "impersonate-user" in request.headers:
                raise bad_request("nobody can act as somebody else here: leave out --as")
            return await self._route(request)
        except ApiError as error:
            return response_encoding.error_response(error)
        except DiskFull as error:
            return response_encoding.error_response(insufficient_storage(str(error)))
        except TrainyardError as error:
            return response_encoding.error_response(internal(str(error)))
        except Exception as error:
            # A fault of ours, mostly with an object of a shape that no schema has checked.
            _log.exception("%s %s failed", request.method, request.path)
            what = f"{request.method} {request_limits.shortened(request.path)}"
            return response_encoding.error_response(
                internal(f"cannot do {what}: {type(error).__name__}: {error}")
            )

    async def _route(self, request: Request) -> Answer:
        if request.path[:2] == "//" or "//" in request.path.partition(f"/{PROXY}")[0].rstrip("/"):
            raise no_such_path()
        parts = [part for part in request.path.split("/") if part]
        root = parts[0] if parts else ""
        resources = self._registry.resources
        if root in ("api", "apis"):
            return await self._route_group(request, parts)
        if request.path == PATH and self.kubeconfigs is not None:
            return self.kubeconfigs.respond(request)
        if root in _HEALTH:
            return Response(200, b"ok", "text/plain")
        if parts == FINDINGS_PATH:
            problems = self._problems() if request.identity.is_admin else {}
            return response_encoding.json_response(200, problems)
        if root == "version":
            return response_encoding.json_response(200, _version())
        if root == "openapi":
            from trainyard.embedded.apiserver.discovery import openapi_v3

            return openapi_v3.respond(request, parts, resources)
        if not root:
            return response_encoding.json_response(
                200, {"paths": ["/api", "/apis", "/openapi", "/version"]}
            )
        raise no_such_path()

    async def _route_group(self, request: Request, parts: list[str]) -> Answer:
        if len(parts) <= (2 if parts[0] == "api" else 3):
            return api_discovery.respond(request, parts, self._registry.resources)
        if parts[0] == "apis" and parts[1] in access_reviews.GROUPS:
            return access_reviews.respond(request, parts, self._authorizer, self.holder)
        if parts[0] == "apis" and parts[1] == metrics_api.GROUP:
            return await metrics_api.respond(request, parts, self._authorizer, self._runtime)
        target = parse(parts, self._registry.resources.at)
        self._authorizer.check(request, target)
        return await self._resource(request, target)

    def _problems(self) -> Mapping[str, Any]:
        """What `trainyard doctor` reports about a running cluster."""
        return {
            "damaged": [corrupt.as_json() for corrupt in self._registry.corrupt_objects],
            **self._supervisor.facts,
            "failing": [finding.as_json() for finding in self._supervisor],
        }

    async def _resource(self, request: Request, target: Target) -> Answer:
        verbs, method = self._verbs, request.method
        if target.subresource in ("", "status"):
            negotiate_representation(
                request
            )  # nothing is done whose answer the client would not take
        if target.served.is_read_only and not self._registry.entries(target.storage):
            self._registry.add_builtin_objects(target.storage, target.served.initial_objects())
        if target.subresource == "status" and not target.served.status:
            raise no_such_path()
        if target.subresource not in ("", "status"):
            return await self._subresource(request, target)
        if method == "GET" or (method == "HEAD" and target.served.custom):
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
        served = target.served
        everywhere = served.resource.namespaced and target.namespace is None
        refused = (
            served.is_read_only
            or (target.subresource and method == "DELETE")
            or (not target.name and (everywhere or _COLLECTION.get(method, "") not in served.verbs))
        )
        if method == "POST" and served.alternative:
            raise kind_without_effect(served.kind, served.resource.api_version, served.alternative)
        if write is None or refused:
            raise method_not_allowed(method, target.served.name)
        return await write(request, target)

    async def _subresource(self, request: Request, target: Target) -> Answer:
        offered = target.served.subresources.get(target.subresource)
        if offered is not None and target.subresource == PROXY:  # by whatever method
            from trainyard.embedded.apiserver.pod_access import pod_proxy

            return await pod_proxy.respond(request, target, self._registry, self._runtime)
        verbs = _VERBS.get(request.method, "")
        answer = self._subresources.get(target.subresource)
        if offered is None or answer is None:
            raise no_such_path()
        if verbs not in offered.verbs:
            raise method_not_allowed(request.method, f"{target.served.name}/{target.subresource}")
        return await answer(request, target)


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
