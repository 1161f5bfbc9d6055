"""The settings of an operator that runs on a cluster, read off its pod as Kubernetes has it:
arguments, environment, and the files that ConfigMaps give it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from trainyard.kube.client import Selection
from trainyard.kube.errors import Forbidden, KubeError, NotFound
from trainyard.kube.resources import CONFIG_MAPS, PODS
from trainyard.operator.all_settings import SETTINGS
from trainyard.operator.effective import CONFIG_VARIABLE, Effective, InvalidSettings, Surroundings
from trainyard.operator.manifests import NAME
from trainyard.operator.patient import Finding, Object, Patient
from trainyard.operator.setting import Several, Truth

OPERATORS = Selection(f"app.kubernetes.io/name={NAME}")
Texts = Mapping[str, str]
_SHORT = {"-n": "--namespace"}
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


async def settings(patient: Patient) -> AsyncIterator[Finding]:
    """Those by which the rest is judged: of the operator that looks after the namespace."""
    judged = "so that this is judged by the defaults"
    try:
        patient.pods = await _pods(patient)
        known = [await _read(patient, pod) for pod in patient.pods]
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
    mine = [n for n, scope in enumerate(scopes) if not scope or patient.namespace in scope]
    chosen = (mine or [0])[0]
    patient.settings, given = known[chosen].settings, known[chosen].given
    told = ", ".join(f"{name}={_plain(value)}" for name, value in given.items()) or "the defaults"
    yield Finding("settings", "ok", f"{patient.pods[chosen]['metadata']['name']} has {told}")
    if not mine:
        text = f"no operator looks after namespace {patient.namespace}: {_plain(scopes[chosen])}"
        yield Finding("settings", "note", f"{text} only", "name another with --namespace")


async def _pods(patient: Patient) -> list[Object]:
    """In all namespaces, or where the user may look."""
    try:
        return (await patient.client.list(PODS, None, OPERATORS))[0]
    except Forbidden:
        return (await patient.client.list(PODS, patient.namespace, OPERATORS))[0]


async def _read(patient: Patient, pod: Object) -> Effective:
    maps = {name: await _data(patient, name, pod) for name in config_maps(pod)}
    return settings_of(pod, maps)


async def _data(patient: Patient, name: str, pod: Object) -> Texts:
    try:
        found = await patient.client.get(CONFIG_MAPS, name, pod["metadata"]["namespace"])
    except NotFound:  # optional, or the pod cannot start and says so
        return {}
    return found.get("data") or {}


def config_maps(pod: Object) -> set[str]:
    """Their names, of those that the operator's container may read settings from."""
    container = _container(pod)
    told = [
        *((each.get("configMapRef") or {}) for each in container.get("envFrom") or ()),
        *((e.get("valueFrom") or {}).get("configMapKeyRef") or {} for e in _variables(container)),
        *(each.get("configMap") or {} for each in pod["spec"].get("volumes") or ()),
    ]
    return {each["name"] for each in told if each.get("name")}


def settings_of(pod: Object, maps: Mapping[str, Texts]) -> Effective:
    """Of a pod, with the data of its ConfigMaps. Raises InvalidSettings."""
    container, namespace = _container(pod), pod["metadata"]["namespace"]
    environment = _environment(pod, container, maps)
    words = [_expanded(word, environment) for word in _words(container)]
    flags = _flags(words[words.index("operator") + 1 :] if "operator" in words else words)
    path = flags.pop("config", "") or environment.get(CONFIG_VARIABLE, "")
    text = _file(pod, container, path, maps) if path else None
    return Effective(flags, environment, text, Surroundings(namespace))


def _container(pod: Object) -> Object:
    containers: list[Object] = pod["spec"]["containers"]
    return next((each for each in containers if "operator" in _words(each)), containers[0])


def _variables(container: Object) -> list[Object]:
    return container.get("env") or []


def _words(container: Object) -> list[str]:
    return [*(container.get("command") or ()), *(container.get("args") or ())]


def _flags(words: list[str]) -> dict[str, str]:
    """Values by setting, and by `config`; what is none of them says nothing of the settings."""
    values = {each.flag: each for each in SETTINGS.values()}
    found: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        flag = _SHORT.get(flag, flag)
        setting = values.get(flag) or values.get(flag.replace("--no-", "--", 1))
        if setting is not None and isinstance(setting.values, Truth):
            found[setting.name] = str(flag == setting.flag).lower()
            continue
        value = value if equals else next(rest, "")
        if setting is not None and isinstance(setting.values, Several):
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
        value = _expanded(each.get("value", ""), found)
        if key := source.get("configMapKeyRef"):
            value = maps.get(key["name"], {}).get(key["key"], "")
        elif field := source.get("fieldRef"):
            value = _field(pod, field["fieldPath"])
        found[each["name"]] = value
    return found


def _field(pod: Object, path: str) -> str:
    """What a variable gets of the pod: `status.podIP`; "" of what is not there (yet)."""
    part, _, name = path.partition(".")
    value = (pod.get(part) or {}).get(name)
    return value if isinstance(value, str) else ""


def _expanded(text: str, known: Texts) -> str:
    """Variables that were defined before are put in for `$(NAME)`, and `$$` is a dollar sign.

    https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    """
    return _REFERENCE.sub(
        lambda found: "$" if found[0] == "$$" else known.get(found[1], found[0]), text
    )


def _file(pod: Object, container: Object, path: str, maps: Mapping[str, Texts]) -> str | None:
    """The text that a volume has there; None: it is in the image, or nowhere."""
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
