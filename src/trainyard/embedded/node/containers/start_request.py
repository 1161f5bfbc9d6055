"""Turns a container's spec into the program and root file system that the runtime starts."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from trainyard.embedded import tenants
from trainyard.embedded.node.containers import gpus
from trainyard.embedded.node.containers.container_environment import (
    PodContext,
    Warn,
    container_environment,
    expand,
    host_name,
    image_environment,
)
from trainyard.embedded.node.containers.environment_access import environment_binds
from trainyard.embedded.node.node_settings import NodeSettings
from trainyard.embedded.node.volumes import host_folders
from trainyard.embedded.node.volumes.host_folders import path_component
from trainyard.embedded.node.volumes.pod_volumes import PodVolumes
from trainyard.embedded.resources.pod.pod_defaults import TERMINATION_MESSAGE_PATH
from trainyard.kube import embedded_contract
from trainyard.machine import interpreters
from trainyard.machine.users import User
from trainyard.podruntime.filesystem import safe_paths
from trainyard.podruntime.protocol import Bind, Program, Root
from trainyard.schema import quantity

# By their numbers in linux/capability.h.
_CAPABILITIES = """
CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT
SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE
AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ
PERFMON BPF CHECKPOINT_RESTORE
"""
# Not opened to a pod's writes just because an image of a cluster works there.
_SHARED = "/home /media /mnt /root /srv /tmp /var/tmp /workspace"
_COMMON_FOLDERS = _SHARED.split()
# Of the memory, as a limit for what a container may write into its root's layer (decision 79).
_LAYER_SHARE = 4


class CannotStart(host_folders.PodRefused):
    """A spec that can never be started; the text says how to fix it (decision 42)."""


class ContainerPlacement(NamedTuple):
    """What the node contributes: GPUs, and files for /etc/hosts and /etc/resolv.conf.

    Nothing is mounted in plain mode, which has no resolv.conf.
    """

    hosts: str
    resolver: str
    isolation: str
    gpus: list[int]
    observer: str = ""
    """The folder of the observer's programs, for a container that is observed."""


def program_and_root(
    container: Mapping[str, Any], volumes: PodVolumes, place: ContainerPlacement
) -> tuple[Program, Root | None]:
    """What the runtime is to start, and in which file system; raises NotReady or CannotStart."""
    context = volumes.context
    env = container_environment(context, container, is_plain=place.isolation == "plain")
    if container.get("tty"):
        env.setdefault("TERM", "xterm")
    home = _home_folder(context)
    program = _with_identity(
        Program(
            argv=tuple(_argv(container, env)),
            env=env,
            cwd=os.path.join(home, container.get("workingDir") or home),
            gpus=tuple(place.gpus),
        ),
        container,
        context,
        place.isolation,
    )
    if (tenant := context.tenant) is not None:
        program = _as_tenant(program, tenant, context, place.isolation)
    binds = volumes.binds(container, env)
    if place.observer:
        ours = Bind(embedded_contract.OBSERVER_PATH, place.observer, True, private=True)
        binds = _merge_binds([ours], binds)
    if place.isolation == "plain":
        if context.settings.gpus and "CUDA_VISIBLE_DEVICES" not in env:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, place.gpus))
        internal = (embedded_contract.OBSERVER_PATH, *context.settings.internal_mount_paths)
        return _without_mounts(program, container, binds, internal, context.warn), None
    cwd = program.cwd
    own = _own_binds(volumes, container, place, home=home, cwd=cwd)
    if place.isolation == "root" and tenant is None:  # whose pods see what a tenant reaches, alone
        own += environment_binds(program, context.folder, context.warn)
    _warn_of_made_folders(own, volumes=binds, cwd=cwd, warn=context.warn)
    root = Root(
        binds=tuple(_merge_binds(own, binds)),
        devices=(*gpus.device_nodes(place.gpus), *_devices(container)),
        read_only=bool(container.get("securityContext", {}).get("readOnlyRootFilesystem")),
        privileged=program.privileged,
        work=cwd,
        size=layer_size(container),
        hidden=context.settings.hidden,
        account=None if tenant is None else tenants.account(tenant),
    )
    return program, root


