"""The variables a container starts with: the environment its image stands for, then its own."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping
from typing import Any

from trainyard.local.node.fields import (
    NotReady,
    PodContext,
    config_map_data,
    expand,
    field_value,
    resource_value,
    secret_data,
)
from trainyard.local.node.settings import NodeSettings
from trainyard.local.objects import Objects

# Never inherited: they describe the caller's own place, or another distributed job.
_DROPPED = frozenset(
    [
        "HOSTNAME",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
        "MASTER_ADDR",
        "MASTER_PORT",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "GROUP_RANK",
        "LOCAL_WORLD_SIZE",
        "ROLE_RANK",
        "CUDA_VISIBLE_DEVICES",
        "PYTEST_CURRENT_TEST",
        "LISTEN_FDS",
        "NOTIFY_SOCKET",
        "COLUMNS",
        "LINES",
    ]
)
_DROPPED_PREFIXES = ("PET_", "TORCHELASTIC_", "KUBERNETES_", "TRAINYARD_")
_FALLBACK_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def image_environment(image: str, settings: NodeSettings) -> dict[str, str]:
    """The variables that the image's virtual environment, or the caller's, brings (decision 42)."""
    env = {
        name: value
        for name, value in settings.environment.items()
        if name not in _DROPPED and not name.startswith(_DROPPED_PREFIXES)
    }
    prefix = next(
        (folder for pattern, folder in settings.images if fnmatch.fnmatchcase(image, pattern)),
        env.get("VIRTUAL_ENV", settings.python_prefix),
    )
    prefix = os.path.abspath(prefix)
    path = env.get("PATH", _FALLBACK_PATH)
    env["PATH"] = f"{prefix}/bin:{path}"
    if os.path.exists(f"{prefix}/pyvenv.cfg"):
        env["VIRTUAL_ENV"] = prefix
        env.pop("PYTHONHOME", None)
    return env


def container_environment(context: PodContext, container: Mapping[str, Any]) -> dict[str, str]:
    """The whole environment; raises NotReady while a ConfigMap, Secret or key is missing."""
    own: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        own.update(_all_of(source, context.namespace, context.objects))
    for entry in container.get("env", ()):
        value = _value(entry, context, container)
        if value is not None:
            own[entry["name"]] = expand(value, own) if "value" in entry else value
    base = image_environment(container.get("image", ""), context.settings)
    return {**base, "HOSTNAME": host_name(context.pod), **own}


def host_name(pod: Mapping[str, Any]) -> str:
    """What ``hostname`` prints in the pod: at most 63 characters, as Kubernetes cuts it."""
    name = str(pod["spec"].get("hostname") or pod["metadata"]["name"])
    return name[:63].rstrip("-.")


def _all_of(source: Mapping[str, Any], namespace: str, objects: Objects) -> dict[str, str]:
    prefix = source.get("prefix", "")
    for field, what, read in (
        ("configMapRef", "ConfigMap", config_map_data),
        ("secretRef", "Secret", secret_data),
    ):
        if field in source:
            name = source[field]["name"]
            data = read(objects, namespace, name)
            if data is None:
                if source[field].get("optional"):
                    return {}
                raise _missing(f"{what} {namespace}/{name} does not exist")
            return {prefix + key: value.decode(errors="replace") for key, value in data.items()}
    return {}


def _value(
    entry: Mapping[str, Any], context: PodContext, container: Mapping[str, Any]
) -> str | None:
    source = entry.get("valueFrom")
    if not source:
        return str(entry.get("value", ""))
    if "fieldRef" in source:
        return field_value(context.pod, source["fieldRef"]["fieldPath"], context.addresses)
    if "resourceFieldRef" in source:
        return resource_value(
            _named(context.pod, container, source["resourceFieldRef"]), source["resourceFieldRef"]
        )
    return _key(source, context.namespace, context.objects)


def _named(
    pod: Mapping[str, Any], container: Mapping[str, Any], reference: Mapping[str, Any]
) -> Mapping[str, Any]:
    name = reference.get("containerName")
    everyone = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    return next((other for other in everyone if other["name"] == name), container)


def _key(source: Mapping[str, Any], namespace: str, objects: Objects) -> str | None:
    if "configMapKeyRef" in source:
        what, reference, read = "ConfigMap", source["configMapKeyRef"], config_map_data
    elif "secretKeyRef" in source:
        what, reference, read = "Secret", source["secretKeyRef"], secret_data
    else:
        raise _missing(f"unsupported env source {', '.join(source)}")
    name, key = reference["name"], reference["key"]
    data = read(objects, namespace, name)
    if data is not None and key in data:
        return data[key].decode(errors="replace")
    if reference.get("optional"):
        return None
    missing = "does not exist" if data is None else f"has no key {key!r}"
    raise _missing(f"{what} {namespace}/{name} {missing}")


def _missing(message: str) -> NotReady:
    return NotReady("CreateContainerConfigError", message)
