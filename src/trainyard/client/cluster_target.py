"""Which API server a command speaks to: the embedded cluster that is up, or one of a kubeconfig.

A cluster of a kubeconfig is used only when the user names it, so that no command meant for this
machine ever reaches a shared cluster by accident.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Self

from trainyard.kube.client import Client
from trainyard.machine.state_folder import (
    Paths,
    find_cluster,
    require_linux,
    state_folder,
    why_cluster_is_down,
)
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError


class CommandError(TrainyardError):
    """A command cannot do what was asked; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """One API server while a command runs. `socket` is set for the embedded cluster only."""

    client: Client
    namespace: str
    title: str
    socket: str = ""
    folder: Path | None = None
    """The embedded cluster's state folder."""
    is_guest: bool = False
    """The embedded cluster is somebody else's, who lets this user in."""
    kubeconfig: str | None = None
    context: str | None = None

    def options(self, namespace: str) -> str:
        """What a command needs to reach a namespace of it; "" where it does by itself."""
        is_usual = self.socket and not self.is_guest and namespace == "default"
        words = [] if is_usual else ["-n", namespace]
        words += ["--kubeconfig", self.kubeconfig] if self.kubeconfig is not None else []
        words += ["--context", self.context] if self.context is not None else []
        return shlex.join(words)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.client.aclose()


@dataclass(frozen=True, slots=True)
class Where:
    """What the user said about the cluster and the namespace."""

    namespace: str | None = None
    kubeconfig: str | None = None
    context: str | None = None

    async def connect(self) -> ClusterTarget:
        """The API server; raises TrainyardError where there is none."""
        if self.kubeconfig is not None or self.context is not None:
            client = await Client.from_kubeconfig(self.kubeconfig, self.context)
            return ClusterTarget(
                client=client,
                namespace=self.namespace or client.namespace,
                title=f"context {self.context}" if self.context else "the kubeconfig's cluster",
                kubeconfig=self.kubeconfig,
                context=self.context,
            )
        require_linux()
        folder = state_folder()
        cluster = find_cluster(folder)
        if cluster is None:
            why = why_cluster_is_down(Paths(folder))
            raise CommandError(
                f"there is no cluster: none is up in {folder}; start one with `trainyard up`, "
                "or name another with --kubeconfig FILE" + (f" ({why})" if why else "")
            )
        return ClusterTarget(
            client=Client.unix(cluster.socket),
            namespace=self.namespace or cluster.namespace,
            title="the embedded cluster",
            socket=cluster.socket,
            folder=folder,
            is_guest=not cluster.is_ours,
        )


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """What a task group failed with; its other tasks fell to the same cause."""
    leaves = [first_of(e) if isinstance(e, BaseExceptionGroup) else e for e in errors.exceptions]
    return next((error for error in leaves if not isinstance(error, TrainyardError)), leaves[0])
