"""What a pod occupies on the node: network and address, names, volumes, GPUs, control groups.

Logs outlive their pods: the folders of the KEPT_PODS that ended last are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from trainyard.embedded import tenants
from trainyard.embedded.cluster_objects import Objects
from trainyard.embedded.node.container_runtime import ContainerRuntime, RuntimeRefused
from trainyard.embedded.node.containers import cgroups, gpus, start_request
from trainyard.embedded.node.containers.container_environment import (
    NotReady,
    PodContext,
    Warn,
    host_name,
)
from trainyard.embedded.node.containers.observer_folder import ObserverFolder, is_observed
from trainyard.embedded.node.network import resolv_conf
from trainyard.embedded.node.network.hosts_files import HostsFiles, PodHost
from trainyard.embedded.node.network.service_environment import ServiceEnvironment
from trainyard.embedded.node.node_settings import NodeSettings
from trainyard.embedded.node.pods import unsupported_fields
from trainyard.embedded.node.pods.pod_object import EventWriter
from trainyard.embedded.node.pods.pod_status import ContainerRun
from trainyard.embedded.node.runtime_folder import RuntimeFolder
from trainyard.embedded.node.volumes import folder_acl, pod_volumes, tree_removal
from trainyard.embedded.node.volumes.host_folders import ensure_folder, path_component
from trainyard.embedded.node.volumes.pod_volumes import PodVolumes
from trainyard.kube.embedded_contract import loopback_address
from trainyard.podruntime import log_reader, protocol
from trainyard.schema.dataclass import dataclass

KEPT_PODS = 500
"""How many folders of deleted pods are kept (decision 67)."""


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What all pods of a node share."""

    api: Objects
    runtime: ContainerRuntime
    settings: NodeSettings
    hosts: HostsFiles
    events: EventWriter
    gpus: gpus.GpuPool
    groups: cgroups.ClusterGroups
    service_environment: ServiceEnvironment
    observer: ObserverFolder

    def folder(self, pod: Mapping[str, Any]) -> str:
        """The folder of a pod's logs and own volumes, on disk."""
        return os.path.join(self.settings.state_dir, "pods", _folder_name(pod))

    @property
    def pods_folder(self) -> RuntimeFolder:
        """Holds a folder of the same name for each pod, with files that go with the pod."""
        return self.runtime.runtime_folder.child("pods")


def _folder_name(pod: Mapping[str, Any]) -> str:
    metadata = pod["metadata"]
    return path_component(f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}")


def delete_old_folders(folder: str, present: Collection[str], keep: int = KEPT_PODS) -> None:
    """Delete the pods' folders in ``folder`` but the ``keep`` last used and those of ``present``.

    ``present`` are uids; a pod's folder ends in ``_<uid>``.
    """
    if not os.path.isdir(folder):
        return
    with os.scandir(folder) as entries:
        gone = [e for e in entries if e.name.rpartition("_")[2] not in present]
    gone.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns)
    for entry in gone[: max(0, len(gone) - keep)]:
        tree_removal.remove(entry.path)


_MESSAGE_BYTES, _POD_MESSAGE_BYTES = 4096, 12288
"""Of one container's termination message, and of all of a pod, of which each container has the same
part (kubelet, `MaxContainerTerminationMessageLength` and `MaxPodTerminationMessageLogLength`)."""


