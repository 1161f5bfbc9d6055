"""The launch's ssh connections to the replicas, and its report on those that it waits for.

A connection waits until a replica's sshd answers, starts the replica agent there, and passes the
agent's lines on. It never gives up, and always knows why it is not established yet. Runs in the
user's image, beside the launch: standard library, Python 3.8.
"""

from __future__ import annotations

import base64
import contextlib
import os
import queue
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trainyard.payloads.launch.replica_agent import log_line

if TYPE_CHECKING:  # types are not shipped to pods
    from trainyard.payloads.payload_messages import AgentOrder

CONNECT_SECONDS = 0.5
"""Where packets to a replica that is not there yet are dropped, a longer try would outlast its
arrival."""
BANNER_SECONDS = 2.0
SESSION_SECONDS = 30.0
"""How long a session may take to begin, before another is tried."""
FIRST_RETRY_SECONDS, RETRY_SECONDS = 0.02, 0.2
"""Replicas mostly start together, so the first tries are soon repeated, later ones doubly later."""
PROGRESS_SECONDS = 10.0
UNANSWERED = "its name cannot be found: the name server does not answer"
MOST_NAMED_HOSTS = 3
"""As many hosts with the same reason are named."""


class LaunchEvent(NamedTuple):
    """An event that a thread hands to the main thread."""

    what: str
    host: str = ""
    detail: str = ""
    crash: str = ""
    """The stack of a crash, beside the report of a rank that failed."""


class ReplicaConnection(threading.Thread):
    """The connection to one replica: waits for its sshd, then relays its agent's lines."""

    def __init__(
        self, host: str, address: tuple[str, int], events: queue.SimpleQueue[LaunchEvent]
    ) -> None:
        super().__init__(daemon=True, name=f"link to {host}")
        self.host, self.address, self.events = host, address, events
        self.ssh: subprocess.Popen[str] | None = None
        self.clock_ahead = 0.0
        self.joins = False
        """Whether it is a newcomer among the replicas."""
        self.reason = "no answer yet"
        self.asked_at: float | None = None
        """Since when its name is being looked up."""
        self.has_failed = False
        """Whether a session has, although ssh answers."""

    def run(self) -> None:
        """Connect and pass on what the agent sends, again and again; a daemon thread."""
        delay = FIRST_RETRY_SECONDS
        while True:
            try:
                if self.answers():
                    self.relay()
            except Exception as error:
                # Whatever it is, such as no process to be had: a link that ended would never tell.
                self.reason = f"cannot be tried: {error or type(error).__name__}"
            time.sleep(delay)
            delay = min(2 * delay, RETRY_SECONDS)

    @property
    def why(self) -> str:
        """Why the connection is not established yet; never empty."""
        asked = self.asked_at
        if asked is not None and time.monotonic() - asked > BANNER_SECONDS:
            return UNANSWERED
        return self.reason

    def answers(self) -> bool:
        """Whether an ssh server answers; cheaper than a whole connection while one waits."""
        port = self.address[1]
        for address in self.addresses():
            try:
                with socket.create_connection((address, port), CONNECT_SECONDS) as connection:
                    connection.settimeout(BANNER_SECONDS)
                    if connection.recv(4) == b"SSH-":
                        return True
                    self.reason = f"something else than ssh answers on port {port}"
            except OSError as error:
                self.reason = error.strerror or "no answer"
        self.has_failed = False
        return False

    def addresses(self) -> list[str]:
        """The replica's addresses. A name server that does not answer blocks this for long."""
        self.asked_at = time.monotonic()
        try:
            found = socket.getaddrinfo(*self.address, type=socket.SOCK_STREAM)
        except OSError as error:
            is_silent = error.errno == socket.EAI_AGAIN
            found_not = f"its name cannot be found: {error.strerror}"
            self.reason = UNANSWERED if is_silent else found_not
            return []
        finally:
            self.asked_at = None
        return [str(each[4][0]) for each in found]

    def relay(self) -> None:
        """Pass on the agent's lines until the connection ends."""
        ready, last_line = False, ""
        if not self.has_failed:  # what came of the last one tells more
            self.reason = "ssh answers, but no session has begun"
        command = ["ssh", "-T", self.host, "trainyard-minder"]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        ) as ssh:
            self.ssh = ssh
            patience = threading.Timer(SESSION_SECONDS, ssh.kill)
            patience.start()
            for line in ssh.stdout or ():
                # A shell's start-up file may print, and leave its line open.
                _, found, greeting = line.strip().rpartition("hello ")
                if not ready and found:
                    ready = True
                    patience.cancel()
                    clock, _, mark = greeting.partition(" ")
                    self.clock_ahead, self.joins = float(clock) - time.time(), mark == "joins"
                    self.events.put(LaunchEvent("ready", self.host))
                elif ready:
                    name, _, crash = line.strip().partition(" ")
                    stack = base64.b64decode(crash).decode(errors="replace")
                    self.events.put(LaunchEvent("report", self.host, name, stack))
                else:
                    last_line = line.strip() or last_line
            patience.cancel()
            complaint = (ssh.stderr.read() if ssh.stderr else "").strip().rpartition("\n")[2]
        self.ssh = None
        if ready:
            self.reason = complaint or "the connection was closed"
            self.events.put(LaunchEvent("lost", self.host, self.reason))
        else:
            self.has_failed = True
            self.reason = describe_session_end(ssh.returncode, complaint or last_line)

    def send(self, order: AgentOrder, argument: str = "") -> None:
        """Send an order to the agent; ``relay`` reports a broken connection."""
        ssh = self.ssh
        if ssh is None or ssh.stdin is None:
            return
        try:
            ssh.stdin.write(f"{order} {argument}".rstrip() + "\n")
            ssh.stdin.flush()
        except (OSError, ValueError):
            return


