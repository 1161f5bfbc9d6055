"""Under whom, and with what rights, a pod runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trainyard.schema.problems import REQUIRED, Path, Problem, error
from trainyard.schema.rules.common_rules import (
    MOST_INT32,
    Object,
    bounds,
    choice,
    relative_path,
    shown,
    unique,
)

_IDS = ("runAsUser", "runAsGroup", "fsGroup")
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_SYSCTL = re.compile(
    r"(?=.{1,253}\Z)([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?\Z"
)
_HOST_SYSCTLS = (
    ("hostNetwork", ("net.",)),
    ("hostIPC", ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")),
)
_HOST_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")


def pod_security(spec: Object, path: Path) -> Iterator[Problem]:
    """Problems of a pod's own security context, and of the namespaces that it shares."""
    context, here = spec.get("securityContext") or {}, (*path, "securityContext")
    yield from _common(context, here)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        if not 0 <= group <= MOST_INT32:
            text = f"must be between 0 and {MOST_INT32}, is {group}"
            yield error((*here, "supplementalGroups", index), text)
    yield from choice(context, here, "fsGroupChangePolicy", ("OnRootMismatch", "Always"))
    yield from choice(context, here, "supplementalGroupsPolicy", ("Merge", "Strict"))
    yield from choice(context, here, "seLinuxChangePolicy", ("Recursive", "MountOption"))
    yield from _sysctls(context.get("sysctls") or (), spec, (*here, "sysctls"))
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        yield error((*path, "shareProcessNamespace"), "cannot be combined with hostPID")
    if spec.get("hostUsers") is False:
        for field in _HOST_NAMESPACES:
            if spec.get(field):
                yield error((*path, field), "cannot be combined with hostUsers: false")


def _sysctls(sysctls: Sequence[Object], spec: Object, path: Path) -> Iterator[Problem]:
    yield from unique((each["name"] for each in sysctls), path, "name", "sysctl named")
    for index, each in enumerate(sysctls):
        if not _SYSCTL.match(each["name"]):
            text = f"{shown(each['name'])} is not the name of a sysctl"
            yield error((*path, index, "name"), text)
        for field, begins in _HOST_SYSCTLS:
            if spec.get(field) and each["name"].replace("/", ".").startswith(begins):
                text = f"belongs to the node where {field} is true"
                yield error((*path, index, "name"), text)


def container_security(context: Object, path: Path, *, host_users: bool) -> Iterator[Problem]:
    """Problems of a container's security context; `host_users`: its pod has the node's users."""
    yield from _common(context, path)
    if host_users and context.get("procMount") == "Unmasked":
        yield error((*path, "procMount"), "needs the pod's hostUsers: false to be Unmasked")
    yield from choice(context, path, "procMount", ("Default", "Unmasked"))
    if context.get("allowPrivilegeEscalation") is False:
        here = (*path, "allowPrivilegeEscalation")
        if context.get("privileged"):
            yield error(here, "cannot be false for a privileged container")
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            yield error(here, "cannot be false where CAP_SYS_ADMIN is added")


def _common(context: Object, path: Path) -> Iterator[Problem]:
    for field in _IDS:
        yield from bounds(context, path, field, 0, MOST_INT32)
    for field in ("seccompProfile", "appArmorProfile"):
        if (profile := context.get(field)) is not None:
            yield from _profile(profile, (*path, field), within=field == "seccompProfile")


def _profile(profile: Object, path: Path, *, within: bool) -> Iterator[Problem]:
    """`within`: a local profile is a path below a folder."""
    kind, name = profile.get("type") or "", profile.get("localhostProfile")
    if not kind:
        yield error((*path, "type"), REQUIRED)
    yield from choice(profile, path, "type", _PROFILES)
    here = (*path, "localhostProfile")
    if kind == "Localhost":
        if name is None or not name.strip():
            yield error(here, REQUIRED)
        elif within:
            yield from relative_path(name, here)
        elif name != name.strip():
            yield error(here, "must not be padded with white space")
    elif kind in _PROFILES and name is not None:
        yield error(here, f"belongs to type Localhost, not to {kind}")