class PodResources:
    """The resources of one pod. ``warn(reason, text)`` reports what cannot be honoured."""

    def __init__(self, node: NodeContext, pod: Mapping[str, Any], warn: Warn) -> None:
        self._node = node
        self.pod = pod
        """The newest version, which containers and downward-API files are made from."""
        self._uid = str(pod["metadata"]["uid"])
        self._warn = warn
        self._volumes: PodVolumes | None = None
        self._is_released = False
        self.folder = node.folder(pod)
        self._runtime_folder = node.pods_folder.child(_folder_name(pod))
        self.address = ""

    def log_path(self, run: ContainerRun) -> str:
        return os.path.join(self.folder, path_component(run.name), f"{run.attempt}.log")

    def termination_message(self, container: str) -> str:
        """The end of what the container wrote to its terminationMessagePath, as the kubelet reads
        it (`getTerminationMessage`)."""
        path = start_request.termination_message_path(self.folder, container)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # no link, no pipe
        with contextlib.suppress(OSError):
            fd = os.open(path, flags)
            try:
                begin = max(os.fstat(fd).st_size - _MESSAGE_BYTES, 0)
                return os.pread(fd, _MESSAGE_BYTES, begin).decode(errors="replace")
            finally:
                os.close(fd)
        return ""

    def cut_message(self, message: str) -> str:
        """The beginning of a termination message that a pod of so many containers may have
        (kubelet, `normalizeStatus`)."""
        spec = self.pod["spec"]
        groups = ("containers", "initContainers", "ephemeralContainers")
        most = _POD_MESSAGE_BYTES // sum(len(spec.get(group) or ()) for group in groups)
        return message.encode()[:most].decode(errors="ignore")

    async def set_up_network(self) -> None:
        """Give the pod its network, address and name."""
        ensure_folder(self.folder)
        tenant = tenants.tenant_of(self._node.api, self.pod["metadata"]["namespace"])
        if tenant is not None:  # their logs, which outlive their pods
            for folder in (os.path.dirname(self.folder), self.folder):
                folder_acl.grant_read(folder, tenant.uid)
        wanted = ""
        isolation = self._node.runtime.hello.isolation
        if isolation == "plain":
            wanted = loopback_address(self.pod["metadata"]["name"])
        answer = await self._node.runtime.request(
            protocol.AddPod(self._uid, host_name(self.pod), wanted)
        )
        self.adopt_network(answer.address)
        for problem in unsupported_fields.unsupported_in_pod(
            self.pod,
            isolation,
            has_resolver=bool(self._node.hosts.name_server),
            scheduler_names=self._node.settings.scheduler_names,
        ):
            self._warn("NotHonoured", problem)

    def adopt_network(self, address: str) -> None:
        """Take over a network that the shim has made; makes the address known to peers."""
        self.address = address
        self._node.hosts.set_pod(self._uid, self._host(address))

    def _host(self, address: str = "") -> PodHost:
        namespace, subdomain = (
            self.pod["metadata"]["namespace"],
            self.pod["spec"].get("subdomain"),
        )
        aliases = [
            "\t".join([each["ip"], *each.get("hostnames", ())]) + "\n"
            for each in self.pod["spec"].get("hostAliases", ())
        ]
        own = "".join(["# Entries added by HostAliases.\n", *aliases]) if aliases else ""
        return PodHost(namespace, subdomain or "", host_name(self.pod), address, own)

    def _write_resolv_conf(self) -> str:
        hosts, machine = self._node.hosts, ""
        if self.pod["spec"].get("dnsPolicy") == "Default":
            with contextlib.suppress(OSError):
                machine = Path("/etc/resolv.conf").read_text(errors="replace")
        namespace = self.pod["metadata"]["namespace"]
        text = resolv_conf.compose(self.pod["spec"], namespace, hosts.name_server, machine)
        path = self._runtime_folder.child("resolv.conf")
        ensure_folder(self._runtime_folder.path)
        start_request.write_file(path.path, text.encode(), 0o644)
        return path.runtime_path

    def restore_container(self, run: ContainerRun, found: protocol.ContainerState) -> None:
        """Take over the groups and GPUs of a container that the shim runs already."""
        run.cgroups = list(found.cgroups)
        self._node.gpus.restore(self._uid, run.name, found.gpus)

    async def start_container(self, run: ContainerRun) -> None:
        """Start a container; raises NotReady or PodRefused. Its events follow from the runtime."""
        node = self._node
        made, host = await self._prepare_volumes(), self._host()
        is_plain = node.runtime.hello.isolation == "plain"
        place = start_request.ContainerPlacement(
            hosts=node.hosts.path(host.group, host.aliases),
            resolver=self._write_resolv_conf() if not is_plain else "",
            isolation=node.runtime.hello.isolation,
            gpus=node.gpus.take(self._uid, run.name, gpus.requested(run.spec)),
            observer=node.observer.path() if is_observed(run.spec) else "",
        )
        program, root = start_request.program_and_root(run.spec, made, place)
        cgroups.remove(run.cgroups)
        limits = cgroups.ContainerLimits.from_container(run.spec, node.settings.pids_limit)
        run.cgroups = node.groups.create(
            f"{self._uid}-{run.name}-{run.attempt}", limits, is_plain=is_plain
        )
        if missing := limits.unenforced(run.cgroups):
            text = "control groups cannot be written here, these limits are not enforced: "
            self._warn("NotHonoured", text + ", ".join(missing))
        if run.is_ephemeral:
            problems = unsupported_fields.unsupported_in_container(
                self.pod["spec"], run.spec, place.isolation
            )
            for problem in problems:
                self._warn("NotHonoured", problem)
        program = program._replace(cgroups=tuple(run.cgroups), processes=limits.processes)
        run.phase, run.reason, run.message = "starting", "", ""
        run.is_pids_limit_reported = False
        try:
            self._delete_old_logs(run)
            log, kept = self.log_path(run), node.settings.log_limits
            limits_of_log = (kept.size, kept.files)
            streams = (_stdin_mode(run.spec), bool(run.spec.get("tty")))
            what = (self._uid, run.name, run.attempt, log, program, root)
            beside = run.spec.get("targetContainerName", "")
            await node.runtime.request(protocol.Start(*what, *limits_of_log, *streams, beside))
        except RuntimeRefused as error:
            run.phase = "waiting"
            raise NotReady("RunContainerError", str(error)) from None

    def _delete_old_logs(self, run: ContainerRun) -> None:
        """Delete all logs but those of this run and the last, as the kubelet does (decision 91)."""
        if run.attempt <= 1:
            return
        for path in log_reader.logs_in(Path(self.folder, run.name)):
            if path.stem.isdecimal() and int(path.stem) < run.attempt - 1:
                log_reader.remove(path)

    async def _prepare_volumes(self) -> PodVolumes:
        node = self._node
        if self._volumes is None:
            self._volumes = PodVolumes(self._context())
        self._volumes.context = self._context()
        self._volumes.prepare()
        while self._volumes.pending_tmpfs:
            path, size = self._volumes.pending_tmpfs.pop()
            await node.runtime.request(protocol.AddTmpfs(self._uid, path, size))
        return self._volumes

    def _context(self) -> PodContext:
        node = self._node
        of_node = (node.api, node.service_environment, node.settings.of_pod(self.pod))
        return PodContext(
            self.pod, self.folder, self._runtime_folder, self.address, *of_node, self._warn
        )

    def refresh_volumes(self) -> None:
        """Rewrite files of ConfigMaps, Secrets and pod fields that have changed."""
        if self._is_released:
            return
        if self._volumes is None:  # an earlier agent has made them
            self._volumes = PodVolumes(self._context())
        self._volumes.context = self._context()
        try:
            self._volumes.refresh()
        except OSError as error:
            self._warn("FailedMount", f"files of a volume cannot be written anew: {error.strerror}")

    async def release(self, runs: Iterable[ContainerRun]) -> None:
        """Free everything: processes that are left are killed, logs stay."""
        self._is_released = True
        self._node.hosts.remove_pod(self._uid)
        self._node.gpus.release(self._uid)
        with contextlib.suppress(RuntimeRefused):
            await self._node.runtime.request(protocol.RemovePod(self._uid))
        tree_removal.remove(self._runtime_folder.path)
        if left := pod_volumes.leftover_folders(self.folder):
            await asyncio.to_thread(tree_removal.remove_all, left)
        for run in runs:
            cgroups.remove(run.cgroups)
            start_request.delete_termination_message(self.folder, run.name)


def _stdin_mode(container: Mapping[str, Any]) -> Literal["", "once", "open"]:
    if not container.get("stdin"):
        return ""
    return "once" if container.get("stdinOnce") else "open"
