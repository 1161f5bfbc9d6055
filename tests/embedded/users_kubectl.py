"""kubectl as a user has it, with the kubeconfig of a cluster of `trainyard up`."""

from __future__ import annotations

import os
import subprocess
from contextlib import AbstractContextManager

from tests.embedded.command_line import PATIENCE_SECONDS, CommandLine
from tests.embedded.terminal import Terminal, started_on_terminal


class UsersKubectl:
    """One of the machine's, by its path."""

    def __init__(self, trainyard: CommandLine, path: str) -> None:
        self.path, self.trainyard = path, trainyard
        self._config = str(trainyard.state / "kubeconfig")

    def __call__(self, *arguments: str, stdin: str = "", codes: tuple[int, ...] = (0,)) -> str:
        """What it prints; what it says beside that, if it is to fail."""
        done = subprocess.run(
            [self.path, *arguments],
            env={"PATH": os.environ["PATH"], "HOME": "/", "KUBECONFIG": self._config},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode in codes, (done.stdout[-2000:], done.stderr)
        return done.stdout if 0 in codes else done.stderr

    def on_terminal(self, *arguments: str) -> AbstractContextManager[Terminal]:
        """On a terminal of 40 lines and 100 columns."""
        program = [self.path, *arguments]
        return started_on_terminal(self.trainyard, program=program, KUBECONFIG=self._config)
