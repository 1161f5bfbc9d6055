"""The launch's ears and hands on one replica, at the far end of an ssh connection.

Prints what the ranks here report, and passes commands on to the supervisor. Lines out: ``hello
<unix time>``, then the names of the report files as they appear. Lines in: ``stop <seconds>``
(end the ranks, by force after that time), ``reset`` (forget all reports), ``end`` (the launch is
over). When the connection breaks,
the launch is gone and the ranks end: none may hold a GPU for nobody.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path

POLL_SECONDS = 0.05
GRACE_SECONDS = "5"
"""Time for the ranks to end when the launch has gone without a word."""


def forget(reports: Path) -> None:
    """Remove the reports of a launch that is over."""
    for path in reports.iterdir():
        path.unlink()


def is_minder(pid: int) -> bool:
    """Whether the process is a minder still."""
    try:
        return b"/minder.py\0" in Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return False


class Minder:
    """Relays between the connection on standard input and output and the supervisor."""

    def __init__(self, run: Path, supervisor: int) -> None:
        self.run, self.supervisor = run, supervisor
        self.reports = run / "reports"
        self.told: set[str] = set()

    def claim(self) -> None:
        """Take over from the minder of a launch that is gone, and end what it left.

        Its connection may look alive for a minute after its pod has vanished.
        """
        owner = self.run / "minder"
        if owner.exists():
            former = int(owner.read_text())
            if is_minder(former):
                os.kill(former, signal.SIGKILL)
            self.stop(GRACE_SECONDS)
            forget(self.reports)
        owner.write_text(str(os.getpid()))

    def stop(self, seconds: str) -> None:
        """Let the supervisor end the ranks."""
        (self.run / "grace").write_text(seconds)
        os.kill(self.supervisor, signal.SIGUSR2)

    def tell(self) -> None:
        """Print the names of new reports."""
        names = sorted(set(os.listdir(self.reports)) - self.told)
        self.told.update(names)
        for name in names:
            print(name, flush=True)

    def obey(self, line: str) -> None:
        """Carry out one command."""
        word, _, rest = line.partition(" ")
        if word == "stop":
            self.stop(rest)
        elif word == "reset":
            forget(self.reports)
            self.told.clear()
            print("forgot", flush=True)
        elif word == "end":
            print("bye", flush=True)
            os.kill(self.supervisor, signal.SIGUSR1)

    def relay(self) -> None:
        """Until the connection ends."""
        buffer = b""
        print(f"hello {time.time()}", flush=True)
        while True:
            self.tell()
            if not select.select([0], [], [], POLL_SECONDS)[0]:
                continue
            data = os.read(0, 4096)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                self.obey(line.decode())


def main() -> None:
    """Relay; then, since the launch is gone, let the ranks go too."""
    minder = Minder(Path(sys.argv[1]), int(sys.argv[2]))
    minder.claim()
    try:
        minder.relay()
    except OSError as error:
        print(f"minder: {error}", file=sys.stderr)
    finally:
        minder.stop(GRACE_SECONDS)


if __name__ == "__main__":
    main()
