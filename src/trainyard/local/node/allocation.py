"""What a pod holds on the node: its network and address, names, volumes, GPUs, control groups."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.kinds.shared import names
from trainyard.local.node import cgroups, gpus, start_request, unsupported
from trainyard.local.node.environment import host_name
from trainyard.local.node.events import EventWriter
from trainyard.local.node.fields import Addresses, NotReady
from trainyard.local.node.hosts import Host, HostsFiles
from trainyard.local.node.settings import NodeSettings
from trainyard.local.node.shim_client import ShimClient, ShimError
from trainyard.local.node.status import Run
from trainyard.local.node.volumes import Volumes
from trainyard.local.registry import Registry


@dataclass(frozen=True, slots=True)
class Node:
    """What all pods of a node share."""

    registry: Registry
    shim: ShimClient
    settings: NodeSettings
    hosts: HostsFiles
    events: EventWriter
    gpus: gpus.Pool

    def folder(self, pod: Mapping[str, Any]) -> str:
        """Where a pod's logs and own volumes are kept."""
        metadata = pod["metadata"]
        name = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        return os.path.join(self.settings.state_dir, "pods", name)


class Place:
    """One pod's. ``warn(reason, text)`` tells what cannot be honoured."""

    def __init__(
        self, node: Node, pod: Mapping[str, Any], warn: Callable[[str, str], None]
    ) -> None:
        self._node = node
        self._pod = pod
        self._uid = str(pod["metadata"]["uid"])
        self._warn = warn
        self._volumes: Volumes | None = None
        self.folder = node.folder(pod)
        self.address = ""

    def log_path(self, container: str, attempt: int) -> str:
        return os.path.join(self.folder, container, f"{attempt}.log")

    def termination_message(self, container: str) -> str:
        """What the container wrote to its terminationMessagePath, up to 4096 characters."""
        path = start_request.termination_path(self.folder, container)
        with contextlib.suppress(OSError), open(path, errors="replace") as file:
            return file.read(4096)
        return ""

    async def take(self) -> None:
        """Give the pod its network, address and name."""
        os.makedirs(self.folder, exist_ok=True)
        wanted = ""
        if self._node.shim.isolation == "plain":
            wanted = names.loopback_address(self._pod["metadata"]["name"])
        answer = await self._node.shim.request(
            "pod", pod=self._uid, hostname=host_name(self._pod), address=wanted
        )
        self.adopt(answer["address"])
        for problem in unsupported.not_honoured(self._pod, self._node.shim.isolation):
            self._warn("NotHonoured", problem)

    def adopt(self, address: str) -> None:
        """The shim has the pod's network already; make the address known to its peers."""
        self.address = address
        metadata = self._pod["metadata"]
        subdomain = self._pod["spec"].get("subdomain", "")
        host = Host(metadata["namespace"], subdomain, host_name(self._pod), address)
        self._node.hosts.set_pod(self._uid, host)

    def restore(self, run: Run, found: Mapping[str, Any]) -> None:
        """Note what a container that is known to the shim holds."""
        run.cgroups = list(found["cgroups"])
        self._node.gpus.restore(self._uid, run.name, found["gpus"])

    async def start(self, run: Run) -> None:
        """Start a container; raises NotReady or CannotStart. Its events follow."""
        node = self._node
        volumes = await self._prepared_volumes()
        metadata = self._pod["metadata"]
        hosts = node.hosts.path(metadata["namespace"], self._pod["spec"].get("subdomain", ""))
        request = start_request.start_request(
            self._pod,
            run.spec,
            objects=node.registry,
            settings=node.settings,
            volumes=volumes,
            addresses=volumes.addresses,
            pod_folder=self.folder,
            hosts=(hosts, node.hosts.resolver_path(metadata["namespace"])),
            isolation=node.shim.isolation,
            devices=node.gpus.take(self._uid, run.name, gpus.requested(run.spec)),
            warn=self._warn,
        )
        cgroups.remove(run.cgroups)
        group = f"{self._uid}-{run.name}-{run.attempt}"
        limits = cgroups.Limits.of(run.spec)
        run.cgroups = request["cgroups"] = cgroups.create(group, limits)
        if limits != cgroups.Limits(0, 0) and not run.cgroups:
            text = "control groups cannot be written here: CPU and memory limits are not enforced"
            self._warn("NotHonoured", text)
        log = self.log_path(run.name, run.attempt)
        run.phase, run.reason, run.message = "starting", "", ""
        try:
            await node.shim.request(
                "start", pod=self._uid, name=run.name, attempt=run.attempt, log=log, **request
            )
        except ShimError as error:
            run.phase = "waiting"
            raise NotReady("RunContainerError", str(error)) from None

    async def _prepared_volumes(self) -> Volumes:
        node = self._node
        if self._volumes is None:
            addresses = Addresses(self.address, node.settings.host_ip)
            self._volumes = Volumes(
                self._pod, self.folder, node.registry, node.settings, addresses, self._warn
            )
        self._volumes.prepare()
        while self._volumes.in_memory:
            path, size = self._volumes.in_memory.pop()
            await node.shim.request("tmpfs", pod=self._uid, path=path, size=size)
        return self._volumes

    async def release(self, runs: Iterable[Run]) -> None:
        """Give everything back; processes that are left are killed, logs stay."""
        self._node.hosts.remove_pod(self._uid)
        self._node.gpus.give_back(self._uid)
        with contextlib.suppress(ShimError):
            await self._node.shim.request("remove", pod=self._uid)
        Volumes.remove(self.folder)
        for run in runs:
            cgroups.remove(run.cgroups)
            with contextlib.suppress(OSError):
                os.unlink(start_request.termination_path(self.folder, run.name))
