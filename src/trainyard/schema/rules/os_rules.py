"""What a pod for Windows, or for Linux, may not ask for, and the names of users of Windows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainyard.schema.object_names import is_dns_subdomain
from trainyard.schema.problems import Path, Problem, error
from trainyard.schema.rules.common_rules import Object, choice, shown

_NOT_ON_WINDOWS = ("hostPID", "hostIPC", "hostUsers", "shareProcessNamespace")
_NOT_OF_WINDOWS_PODS = (
    "appArmorProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "runAsGroup",
    "runAsUser",
    "seLinuxOptions",
    "seccompProfile",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "sysctls",
)
_NOT_OF_WINDOWS_CONTAINERS = (
    "allowPrivilegeEscalation",
    "appArmorProfile",
    "capabilities",
    "privileged",
    "procMount",
    "readOnlyRootFilesystem",
    "runAsGroup",
    "runAsUser",
    "seLinuxOptions",
    "seccompProfile",
)
_SIGNAL = re.compile(
    r"SIG(ABRT|ALRM|BUS|CHLD|CLD|CONT|FPE|HUP|ILL|INT|IO|IOT|KILL|PIPE|POLL|PROF|PWR|QUIT|SEGV"
    r"|STKFLT|STOP|SYS|TERM|TRAP|TSTP|TTIN|TTOU|URG|USR[12]|VTALRM|WINCH|XCPU|XFSZ"
    r"|RTMIN(\+([1-9]|1[0-5]))?|RTMAX(-([1-9]|1[0-4]))?)\Z"
)
_WINDOWS_SIGNALS = ("SIGTERM", "SIGKILL")
_LONGEST_SPEC = 64 << 10
_LONGEST_DOMAIN, _LONGEST_USER = 256, 104
_DOMAIN = re.compile(r"[A-Za-z0-9][-A-Za-z0-9.]*\Z|[^\\/:*?\"<>|.]+\Z")
_USER = re.compile(r"(?![. ]+\Z)[^\"/\\:;|=,+*?<>@\[\]]+\Z")


def system(spec: Object, path: Path) -> Iterator[Problem]:
    """Problems of a pod's system with the rest of its spec."""
    name = (spec.get("os") or {}).get("name")
    yield from choice(spec.get("os") or {}, (*path, "os"), "name", ("linux", "windows"))
    for here, context in _contexts(spec, path):
        is_pod = len(here) == len(path) + 1
        yield from _options(context.get("windowsOptions") or {}, (*here, "windowsOptions"))
        if name == "linux" and context.get("windowsOptions") is not None:
            yield error((*here, "windowsOptions"), "must not be set where os.name is linux")
        elif name == "windows":
            fields = _NOT_OF_WINDOWS_PODS if is_pod else _NOT_OF_WINDOWS_CONTAINERS
            yield from _not_on_windows(context, fields, here)
    if name == "windows":
        yield from _not_on_windows(spec, _NOT_ON_WINDOWS, path)
    yield from _host_process(spec, path)


def stop_signal(container: Object, path: Path, name: str | None) -> Iterator[Problem]:
    """Problems of a container's `stopSignal`, on a system of a name."""
    given, here = (container.get("lifecycle") or {}).get("stopSignal"), (*path, "lifecycle")
    if given is None:
        return
    if name is None:
        yield error((*here, "stopSignal"), "needs the pod's os.name beside it")
    elif name == "windows":
        yield from choice({"stopSignal": given}, here, "stopSignal", _WINDOWS_SIGNALS)
    elif not _SIGNAL.match(given):
        yield error((*here, "stopSignal"), f"{shown(given)} is no signal, such as SIGTERM")


def _contexts(spec: Object, path: Path) -> Iterator[tuple[Path, Object]]:
    yield (*path, "securityContext"), spec.get("securityContext") or {}
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            here = (*path, group, index, "securityContext")
            yield here, container.get("securityContext") or {}


def _not_on_windows(obj: Object, fields: tuple[str, ...], path: Path) -> Iterator[Problem]:
    for field in fields:
        given = obj.get(field)
        if given if field.startswith("host") and field != "hostUsers" else given is not None:
            yield error((*path, field), "must not be set where os.name is windows")


def _options(options: Object, path: Path) -> Iterator[Problem]:
    name = options.get("gmsaCredentialSpecName")
    if name is not None and not is_dns_subdomain(name):
        text = f"{shown(name)} is no name of an object; use lower-case letters, digits, '-', '.'"
        yield error((*path, "gmsaCredentialSpecName"), text)
    spec = options.get("gmsaCredentialSpec")
    if spec is not None and not 0 < len(spec.encode()) <= _LONGEST_SPEC:
        text = f"must not be empty, nor longer than {_LONGEST_SPEC >> 10} KiB"
        yield error((*path, "gmsaCredentialSpec"), text)
    if (user := options.get("runAsUserName")) is not None and not _is_user(user):
        text = f"{shown(user)} is no user of Windows, USER or DOMAIN\\USER"
        yield error((*path, "runAsUserName"), text)


def _is_user(text: str) -> bool:
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        return False
    domain, slash, user = text.rpartition("\\")
    if slash and not (len(domain) <= _LONGEST_DOMAIN and _DOMAIN.match(domain)):
        return False
    return len(user) <= _LONGEST_USER and _USER.match(user) is not None


def _host_process(spec: Object, path: Path) -> Iterator[Problem]:
    """All containers of a pod, or none, are processes of a Windows host, in its network."""
    field = ("windowsOptions", "hostProcess")
    (_, common), *own = _contexts(spec, path)
    usual = (common.get(field[0]) or {}).get(field[1])
    found = [(here, (each.get(field[0]) or {}).get(field[1], usual)) for here, each in own]
    if not any(given for _, given in found):
        return
    for here, given in found:
        if not given:
            yield error((*here, *field), "must be true for all containers, or for none")
    if not spec.get("hostNetwork"):
        yield error((*path, "hostNetwork"), "must be true where containers have hostProcess")
