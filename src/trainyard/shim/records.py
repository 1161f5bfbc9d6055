"""What the shim remembers of pods and containers."""

from __future__ import annotations

import contextlib
import json
import os
import time

from trainyard.shim.isolation import Sandbox
from trainyard.shim.logfile import LogFile, LogLimits
from trainyard.shim.protocol import ContainerState, PodState, Progress, Start, from_raw, to_raw

READ_BYTES = 1 << 16
# Output can be held open by a process outside the container (an ``exec`` session); the end of
# the container is reported without it after this long.
_DRAIN_SECONDS = 1.0


class Container:
    """One run of a container: its processes, its output, how it ended."""

    def __init__(self, start: Start, pid: int, status: int, output: int) -> None:
        """``status`` and ``output`` are the pipes to read what it reports and writes."""
        self.program = start.program
        self.status, self.output = status, output
        self.log = LogFile(start.log, LogLimits(start.log_bytes, start.log_files))
        self.state = ContainerState(
            start.pod,
            start.name,
            start.attempt,
            pid,
            "starting",
            started_at=time.time_ns(),
            gpus=start.program.gpus,
            cgroups=start.program.cgroups,
        )
        self.ended = False
        """Whether it has been reaped; its state is ``exited`` when its output is all read too."""
        self._record_path = os.path.splitext(start.log)[0] + ".exit"
        self._drain_until = 0.0

    @property
    def due_at(self) -> float | None:
        """When the pump must look at this container again without new output, if ever."""
        if self.ended:
            return None if self.state.state == "exited" else self._drain_until
        return self.log.flush_at

    def take_status(self, data: bytes) -> None:
        for line in data.splitlines():
            told = from_raw(Progress, json.loads(line))
            self.state = self.state._replace(
                state="running" if told.started else self.state.state,
                error=told.error or self.state.error,
                signal=told.signal or self.state.signal,
                code=self.state.code if told.code is None else told.code,
            )

    def finish(self, status: int) -> None:
        """The process has been reaped with the wait status ``status``."""
        self.ended = True
        self.state = self.state._replace(finished_at=time.time_ns())
        self._drain_until = time.monotonic() + _DRAIN_SECONDS
        if self.state.code is None:
            code = os.waitstatus_to_exitcode(status)
            told = code if code >= 0 else 128 - code
            self.state = self.state._replace(signal=max(0, -code), code=told)

    def kill(self, number: int) -> None:
        """Signal the supervisor: SIGKILL takes a container in namespaces, END_ALL a plain one."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.state.pid, number)

    def close(self) -> None:
        """All is read: leave the outcome in a file beside the log, which outlives the shim."""
        self.log.close()
        self.state = self.state._replace(state="exited")
        with contextlib.suppress(OSError):
            with open(self._record_path + ".new", "w") as file:
                json.dump(to_raw(self.state), file)
            os.replace(self._record_path + ".new", self._record_path)


class Pod:
    """A pod's sandbox and the newest run of each of its containers."""

    def __init__(self, uid: str, sandbox: Sandbox) -> None:
        self.uid = uid
        self.sandbox = sandbox
        self.containers: dict[str, Container] = {}
        self.mounts: list[str] = []

    def state(self) -> PodState:
        boxes = tuple(box.state for box in self.containers.values())
        return PodState(self.uid, self.sandbox.address, boxes)
