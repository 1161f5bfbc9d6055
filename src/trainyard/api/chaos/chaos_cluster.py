"""A cluster that is there to be broken: in a folder of its own, which nothing else knows of."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

from trainyard.client.cluster_target import CommandError
from trainyard.composition.cluster_shape import ClusterShape
from trainyard.embedded.chaos_faults import full_disk
from trainyard.embedded.chaos_faults.target_processes import (
    find_child,
    find_pod_runtime,
    is_alive,
    send_signal,
)
from trainyard.payloads.processes import Process

_KEEPER = ("-m", "trainyard.composition.chaos_keeper")
_CONTROLLER = b"trainyard.composition.controller_process"
_END_SECONDS = 90.0


class BrokenCluster:
    """An embedded cluster that stays up after `kill -9`; it is gone with the block, or with us."""

    def __init__(
        self, shape: ClusterShape, shared: frozenset[str], *, can_fill: bool = False
    ) -> None:
        """Claims stand for copies of their folders, but those that are `shared`.

        `can_fill`: the others lie on a file system in memory, which is theirs alone.
        """
        self.folder = Path(tempfile.mkdtemp(prefix="trainyard-chaos-"))
        self.shape = shape
        self.disk: full_disk.FillableDisk | None = None
        self._shared, self._can_fill = shared, can_fill
        self._keeper: subprocess.Popen[str] | None = None
        self._facts: dict[str, Any] = {}
        self._pod_runtime: Process | None = None

    def __enter__(self) -> Self:
        """Start it; blocks until it answers. Raises CommandError with the reason if it cannot."""
        try:
            program = [sys.executable, *_KEEPER]
            if self._can_fill:
                program = [sys.executable, *full_disk.OWN_DISK_COMMAND, str(self.folder), *program]
            self._keeper = subprocess.Popen(
                program,
                env={**os.environ, "TRAINYARD_STATE_DIR": str(self.folder)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,  # Ctrl-C here is not meant for it
            )
            if self._can_fill:
                pid = int(self._answer("make a file system for the claims")["pid"])
                self.disk = full_disk.FillableDisk(pid, self.folder / "volumes")
            copies = {claim: self._stand_in(claim) for claim in self.shape.volumes}
            self.shape = replace(self.shape, volumes=copies)
            self.bring_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        if self._keeper is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        with suppress(subprocess.TimeoutExpired):
            self._keeper.communicate(timeout=_END_SECONDS)

    def _stand_in(self, claim: str) -> str:
        source = self.shape.volumes[claim]
        if claim in self._shared:
            return source
        copy = self.folder / "volumes" / ".copies" / claim  # no namespace has such a name
        try:
            shutil.copytree(source, self._seen(copy), symlinks=True)
        except (OSError, shutil.Error) as error:
            where = " to memory, where claims lie that are to be full" if self.disk else ""
            raise CommandError(
                f"cannot copy {source}, the folder of the claim {claim}{where}: {_first(error)}; "
                f"if all runs may use the folder itself, say so by --shared {claim}"
            ) from error
        return str(copy)

    def bring_up(self) -> None:
        """Start it, or start it again; blocks until it answers. Raises CommandError."""
        assert self._keeper is not None
        assert self._keeper.stdin is not None
        with suppress(BrokenPipeError):
            print(json.dumps(asdict(self.shape)), file=self._keeper.stdin, flush=True)
        self._facts = self._answer("start a cluster")
        self._pod_runtime = find_pod_runtime(self.pid) or self._pod_runtime

    def _answer(self, what: str) -> dict[str, Any]:
        """What the keeper tells next; CommandError where that is why it cannot."""
        assert self._keeper is not None
        assert self._keeper.stdout is not None
        line = self._keeper.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "its keeper has ended"}
        if "error" in answer:
            raise CommandError(f"cannot {what}: {answer['error']}")
        return answer

    def _seen(self, path: Path) -> Path:
        return self.disk.seen(path) if self.disk else path

    @property
    def pid(self) -> int:
        """Of the process that serves it."""
        return int(self._facts["pid"])

    @property
    def socket(self) -> str:
        """Where its API server listens."""
        return str(self._facts["socket"])

    @property
    def isolation(self) -> str:
        """What separates its pods: `root`, `rootless` or `plain`."""
        return str(self._facts["isolation"])

    @property
    def pod_runtime(self) -> Process:
        """The process below which all pods are; CommandError where it is gone."""
        if self._pod_runtime is None or not is_alive(self._pod_runtime):
            raise CommandError("the shim of the cluster is gone, and with it all pods")
        return self._pod_runtime

    def kill(self) -> None:
        """SIGKILL its process, and wait for its end; shim and pods live on."""
        descriptor = os.pidfd_open(self.pid)
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            select.select([descriptor], [], [], _END_SECONDS)
        finally:
            os.close(descriptor)

    def kill_controller(self) -> int | None:
        """SIGKILL the controller's process; its number, None where there is none just now."""
        found = self.controller
        if found is None or not send_signal([found], signal.SIGKILL):
            return None
        return found.pid

    @property
    def controller(self) -> Process | None:
        """The controller's process; None where there is none just now."""
        return find_child(self.pid, _CONTROLLER)

    def folder_of(self, namespace: str, claim: str) -> Path:
        """Where what is written into a claim lies."""
        if claim in self._shared:
            return Path(self.shape.volumes[claim])
        found = self.shape.volumes.get(claim)
        return self._seen(Path(found) if found else self.folder / "volumes" / namespace / claim)


def _first(error: Exception) -> str:
    """Of copying, which tells of all files that it could not."""
    found = error.args[0] if error.args else error
    return str(found[0][-1] if found and isinstance(found, list) else error)