def describe_session_end(code: int, complaint: str) -> str:
    """Why the session of an ssh client never began."""
    if code < 0:  # ours: it had its time
        return f"ssh answers, but no session began within {SESSION_SECONDS:g} s"
    if code == 255:  # of ssh itself, see ssh(1)
        return complaint or "the connection was closed"
    why = f": {complaint}" if complaint else "; a start-up file of the shell may end it"
    return f"its session ended with exit code {code}{why}"


class LaunchProgress:
    """Publishes what the launch waits for, in the pod's log and to the container's startup probe.

    The probe prints the file ``waits`` of the pod's own folder, and succeeds once the file
    ``launched`` is there (decision 100). Where a launch starts with a ``note``, the probe fails
    once more, so that the note becomes an event (decision 128).
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.text = ""
        self.note = ""
        self.is_done = False
        self.since = self.printed_at = time.monotonic()

    def wait(self, text: str) -> None:
        """Publish that the launch still waits, and for what; log it every ten seconds."""
        if text != self.text:
            self.text, self.since = text, time.monotonic()
            self.write("waits", f"trainyard: {text}\n")
        now = time.monotonic()
        if now - self.printed_at >= PROGRESS_SECONDS:
            self.printed_at = now
            log_line(f"{text} ({now - self.since:.0f} s)")

    def done(self) -> None:
        """Publish that the launch has started."""
        if self.is_done:
            return
        self.is_done = True
        if self.note:
            self.write("waits", f"trainyard: {self.note}\n")
            self.write("note", "")
        self.write("launched", "")

    def write(self, name: str, text: str) -> None:
        """Write a file atomically. A full folder must not prevent the launch."""
        with contextlib.suppress(OSError):
            (self.run / f"{name}.new").write_text(text)
            os.replace(str(self.run / f"{name}.new"), str(self.run / name))


def describe_missing_replicas(missing: list[ReplicaConnection]) -> str:
    """``waiting for worker-1, worker-2: Connection refused; for worker-3: ...``."""
    by_reason: dict[str, list[str]] = {}
    for link in missing:
        by_reason.setdefault(link.why, []).append(link.host)
    parts = []
    for reason, hosts in by_reason.items():
        more = f" and {len(hosts) - MOST_NAMED_HOSTS} more" if len(hosts) > MOST_NAMED_HOSTS else ""
        parts.append(f"{', '.join(hosts[:MOST_NAMED_HOSTS])}{more}: {reason}")
    return f"waiting for {'; for '.join(parts[:MOST_NAMED_HOSTS])}"
