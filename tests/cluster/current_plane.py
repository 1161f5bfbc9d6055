"""A control plane whose definitions and policies are served by current Kubernetes.

The core kinds, who is who and who may do what stay with the older server behind it
(``tools/current_apiserver.py``).
"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

from tools.control_plane import ControlPlane

from tests.cluster.plane import ADMIN, RunningControlPlane, free_port
from tools import current_apiserver


class CurrentControlPlane(RunningControlPlane):
    """Of version 1.36 to whom asks it, in front of the older one of `programs`."""

    admission = ()  # the older server looks for owners among the kinds that it serves itself
    stored_below = "/current"

    def __init__(self, programs: ControlPlane, folder: Path) -> None:
        super().__init__(replace(programs, etcd=current_apiserver.ETCD), folder)
        self.version = current_apiserver.VERSION
        self.core_port = free_port()
        self._core = self.write_kubeconfig("core", ADMIN, self.core_port)

    def start_apiserver(self) -> None:
        """Start the older server, and the current one when that can be asked."""
        if not super().serves:
            super().start_apiserver()
        self.until_ready(self.core_port)
        self._start(
            current_apiserver.PROGRAM,
            f"-etcd=http://127.0.0.1:{self.etcd_port}",
            f"-port={self.port}",
            f"-core=https://127.0.0.1:{self.core_port}",
            f"-core-kubeconfig={self._core}",
            f"-kubeconfig={self.kubeconfig}",
            f"-certificate={self._made.certificate}",
            f"-key={self._made.key}",
            f"-folder={self.folder}/between",
        )

    def stop_apiserver(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End both servers."""
        self._stop(current_apiserver.PROGRAM.name, number)
        super().stop_apiserver(number)

    @property
    def serves(self) -> bool:
        """Whether both servers have been started and not been stopped since."""
        return self._runs(current_apiserver.PROGRAM.name) and super().serves
