"""A machine with several users, of which only the processes of a test know."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.embedded.command_line import CommandLine


class User(NamedTuple):
    """A line of /etc/passwd."""

    name: str
    uid: int
    gid: int


ALICE, BOB, CAROL = (
    User("alice", 1_234_201_103, 1_234_200_513),  # as sssd gives users of a directory
    User("bob", 61002, 61002),
    User("carol", (1 << 32) - 2, (1 << 32) - 2),
)
VISION = 61100
"""A group, of which Bob is a member."""


class Machine:
    """Root's cluster in a folder that everybody may enter, and a command line for each user."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="trainyard-people-", dir="/tmp"))
        self.folder.chmod(0o755)
        users = [("root", 0, 0, "/root"), ("nobody", 65534, 65534, "/")]
        users += [(u.name, u.uid, u.gid, str(self.folder / u.name)) for u in (ALICE, BOB, CAROL)]
        lines = [f"{name}:x:{uid}:{gid}::{home}:/bin/sh\n" for name, uid, gid, home in users]
        (self.folder / "passwd").write_text("".join(lines))
        groups = "".join(f"{name}:x:{gid}:\n" for name, _, gid, _ in users)
        (self.folder / "group").write_text(f"{groups}vision:x:{VISION}:bob\n")
        self.root = self._line("root", 0, 0)
        self.alice = self._line(*ALICE)
        self.bob = self._line(*BOB)
        self.carol = self._line(*CAROL)

    def _line(self, name: str, uid: int, gid: int) -> CommandLine:
        home = self.folder / name
        home.mkdir(mode=0o700)
        os.chown(home, uid, gid)
        switch = ("-m", "tests.embedded.as_user", f"--people={self.folder}", f"--user={name}")
        line = CommandLine(home, wrapper=(sys.executable, *switch))
        repository = Path(__file__).parents[2]
        line.environment |= {
            "TRAINYARD_STATE_DIR": str(self.folder / "cluster"),
            "PYTHONPATH": f"{repository}/src:{repository}",
        }
        line.environment.pop("XDG_STATE_HOME", None)
        return line

    def close(self) -> None:
        """End the cluster and remove everything."""
        self.root.run("down", code=None)
        for line in (self.root, self.alice, self.bob, self.carol):
            line.kill_everything()
        shutil.rmtree(self.folder, ignore_errors=True)