def layer_size(container: Mapping[str, Any]) -> int:
    """How many bytes a container may write outside of volumes: half of the memory at most."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = container.get("resources", {}).get("limits", {}).get("ephemeral-storage")
    return min(quantity.parse_int(limit), whole // 2) if limit else whole // _LAYER_SHARE


def layer_full_message(container: Mapping[str, Any]) -> str:
    """The message for a container that failed when its layer was full."""
    return (
        f"container {container['name']} has no room left outside of volumes, where it may write "
        f"{layer_size(container) >> 20} MiB: write into the working folder or a volume, or set "
        "resources.limits.ephemeral-storage (at most half of the memory)"
    )


def _own_binds(
    volumes: PodVolumes,
    container: Mapping[str, Any],
    place: ContainerPlacement,
    *,
    home: str,
    cwd: str,
) -> list[Bind]:
    context = volumes.context
    folder, settings = context.folder, context.settings
    message_path = container.get("terminationMessagePath", TERMINATION_MESSAGE_PATH)
    message_file = termination_message_path(folder, container["name"])
    host_folders.ensure_folder(os.path.dirname(message_file))
    write_file(message_file, b"", 0o666)
    python = context.pod["metadata"].get("annotations", {}).get(embedded_contract.PYTHON, "")
    host_name_file = context.runtime_folder.child("hostname")
    host_folders.ensure_folder(context.runtime_folder.path)
    write_file(host_name_file.path, f"{host_name(context.pod)}\n".encode(), 0o644)
    return [
        Bind("/etc/hosts", place.hosts, True, private=True),
        Bind("/etc/resolv.conf", place.resolver, True, private=True),
        *_own_tmp(folder, [home, cwd, settings.state_dir], settings, python),
        *_working_folder_binds(home, cwd, volumes),
        Bind(os.path.normpath(os.path.join("/", message_path)), message_file, private=True),
        Bind("/etc/hostname", host_name_file.runtime_path, True, private=True),
    ]


def write_file(path: str, data: bytes, mode: int) -> None:
    """Write a small file, and set its mode whatever the umask."""
    fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, mode)
    try:
        os.fchmod(fd, mode)
        os.write(fd, data)
    finally:
        os.close(fd)


def termination_message_path(pod_folder: str, container: str) -> str:
    """The host's file behind a container's terminationMessagePath."""
    return os.path.join(pod_folder, path_component(container), "termination-log")


def delete_termination_message(pod_folder: str, container: str) -> None:
    """Delete that file if anything is in it; an empty one goes with the logs (decision 348)."""
    with contextlib.suppress(OSError, host_folders.PodRefused):
        path = termination_message_path(pod_folder, container)
        if os.lstat(path).st_size:
            os.unlink(path)


def _argv(container: Mapping[str, Any], env: Mapping[str, str]) -> list[str]:
    argv = [*container.get("command", ()), *container.get("args", ())]
    if not argv:
        raise CannotStart(
            f"container {container['name']!r} has neither command nor args, and images are not "
            "pulled on this machine, so there is nothing to run: set command or args"
        )
    return [expand(str(word), env) for word in argv]


def _home_folder(context: PodContext) -> str:
    annotated = (
        context.pod["metadata"].get("annotations", {}).get(embedded_contract.WORKING_DIR, "")
    )
    tenant = context.tenant
    default = context.settings.working_dir if tenant is None else tenant.home
    return str(annotated or default or "/")


def _as_tenant(program: Program, tenant: User, context: PodContext, isolation: str) -> Program:
    """The program of a tenant, without privileges (decision 89); raises CannotStart."""
    if os.geteuid() != 0 or isolation != "root":
        raise CannotStart(
            f"namespace {context.namespace} belongs to {tenant.name}, as whom only a cluster that "
            "root started, with namespaces, can run pods"
        )
    if found := tenants.forbidden_fields(context.pod, tenant):
        raise CannotStart(f"{found[0].field}: {found[0].message}")
    return tenants.restrict_program(program, tenant)


def _own_tmp(pod_folder: str, used: list[str], settings: NodeSettings, python: str) -> list[Bind]:
    """A /tmp of the pod's own, unless something that it needs lies beneath the host's."""
    found = interpreters.find_interpreter(image_environment("", settings))
    needed = [*used, settings.python_prefix, os.path.dirname(found or ""), python]
    needed += [folder for _, folder in settings.images]
    if any((safe_paths.real_path(path) + "/").startswith("/tmp/") for path in needed if path):
        return []
    path = os.path.join(pod_folder, "tmp")
    host_folders.ensure_folder(path)
    os.chmod(path, 0o1777)
    return [Bind("/tmp", path, private=True)]


def _working_folder_binds(home: str, cwd: str, volumes: PodVolumes) -> list[Bind]:
    """Working folders that exist on the host: what is written there stays (decision 40)."""
    chosen: dict[str, Bind] = {}
    for path, closed in ((home, ()), (cwd, _COMMON_FOLDERS)):
        folder = host_folders.real_folder(path)
        if folder is None and path == home:
            raise CannotStart(
                f"the working folder {path} is reached by a link, which a pod may have made: name "
                "the folder itself"
            )
        if folder is None:
            if not host_folders.containing_folder(path, [home]):
                text = f"workingDir {path} is reached by a link, which a pod may have made: what "
                text += "is written there goes with the pod; name the folder itself"
                volumes.context.warn("NotHonoured", text)
            continue
        hidden = host_folders.containing_folder(folder, volumes.hidden)
        is_code = host_folders.is_submitted_code(folder, hidden) and volumes.context.tenant is None
        if hidden and not is_code:
            raise CannotStart(
                f"the working folder {path} lies in {hidden}, a cluster's own folder, which pods "
                "do not see: work elsewhere, or keep the cluster elsewhere (TRAINYARD_STATE_DIR)"
            )
        if folder not in (*host_folders.SYSTEM_FOLDERS, *closed) and os.path.isdir(folder):
            chosen.setdefault(folder, Bind(folder, folder, private=is_code))
    return list(chosen.values())


def _warn_of_made_folders(own: list[Bind], *, volumes: list[Bind], cwd: str, warn: Warn) -> None:
    """Warn of mount points that are created within a folder of the host.

    The kernel mounts on existing folders only, so they stay there (decision 40).
    """
    shared = [bind.target for bind in own if bind.target == bind.source]
    for path in dict.fromkeys([*(bind.target for bind in volumes), cwd]):
        real = safe_paths.real_path(path)
        if any(real.startswith(f"{folder}/") for folder in shared) and not os.path.lexists(real):
            text = f"{path} lies in the working folder and did not exist: it is made there, empty"
            warn("FolderMade", text)


def _merge_binds(own: list[Bind], volumes: list[Bind]) -> list[Bind]:
    """A volume replaces our own mounts that lie within it (/tmp, the working folder, …)."""
    tops = [bind.target.rstrip("/") + "/" for bind in volumes]
    kept = [b for b in own if not any((b.target + "/").startswith(top) for top in tops)]
    return kept + volumes


def _devices(container: Mapping[str, Any]) -> list[str]:
    devices = ["/dev/infiniband"] if os.path.isdir("/dev/infiniband") else []
    if container.get("securityContext", {}).get("privileged"):
        devices += ["/dev/fuse", "/dev/net/tun"]
    return devices


def _with_identity(
    program: Program, container: Mapping[str, Any], context: PodContext, isolation: str
) -> Program:
    """Apply the container's securityContext, else the pod's."""
    shared = context.pod["spec"].get("securityContext", {})
    own = container.get("securityContext", {})
    user = own.get("runAsUser", shared.get("runAsUser"))
    group = own.get("runAsGroup", shared.get("runAsGroup"))
    groups = [*shared.get("supplementalGroups", ())]
    if (fs_group := shared.get("fsGroup")) is not None:
        groups.append(fs_group)
    if os.geteuid() == 0 and isolation != "rootless":
        if user is not None and group is None:
            group = user
        program = program._replace(user=user, group=group, groups=tuple(groups))
    elif user not in (None, os.geteuid()) or group not in (None, os.getegid()) or groups:
        context.warn(
            "SecurityContextIgnored",
            f"container {container['name']!r} runs as user {os.geteuid()}: runAsUser, runAsGroup "
            "and fsGroup need root",
        )
    if isolation == "plain" and own.get("readOnlyRootFilesystem"):
        context.warn("SecurityContextIgnored", "readOnlyRootFilesystem needs namespaces")
    capabilities = own.get("capabilities", {})
    profile = own.get("seccompProfile", shared.get("seccompProfile", {}))
    return program._replace(
        unconfined=profile.get("type") == "Unconfined",
        privileged=bool(own.get("privileged")),
        capabilities=_capability_mask(capabilities.get("add", ())),
        dropped=_capability_mask(capabilities.get("drop", ())),
        no_new_privileges=own.get("allowPrivilegeEscalation") is False,
    )


def _capability_mask(capabilities: Iterable[str]) -> int:
    names = {str(name).removeprefix("CAP_") for name in capabilities}
    bits = {name: 1 << number for number, name in enumerate(_CAPABILITIES.split())}
    if "ALL" in names:
        return sum(bits.values())
    return sum(bits.get(name, 1 << 63) for name in names)


def _without_mounts(
    program: Program,
    container: Mapping[str, Any],
    binds: list[Bind],
    internal: Collection[str],
    warn: Warn,
) -> Program:
    """In plain mode, replace mount paths in command, args and variables by the volumes' folders.

    Without namespaces nothing can be mounted (decision 41).
    """
    if not os.path.isdir(program.cwd):
        raise CannotStart(
            f"working directory {program.cwd} does not exist, and without namespaces it cannot "
            "be made for the pod alone: create it, or leave workingDir out"
        )
    found = {bind.target: _plain_path(bind, container["name"]) for bind in binds}
    moved = {place: path for place, path in found.items() if os.path.realpath(place) != path}
    if not moved:
        return program
    shown = [f"{target} is {source}" for target, source in moved.items() if target not in internal]
    if shown:
        warn(
            "VolumeNotMounted",
            "namespaces are not permitted here, so volumes cannot be mounted; in command, args and "
            f"env their mount paths stand for the folders themselves: {', '.join(shown)}",
        )
    longest_first = sorted(moved, key=len, reverse=True)
    pattern = re.compile(
        r"(?<![\w./-])(" + "|".join(map(re.escape, longest_first)) + r")(?![\w.-])"
    )

    def replace(text: str) -> str:
        return pattern.sub(lambda match: moved[match[1]], text)

    own = {entry["name"] for entry in container.get("env", ())}
    own |= {"PYTHONPATH"} if embedded_contract.OBSERVE in own else set()
    return program._replace(
        argv=tuple(replace(word) for word in program.argv),
        env={name: replace(value) if name in own else value for name, value in program.env.items()},
    )


def _plain_path(bind: Bind, container: str) -> str:
    """The folder of the host that stands for a mount; a ``subPath`` is made if it is missing."""
    if not bind.inner:
        return bind.source
    top = os.open(bind.source, os.O_PATH | os.O_CLOEXEC)
    try:
        fd = safe_paths.make(top, bind.inner, safe_paths.BENEATH, copies_owner=True)
        path = os.readlink(safe_paths.proc_path(fd))
        os.close(fd)
        return path
    except OSError as error:
        raise CannotStart(
            f"container {container!r}: cannot mount subPath {bind.inner!r} at {bind.target}: "
            f"{safe_paths.explain_refusal(error)}"
        ) from None
    finally:
        os.close(top)
