"""Start the shim, the process of the pod runtime, or find the one that a killed cluster left.

Call :func:`start_pod_runtime` before anything heavy is imported and before any thread is started:
the shim is a fork of the caller, keeps its memory, and lives as long as the thread that forked it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import traceback
from dataclasses import field
from typing import Literal

from trainyard.machine import folder_lock
from trainyard.machine.ownership import peer_of
from trainyard.podruntime import protocol, wire
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError

Isolation = Literal["auto", "namespaces", "plain"]
_READY_SECONDS = 10.0
_END_SECONDS = 15.0
_CANNOT_START = "cannot start the node's shim process"


class PodRuntimeFailed(TrainyardError):
    """The shim could not do what was asked for, such as namespaces where none are permitted."""


class PodRuntimeGone(PodRuntimeFailed):
    """The shim ended before it sent anything."""


@dataclass(slots=True)
class PodRuntimeHandle:
    """The owner's connection to the shim. ``adopted``: an earlier cluster started the shim."""

    state_dir: str
    connection: socket.socket
    pid: int
    adopted: bool = False
    lasts: bool = False
    """Whether it outlives its owner, and serves the next one."""
    keeps_pods: bool = False
    """Whether it holds pods that an owner which fails must leave to the next one."""
    decoder: wire.Decoder = field(default_factory=wire.Decoder)
    early: list[bytes] = field(default_factory=list)
    """Frames that came with the first one."""
    memory: int = -1
    """A descriptor of the folder `wire.MEMORY`, which comes with the first frame."""
    _hello: protocol.Hello | None = None

    def ready(self) -> protocol.Hello:
        """The shim's first message: the isolation that is possible here, and its pods.

        Waits, blocking, for the few milliseconds that its set-up takes; raises PodRuntimeFailed.
        """
        if self._hello is None:
            self.connection.settimeout(_READY_SECONDS)
            frames: list[bytes] | None = []
            try:
                while frames == []:
                    frames = self.decoder.receive(self.connection)
            except TimeoutError:
                other = peer_of(self.connection).pid
                raise _failed(
                    f"process {other} does not answer within {_READY_SECONDS:g} s; end it, and all "
                    f"pods with it, by: kill -9 {other}"
                ) from None
            if not frames:
                raise PodRuntimeGone(f"{_CANNOT_START}: it ended at once")
            try:
                first = protocol.read_event(wire.parse(frames[0]))
            except protocol.ProtocolError as error:
                raise _failed(f"it does not speak as this trainyard: {error}") from None
            if not isinstance(first, protocol.Hello):
                raise _failed(first.reason if isinstance(first, protocol.Failed) else f"{first}")
            try:
                attached = self.decoder.take_descriptors(first.descriptors)
            except protocol.ProtocolError as error:
                raise _failed(str(error)) from None
            self.memory = attached[0] if attached else -1
            self._hello, self.early = first, frames[1:]
        return self._hello

    def ask(self, request: protocol.Request) -> protocol.Answer:
        """Its answer, for an owner that has no event loop and no agent; raises PodRuntimeFailed."""
        self.connection.sendall(wire.encode(protocol.request(1, request)))
        while True:
            frames = self.early or self.decoder.receive(self.connection)
            if frames is None:
                raise _failed("it has ended")
            self.early = []
            for raw in map(wire.parse, frames):
                if "event" not in raw:
                    return protocol.from_raw(protocol.Answer, raw)

    def close(self) -> None:
        """Leave the shim to the next owner if it keeps pods; else end it."""
        if self.keeps_pods:
            self.connection.close()
        else:
            self.kill()

    def kill(self) -> None:
        """End the shim and with it every pod, at once; for an owner that has no event loop.

        It closes its end of the connection when it has ended, which is waited for.
        """
        with contextlib.suppress(OSError):
            self.connection.settimeout(_END_SECONDS)
            self.connection.sendall(wire.encode(protocol.request(0, protocol.Shutdown())))
            while self.decoder.receive(self.connection) is not None:
                pass
        if not self.adopted:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        self.connection.close()


def _failed(reason: str) -> PodRuntimeFailed:
    return PodRuntimeFailed(f"{_CANNOT_START}: {reason}")


def find_pod_runtime(state_dir: str | os.PathLike[str]) -> PodRuntimeHandle | None:
    """Take over the shim that an earlier cluster left in its state folder, if there is one."""
    folder = os.path.abspath(os.fspath(state_dir))
    found = wire.connect(folder)
    if found is None:
        return None
    return PodRuntimeHandle(folder, found, pid=0, adopted=True, lasts=True, keeps_pods=True)


def start_pod_runtime(
    state_dir: str | os.PathLike[str],
    *,
    isolation: Isolation = "auto",
    die_with_parent: bool,
    build: str = "",
) -> PodRuntimeHandle:
    """Start the shim of the cluster whose state is in ``state_dir``.

    With ``die_with_parent`` nothing of it outlives this process, whatever ends it. Otherwise the
    shim and its pods survive, and the next call with the same folder finds them (``adopted``); a
    shim without pods makes room for a new one, of this version. Raises FolderHeld where one has
    pods and cannot be found in its folder any more. What isolation was possible is known once the
    agent has connected. ``build`` as in ``protocol.Hello``.
    """
    folder = os.path.abspath(os.fspath(state_dir))
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        text = f"cannot use the state folder {folder}: {error.strerror}; set TRAINYARD_STATE_DIR"
        raise PodRuntimeFailed(text) from None
    if not die_with_parent and (found := _find_with_pods(folder)) is not None:
        return found
    lock = None if die_with_parent else folder_lock.take(folder)
    listener = None if die_with_parent else wire.listen(folder)
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    owner = os.getpid()
    pid = os.fork()
    if not pid:
        try:
            os.setsid()
            # While the caller imports its own; before the working folder is another, by which
            # modules may be found.
            from trainyard.podruntime import server

            _become_daemon(folder, {each.fileno() for each in (theirs, listener, lock) if each})
            server.serve(folder, isolation, owner, theirs, listener, build, lock)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        finally:
            os._exit(0)
    for each in filter(None, (theirs, listener, lock)):
        each.close()
    return PodRuntimeHandle(folder, ours, pid, lasts=not die_with_parent)


def _find_with_pods(folder: str) -> PodRuntimeHandle | None:
    """The shim that is there, unless it has no pods: then it is ended."""
    found = find_pod_runtime(folder)
    if found is None:
        return None
    with contextlib.suppress(PodRuntimeGone):  # it was just ending
        if found.ready().pods:
            return found
    found.kill()
    return None


def _become_daemon(folder: str, kept: set[int]) -> None:
    from trainyard.podruntime import syscalls

    syscalls.close_others(kept)
    nothing = os.open("/dev/null", os.O_RDWR)
    flags = os.O_CREAT | os.O_RDWR | os.O_APPEND
    log = os.open(os.path.join(folder, "shim.log"), flags, 0o600)
    for source, target in ((nothing, 0), (nothing, 1), (log, 2)):
        os.dup2(source, target)
    os.chdir("/")
