"""A process of the command that is restarted in place: its stderr, and whether it stands by.

Mounted into the user's image: standard library, Python 3.8.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import threading

STANDBY = "TRAINYARD_STANDBY"
"""See `standby.py`."""
GO = b"go"
LAST_OUTPUT_SECONDS = 2.0
MESSAGE_BYTES = 2048
"""As much of the last output as Kubernetes keeps of a container's."""
PYTHON = re.compile(r"python[0-9.]*")


class StderrTee:
    """Passes the command's stderr on as it comes, and keeps the end of it."""

    def __init__(self) -> None:
        self.last = b""
        self.read, self.write = os.pipe()
        self.thread = threading.Thread(target=self._pass_on, daemon=True)
        self.thread.start()

    def _pass_on(self) -> None:
        while True:
            data = os.read(self.read, 1 << 16)
            if not data:
                os.close(self.read)
                return
            self.last = (self.last + data)[-MESSAGE_BYTES:]
            with contextlib.suppress(OSError):  # nobody reads it any more
                while data:
                    data = data[os.write(2, data) :]

    def end(self) -> str:
        """The last of it, once all who could write have gone."""
        self.thread.join(LAST_OUTPUT_SECONDS)
        return self.last.decode(errors="replace")


class CommandProcess:
    """One process of the command."""

    def __init__(
        self, argv: list[str], variables: dict[str, str], attempt: int, modules: str | None
    ) -> None:
        """Start it; raises OSError. `modules`: what it imports before it waits for the word, "" for
        a command that begins at once and says whether it could wait, None for any other."""
        self.attempt = attempt
        self.errors = None if os.isatty(2) else StderrTee()
        """Its stderr, unless that is a terminal."""
        self._received = b""
        self._socket: socket.socket | None = None
        environment, theirs = dict(variables), None
        if modules is not None and PYTHON.fullmatch(os.path.basename(argv[0])):
            self._socket, theirs = socket.socketpair()
            self._socket.setblocking(False)
            theirs.set_inheritable(True)
            environment[STANDBY] = f"{theirs.fileno()}:{modules}"
        actions = [(os.POSIX_SPAWN_DUP2, self.errors.write, 2)] if self.errors else []
        try:
            self.pid = os.posix_spawnp(
                argv[0],
                argv,
                environment,
                file_actions=actions,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
            )
        finally:
            if self.errors:
                os.close(self.errors.write)
            if theirs:
                theirs.close()

    def can_stand_by(self) -> bool:
        """Whether this very process has met the hook in which another one would wait."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._received += self._socket.recv(64)
        return self._received == b"%d\n" % self.pid

    def release(self) -> bool:
        """Release a process that stands by; return False where it cannot be reached any more."""
        if self._socket is None:
            return False
        try:
            self._socket.send(GO)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close the socket to the process; one that stands by ends by that."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def kill(self) -> None:
        """End it, which waits; it must not have been reaped."""
        self.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
