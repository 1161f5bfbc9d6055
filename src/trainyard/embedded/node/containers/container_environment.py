"""The environment of a container: what its image stands for, then its own variables.

Values come from the pod and its cluster: fieldRef, resourceFieldRef, keys of ConfigMaps and
Secrets, and ``$(NAME)`` in commands, arguments and variables.
"""

from __future__ import annotations

import base64
import os
import re
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from decimal import ROUND_CEILING
from typing import Any

from trainyard.embedded import tenants
from trainyard.embedded.cluster_objects import Objects
from trainyard.embedded.node.containers.inherited_environment import inherited_variables
from trainyard.embedded.node.network.service_environment import ServiceEnvironment
from trainyard.embedded.node.node_settings import NodeSettings
from trainyard.embedded.node.runtime_folder import RuntimeFolder
from trainyard.kube import embedded_contract
from trainyard.kube.errors import NotFound
from trainyard.machine import interpreters
from trainyard.machine.users import User
from trainyard.podruntime.filesystem.impersonation import acting_as
from trainyard.schema import quantity
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError

Warn = Callable[[str, str], None]
_PYTHONPATH = "PYTHONPATH"
_REFERENCE = re.compile(r"\$(\$|\([^)]*\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class NotReady(TrainyardError):
    """A container cannot start yet, because something it refers to is missing."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class PodContext:
    """A pod, and all that its environment, its volumes and its start are made from."""

    pod: Mapping[str, Any]
    folder: str
    """The pod's own folder on the host, for logs and volumes."""
    runtime_folder: RuntimeFolder
    """The pod's own folder for files that go with the pod."""
    address: str
    objects: Objects
    service_environment: ServiceEnvironment
    settings: NodeSettings
    warn: Warn
    """``warn(reason, text)`` reports to the pod's owner what cannot be honoured."""

    @property
    def namespace(self) -> str:
        return str(self.pod["metadata"]["namespace"])

    @property
    def tenant(self) -> User | None:
        """The user as whom the pod runs; None: the cluster's owner (decision 89)."""
        return tenants.tenant_of(self.objects, self.namespace)

    def give_to_tenant(self, path: str | int) -> None:
        """Change the owner of a path or descriptor to the pod's tenant, if it has one."""
        if (tenant := self.tenant) is not None:
            os.chown(path, tenant.uid, tenant.gid)

    def tenant_rights(self) -> AbstractContextManager[None]:
        """For the block, access files of the host with the rights of the pod's tenant."""
        tenant = self.tenant
        return nullcontext() if tenant is None else acting_as(*tenants.account(tenant))

    def find_container(self, name: str) -> Mapping[str, Any] | None:
        spec = self.pod["spec"]
        everyone = (*spec.get("initContainers", ()), *spec["containers"])
        return next((each for each in everyone if each["name"] == name), None)

    def allocatable(self, resource: str) -> str:
        """The node's allocatable amount of a resource, as a quantity."""
        with suppress(NotFound):
            node = self.objects.get("nodes", "", self.settings.node_name)
            return str(node["status"]["allocatable"].get(resource, "0"))
        return "0"

    def object_data(
        self, kind: str, name: str, only: Collection[str] | None = None
    ) -> dict[str, bytes] | None:
        """The keys of a ConfigMap or Secret, all or `only` some, decoded; None if there is no such
        object."""
        try:
            found = self.objects.get(f"{kind.lower()}s", self.namespace, name)
        except NotFound:
            return None
        encoded, plain = ("data", "stringData") if kind == "Secret" else ("binaryData", "data")
        data, texts = found.get(encoded, {}), found.get(plain, {})
        wanted = [*data, *texts] if only is None else only
        return {key: base64.b64decode(data[key]) for key in wanted if key in data} | {
            key: str(texts[key]).encode() for key in wanted if key in texts
        }


# https://kubernetes.io/docs/concepts/workloads/pods/downward-api/
def field_value(context: PodContext, path: str) -> str:
    """The value of a downward-API ``fieldPath``; raises NotReady for an unknown one."""
    metadata, spec = context.pod["metadata"], context.pod["spec"]
    if match := _SUBSCRIPT.fullmatch(path):
        return str(metadata.get(match[1], {}).get(match[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        items = metadata.get(path.partition(".")[2], {})
        return "\n".join(f'{key}="{_escape(value)}"' for key, value in sorted(items.items()))
    values = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": context.address,
        "status.podIPs": context.address,
        "status.hostIP": context.settings.host_ip,
        "status.hostIPs": context.settings.host_ip,
    }
    if path not in values:
        raise NotReady("CreateContainerConfigError", f"unsupported fieldPath {path!r}")
    return str(values[path])


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_value(
    context: PodContext, container: Mapping[str, Any], reference: Mapping[str, Any]
) -> str:
    """The value of a ``resourceFieldRef``, divided and rounded up. Without a limit a container may
    have all that the node has; a request that is not made is "0"."""
    kind, _, name = str(reference["resource"]).partition(".")
    amounts = container.get("resources", {})
    raw = amounts.get(kind, {}).get(name, amounts.get("limits", {}).get(name))
    if raw is None:
        raw = context.allocatable(name) if kind == "limits" else "0"
    divisor = quantity.parse(reference.get("divisor") or "1")
    if not divisor:
        divisor = quantity.parse("1")
    return str((quantity.parse(raw) / divisor).to_integral_value(rounding=ROUND_CEILING))


def expand(text: str, variables: Mapping[str, str]) -> str:
    """``$$`` stands for one ``$``; a reference that cannot be resolved stays as it is.

    Source: k8s.io/kubernetes/third_party/forked/golang/expansion.
    """
    if "$" not in text:
        return text

    def replacement(match: re.Match[str]) -> str:
        token = match[1]
        if token == "$":
            return "$"
        return variables.get(token[1:-1], match[0])

    return _REFERENCE.sub(replacement, text)


def image_environment(image: str, settings: NodeSettings, python: str = "") -> dict[str, str]:
    """The variables that the image's environment, or the caller's, brings (decisions 42, 120);
    ``python`` is the interpreter of who submitted the job, where it has an environment."""
    env = inherited_variables(settings.environment, settings.passed)
    own, called_as = settings.python_prefix, settings.called_as
    return interpreters.environment_of_image(env, image, settings.images, own, called_as, python)


def container_environment(
    context: PodContext, container: Mapping[str, Any], *, is_plain: bool = False
) -> dict[str, str]:
    """The whole environment; raises NotReady while a ConfigMap, Secret or key is missing.

    `is_plain`: the addresses of Services do not exist."""
    own: dict[str, str] = {}
    has_links = context.pod["spec"].get("enableServiceLinks", True) and not is_plain
    links = context.service_environment.variables_for(context.namespace) if has_links else {}
    known = ChainMap(own, links)
    for source in container.get("envFrom", ()):
        own.update(_env_from(source, context))
    for entry in container.get("env", ()):
        value = _env_value(entry, context, container)
        if value is not None:
            own[entry["name"]] = expand(value, known) if "value" in entry else value
    settings = context.settings
    if (tenant := context.tenant) is not None:
        own_start = tenants.tenant_environment(inherited_variables(settings.environment), tenant)
        settings = replace(settings, environment=own_start)
    annotations = context.pod["metadata"].get("annotations", {})
    if paths := annotations.get(embedded_contract.SEARCH_PATHS, ""):
        given = embedded_contract.with_search_paths(settings.environment, paths)
        settings = replace(settings, environment=given)
    python = annotations.get(embedded_contract.PYTHON, "")
    base = image_environment(container.get("image", ""), settings, python)
    found = {**base, "HOSTNAME": host_name(context.pod), **links, **own}
    if embedded_contract.OBSERVE in own:  # decision 223
        path = found.get(_PYTHONPATH, "")
        found[_PYTHONPATH] = embedded_contract.prepend_observer(path)
    return found


def host_name(pod: Mapping[str, Any]) -> str:
    """What ``hostname`` prints in the pod: at most 63 characters, as Kubernetes cuts it."""
    name = str(pod["spec"].get("hostname") or pod["metadata"]["name"])
    return name[:63].rstrip("-.")


def _env_from(source: Mapping[str, Any], context: PodContext) -> dict[str, str]:
    found = _referenced_object(source, "Ref", context)
    if found is None:
        return {}
    what, reference, data = found
    if data is None:
        if reference.get("optional"):
            return {}
        raise _config_error(f"{what} does not exist")
    prefix = source.get("prefix", "")
    return {prefix + key: value.decode(errors="replace") for key, value in data.items()}


def _env_value(
    entry: Mapping[str, Any], context: PodContext, container: Mapping[str, Any]
) -> str | None:
    source = entry.get("valueFrom")
    if not source:
        return str(entry.get("value", ""))
    if "fieldRef" in source:
        return field_value(context, source["fieldRef"]["fieldPath"])
    if reference := source.get("resourceFieldRef"):
        named = context.find_container(reference.get("containerName", ""))
        return resource_value(context, named or container, reference)
    found = _referenced_object(source, "KeyRef", context)
    if found is None:
        raise _config_error(f"unsupported env source {', '.join(source)}")
    what, reference, data = found
    key = reference["key"]
    if data is not None and key in data:
        return data[key].decode(errors="replace")
    if reference.get("optional"):
        return None
    missing = "does not exist" if data is None else f"has no key {key!r}"
    raise _config_error(f"{what} {missing}")


def _referenced_object(
    source: Mapping[str, Any], ending: str, context: PodContext
) -> tuple[str, Mapping[str, Any], dict[str, bytes] | None] | None:
    """The ConfigMap or Secret: how to call it, how it is referred to, and what it holds."""
    for kind, name in (("ConfigMap", "configMap"), ("Secret", "secret")):
        if (reference := source.get(name + ending)) is not None:
            data = context.object_data(kind, reference["name"])
            return f"{kind} {context.namespace}/{reference['name']}", reference, data
    return None


def _config_error(message: str) -> NotReady:
    return NotReady("CreateContainerConfigError", message)
