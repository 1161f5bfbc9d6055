"""The command line in a process of its own, for what is about this machine rather than jobs."""

from __future__ import annotations

import os
import subprocess
import sys

from trainyard.client.cluster_target import CommandError


def command(*words: str | os.PathLike[str]) -> str:
    """What a command of the command line prints, such as `command("up", "--strict-scheduling")`.

    For what is about this machine rather than jobs: `up`, `down`, `status`, `doctor`, `init` and so
    on, which are processes of their own. Raises CommandError, with its words, where it fails.
    """
    if not sys.executable:
        raise CommandError("this program has no interpreter to run trainyard with")
    done = subprocess.run(
        [sys.executable, "-m", "trainyard", *(str(word) for word in words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        output = (done.stderr or done.stdout).strip().removeprefix("error: ")
        raise CommandError(output or f"{words[0]} ended with exit code {done.returncode}")
    return done.stdout
