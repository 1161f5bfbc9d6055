"""The variables a container starts with: the environment its image stands for, then its own."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping
from typing import Any

from trainyard.local.node.fields import NotReady, PodContext, expand, field_value, resource_value
from trainyard.local.node.settings import NodeSettings

# Never inherited: they describe the caller's own place, or another distributed job.
_DROPPED = """
HOSTNAME PWD OLDPWD SHLVL _ COLUMNS LINES LISTEN_FDS NOTIFY_SOCKET PYTEST_CURRENT_TEST
MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK GROUP_RANK LOCAL_WORLD_SIZE ROLE_RANK
CUDA_VISIBLE_DEVICES
"""
_DROPPED_PREFIXES = ("PET_", "TORCHELASTIC_", "KUBERNETES_", "TRAINYARD_")
_FALLBACK_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def image_environment(image: str, settings: NodeSettings) -> dict[str, str]:
    """The variables that the image's virtual environment, or the caller's, brings."""
    dropped = _DROPPED.split()
    env = {
        name: value
        for name, value in settings.environment.items()
        if name not in dropped and not name.startswith(_DROPPED_PREFIXES)
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
        own.update(_all_of(source, context))
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


def _all_of(source: Mapping[str, Any], context: PodContext) -> dict[str, str]:
    found = _referred(source, "Ref", context)
    if found is None:
        return {}
    what, reference, data = found
    if data is None:
        if reference.get("optional"):
            return {}
        raise _missing(f"{what} does not exist")
    prefix = source.get("prefix", "")
    return {prefix + key: value.decode(errors="replace") for key, value in data.items()}


def _value(
    entry: Mapping[str, Any], context: PodContext, container: Mapping[str, Any]
) -> str | None:
    source = entry.get("valueFrom")
    if not source:
        return str(entry.get("value", ""))
    if "fieldRef" in source:
        return field_value(context, source["fieldRef"]["fieldPath"])
    if reference := source.get("resourceFieldRef"):
        named = context.container(reference.get("containerName", ""))
        return resource_value(named or container, reference)
    found = _referred(source, "KeyRef", context)
    if found is None:
        raise _missing(f"unsupported env source {', '.join(source)}")
    what, reference, data = found
    key = reference["key"]
    if data is not None and key in data:
        return data[key].decode(errors="replace")
    if reference.get("optional"):
        return None
    missing = "does not exist" if data is None else f"has no key {key!r}"
    raise _missing(f"{what} {missing}")


def _referred(
    source: Mapping[str, Any], ending: str, context: PodContext
) -> tuple[str, Mapping[str, Any], dict[str, bytes] | None] | None:
    """The ConfigMap or Secret: how to call it, how it is referred to, and what it holds."""
    for kind, name in (("ConfigMap", "configMap"), ("Secret", "secret")):
        if (reference := source.get(name + ending)) is not None:
            data = context.keys_of(kind, reference["name"])
            return f"{kind} {context.namespace}/{reference['name']}", reference, data
    return None


def _missing(message: str) -> NotReady:
    return NotReady("CreateContainerConfigError", message)
