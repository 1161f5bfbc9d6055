"""Reads the settings of a running operator from its pod: arguments, environment and ConfigMaps."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from trainyard.kube.client import Selection
from trainyard.kube.errors import Forbidden, KubeError, NotFound
from trainyard.kube.resources import CONFIG_MAPS, PODS
from trainyard.operator.config.setting_types import BooleanSetting, ListSetting
from trainyard.operator.config.settings_loader import (
    CONFIG_VARIABLE,
    EffectiveSettings,
    InvalidSettings,
    PodEnvironment,
)
from trainyard.operator.config.settings_table import SETTINGS
from trainyard.operator.doctor.doctor_context import DoctorContext, Finding, Object
from trainyard.operator.install.install_manifests import NAME

OPERATOR_PODS = Selection(f"app.kubernetes.io/name={NAME}")
Texts = Mapping[str, str]
_SHORT = {"-n": "--namespace"}
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


async def check_settings(context: DoctorContext) -> AsyncIterator[Finding]:
    """Read the settings of the operator that is responsible for the namespace."""
    judged = "so that this is judged by the defaults"
    try:
        context.pods = await _pods(context)
        known = [await _read(context, pod) for pod in context.pods]
    except KubeError as error:
        yield Finding("settings", "note", f"{error}, {judged}")
        return
    except InvalidSettings as error:
        fix = "change its arguments, variables or ConfigMap: docs/reference/settings.md"
        yield Finding("settings", "problem", f"the operator refuses its own: {error}", fix)
        return
    if not known:
        text = f"no pods with the label app.kubernetes.io/name={NAME} were found, {judged}"
        yield Finding("settings", "note", text)
        return
    scopes = [each.settings.operator.namespaces for each in known]
    mine = [n for n, scope in enumerate(scopes) if not scope or context.namespace in scope]
    chosen = (mine or [0])[0]
    context.settings, given = known[chosen].settings, known[chosen].given
    shown = ", ".join(f"{name}={_plain(value)}" for name, value in given.items()) or "the defaults"
    yield Finding("settings", "ok", f"{context.pods[chosen]['metadata']['name']} has {shown}")
    if not mine:
        text = f"no operator looks after namespace {context.namespace}: {_plain(scopes[chosen])}"
        yield Finding("settings", "note", f"{text} only", "name another with --namespace")


async def _pods(context: DoctorContext) -> list[Object]:
    """The operator's pods in all namespaces, or in those that the user may list."""
    try:
        return (await context.client.list(PODS, None, OPERATOR_PODS))[0]
    except Forbidden:
        return (await context.client.list(PODS, context.namespace, OPERATOR_PODS))[0]


async def _read(context: DoctorContext, pod: Object) -> EffectiveSettings:
    maps = {name: await _data(context, name, pod) for name in config_maps(pod)}
    return settings_of_pod(pod, maps)


async def _data(context: DoctorContext, name: str, pod: Object) -> Texts:
    try:
        found = await context.client.get(CONFIG_MAPS, name, pod["metadata"]["namespace"])
    except NotFound:  # it is optional, or the pod could not start
        return {}
    return found.get("data") or {}


def config_maps(pod: Object) -> set[str]:
    """The names of ConfigMaps that the operator's container may read settings from."""
    container = _container(pod)
    sources = [
        *((each.get("configMapRef") or {}) for each in container.get("envFrom") or ()),
        *((e.get("valueFrom") or {}).get("configMapKeyRef") or {} for e in _variables(container)),
        *(each.get("configMap") or {} for each in pod["spec"].get("volumes") or ()),
    ]
    return {each["name"] for each in sources if each.get("name")}


def settings_of_pod(pod: Object, maps: Mapping[str, Texts]) -> EffectiveSettings:
    """The settings of a pod, given the data of its ConfigMaps. Raises InvalidSettings."""
    container, namespace = _container(pod), pod["metadata"]["namespace"]
    environment = _environment(pod, container, maps)
    words = [_expand(word, environment) for word in _command_line(container)]
    flags = _flags(words[words.index("operator") + 1 :] if "operator" in words else words)
    path = flags.pop("config", "") or environment.get(CONFIG_VARIABLE, "")
    text = _file(pod, container, path, maps) if path else None
    return EffectiveSettings(flags, environment, text, PodEnvironment(namespace))


def _container(pod: Object) -> Object:
    containers: list[Object] = pod["spec"]["containers"]
    return next((each for each in containers if "operator" in _command_line(each)), containers[0])


def _variables(container: Object) -> list[Object]:
    return container.get("env") or []


def _command_line(container: Object) -> list[str]:
    return [*(container.get("command") or ()), *(container.get("args") or ())]


def _flags(words: list[str]) -> dict[str, str]:
    """The values of flags by setting, and of `config`; other words are skipped."""
    values = {each.flag: each for each in SETTINGS.values()}
    found: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        flag = _SHORT.get(flag, flag)
        setting = values.get(flag) or values.get(flag.replace("--no-", "--", 1))
        if setting is not None and isinstance(setting.values, BooleanSetting):
            found[setting.name] = str(flag == setting.flag).lower()
            continue
        value = value if equals else next(rest, "")
        if setting is not None and isinstance(setting.values, ListSetting):
            found[setting.name] = ",".join(filter(None, (found.get(setting.name), value)))
        elif setting is not None or flag == "--config":
            found[setting.name if setting else "config"] = value
    return found


def _environment(pod: Object, container: Object, maps: Mapping[str, Texts]) -> dict[str, str]:
    found: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        data = maps.get((source.get("configMapRef") or {}).get("name", ""), {})
        found |= {source.get("prefix", "") + key: value for key, value in data.items()}
    for each in _variables(container):
        source = each.get("valueFrom") or {}
        value = _expand(each.get("value", ""), found)
        if key := source.get("configMapKeyRef"):
            value = maps.get(key["name"], {}).get(key["key"], "")
        elif field := source.get("fieldRef"):
            value = _field(pod, field["fieldPath"])
        found[each["name"]] = value
    return found


def _field(pod: Object, path: str) -> str:
    """The value of a `fieldRef`, such as `status.podIP`; "" where there is none (yet)."""
    part, _, name = path.partition(".")
    value = (pod.get(part) or {}).get(name)
    return value if isinstance(value, str) else ""


def _expand(text: str, known: Texts) -> str:
    """Replace `$(NAME)` by variables that were defined before; `$$` is a dollar sign.

    https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    """
    return _REFERENCE.sub(
        lambda found: "$" if found[0] == "$$" else known.get(found[1], found[0]), text
    )


def _file(pod: Object, container: Object, path: str, maps: Mapping[str, Texts]) -> str | None:
    """The content that a ConfigMap volume has there; None: it is in the image, or nowhere."""
    volumes = {each["name"]: each for each in pod["spec"].get("volumes") or ()}
    for mount in container.get("volumeMounts") or ():
        volume = volumes.get(mount["name"], {}).get("configMap")
        if volume and PurePosixPath(path).is_relative_to(mount["mountPath"]):
            key = mount.get("subPath") or str(PurePosixPath(path).relative_to(mount["mountPath"]))
            items = {item["path"]: item["key"] for item in volume.get("items") or ()}
            return maps.get(volume["name"], {}).get(items.get(key, key))
    return None


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
