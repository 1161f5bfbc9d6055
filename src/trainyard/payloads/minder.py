"""The launch's ears and hands on one replica, at the far end of an ssh connection.

Prints what the ranks here report, and passes commands on to the supervisor. Lines out: ``hello
<unix time>``, then the names of the report files as they appear. Lines in: ``stop <seconds>``
(end the ranks, by force after that time), ``reset`` (forget all reports), ``end`` (the launch is
over). When the connection breaks, the launch is gone and the ranks end: none may hold a GPU for
nobody.

The supervisor has from here which processes of a replica are the training's.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # not mounted
    from trainyard.payloads.messages import Word

POLL_SECONDS = 0.05
GRACE_SECONDS = "5"
"""Time for the ranks to end when the launch has gone without a word."""


def say(message: str) -> None:
    """One line for the pod's log."""
    print(f"trainyard: {message}", file=sys.stderr, flush=True)


def forget(reports: Path) -> None:
    """Remove the reports of a launch that is over."""
    for path in reports.iterdir():
        path.unlink()


def answer(word: Word, rest: str = "") -> None:
    """A line to the launch."""
    print(f"{word} {rest}".rstrip(), flush=True)


def is_minder(pid: int) -> bool:
    """Whether the process is a minder still."""
    try:
        return b"/minder.py\0" in Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return False


def children_of() -> dict[int, list[int]]:
    """Parent to children, for every process that we can see."""
    tree: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            tree.setdefault(int(fields[1]), []).append(int(entry))
    return tree


def descendants(root: int, tree: dict[int, list[int]]) -> set[int]:
    """All processes below ``root``."""
    found: set[int] = set()
    waiting = [root]
    while waiting:
        for child in tree.get(waiting.pop(), []):
            found.add(child)
            waiting.append(child)
    return found


def is_ours(pid: int) -> bool:
    """Whether the process is sshd or a minder, not part of the training."""
    try:
        name = Path("/proc", str(pid), "comm").read_text()
        command = Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return True
    return name.startswith("sshd") or b"/minder.py\0" in command


def training(launch: int) -> set[int]:
    """Processes of the training below this one: neither sshd, minder nor the launch."""
    tree = children_of()
    mine = descendants(os.getpid(), tree)
    if launch:
        mine -= {launch} | descendants(launch, tree)
    ours = {pid for pid in mine if is_ours(pid)}
    # A minder's connection would end with the shell that some systems keep above it.
    parents = {child: parent for parent, children in tree.items() for child in children}
    for pid in list(ours):
        while pid in parents:
            pid = parents[pid]
            ours.add(pid)
    return mine - ours


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
            answer("forgot")
        elif word == "end":
            answer("bye")
            os.kill(self.supervisor, signal.SIGUSR1)

    def relay(self) -> None:
        """Until the connection ends."""
        buffer = b""
        answer("hello", str(time.time()))
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
