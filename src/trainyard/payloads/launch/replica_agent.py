"""The launch's agent on one replica, at the far end of an ssh connection.

It prints what the ranks on this replica report, and passes orders on to the supervisor. Lines out:
``hello <unix time>``, with ``joins`` where this replica is a newcomer, then the names of the report
files as they appear, that of a rank which failed with the stack of a crash in base64. Lines in:
``stop <seconds>`` (end the ranks, by force after that time), ``reset`` (forget all reports),
``end`` (the launch is over), ``fail <exit code>`` (for this replica, with that code). When the
connection breaks, the launch is gone and the ranks end: none may hold a GPU for nobody.

A launch never meets ranks of the one before: neither ``hello`` nor the answer to ``reset`` is given
while there are any.
"""

from __future__ import annotations

import base64
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.payloads import processes
from trainyard.payloads.crash_stack import read_crash, write_crash
from trainyard.payloads.launch.rank_shutdown import training_processes

if TYPE_CHECKING:  # types are not shipped to pods
    from trainyard.payloads.payload_messages import AgentReply

POLL_SECONDS = 0.05
GRACE_SECONDS = "5"
"""Seconds that the ranks have to end when the connection to the launch breaks."""


def log_line(message: str) -> None:
    """Write one line to the pod's log."""
    print(f"trainyard: {message}", file=sys.stderr, flush=True)


def remove_reports(reports: Path) -> None:
    """Remove the reports of a launch that is over, and what its ranks left of a crash."""
    write_crash("")
    for path in reports.iterdir():
        path.unlink()


def reply(kind: AgentReply, rest: str = "") -> None:
    """Write a line to the launch."""
    print(f"{kind} {rest}".rstrip(), flush=True)


class ReplicaAgent:
    """Relays between the connection on standard input and output and the supervisor."""

    def __init__(self, run: Path, supervisor: int) -> None:
        self.run, self.supervisor = run, supervisor
        self.reports = run / "reports"
        self.reported: set[str] = set()

    def claim(self) -> None:
        """Take over from the minder of a launch that is gone, and end what it left.

        Its connection may look alive for a minute after its pod has vanished.
        """
        owner = self.run / "minder"
        if owner.exists():
            former = int(owner.read_text())
            if processes.is_replica_agent(former):
                os.kill(former, signal.SIGKILL)
            self.stop(GRACE_SECONDS)
            self.await_end()
            remove_reports(self.reports)
        owner.write_text(str(os.getpid()))

    def stop(self, seconds: str) -> None:
        """Have the supervisor end the ranks within so many seconds."""
        (self.run / "grace").write_text(seconds)
        os.kill(self.supervisor, signal.SIGUSR2)

    def await_end(self) -> None:
        """Wait until no rank is left; the supervisor ends them."""
        while training_processes(self.supervisor, self.run):
            time.sleep(POLL_SECONDS)

    def send_reports(self) -> None:
        """Print the names of new reports."""
        names = sorted(set(os.listdir(self.reports)) - self.reported)
        self.reported.update(names)
        for name in names:
            has_failed = name.startswith("end-") and name.split("-")[2] != "0"
            crash = read_crash() if has_failed else ""
            print(f"{name} {base64.b64encode(crash.encode()).decode()}".rstrip(), flush=True)

    def obey(self, line: str) -> None:
        """Carry out one order of the launch."""
        order, _, rest = line.partition(" ")
        if order == "stop":
            self.stop(rest)
        elif order == "reset":
            self.await_end()
            remove_reports(self.reports)
            self.reported.clear()
            reply("forgot")
        elif order in ("end", "fail"):
            (self.run / "code").write_text(rest or "0")
            reply("bye")
            os.kill(self.supervisor, signal.SIGUSR1)

    def relay(self) -> None:
        """Report and obey until the connection ends."""
        buffer = b""
        joins = " joins" if (self.run / "joins").exists() else ""
        reply("hello", f"{time.time()}{joins}")
        while True:
            self.send_reports()
            if not select.select([0], [], [], POLL_SECONDS)[0]:
                continue
            data = os.read(0, 4096)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                self.obey(line.decode())


def main() -> None:
    """Relay until the launch is gone, then end the ranks."""
    minder = ReplicaAgent(Path(sys.argv[1]), int(sys.argv[2]))
    minder.claim()
    try:
        minder.relay()
    except OSError as error:
        print(f"minder: {error}", file=sys.stderr)
    finally:
        minder.stop(GRACE_SECONDS)


if __name__ == "__main__":
    main()
