"""Tells what can never start from what may start at another try, by the words of who starts it."""

from __future__ import annotations

import re

NEVER_RAN = ("ContainerCannotRun", "StartError", "RunContainerError")
"""Why a container ended that its runtime could not start."""

_NEVER = re.compile(
    # Of the embedded cluster's runtime (`podruntime.processes.program`).
    r"^command not found: |so there is nothing to run: |^cannot enter working directory "
    r"|^cannot run .+: (?:its interpreter |not an executable|user \d+ may not|Exec format error"
    r"|Argument list too long)"
    # Of runc and crun.
    r"|exec: .+: (?:executable file not found|no such file or directory|permission denied"
    r"|is a directory)|executable file .+ not found|exec format error"
    r"|chdir to cwd .+: (?:no such file or directory|permission denied)",
    re.IGNORECASE | re.MULTILINE,
)
_CANNOT_START = re.compile(r"^trainyard: cannot start: \S+: (.+)$", re.MULTILINE)
"""As our own programs in pods say it (`payloads.launch.sshd_requirements`)."""


def never_starts(reason: str, message: str) -> str:
    """Why a container can never start, by its reason and termination message; "" where another
    try may go otherwise, or it ran (decision 102)."""
    if reason in NEVER_RAN:
        return message.strip() if _NEVER.search(message) else ""
    found = _CANNOT_START.search(message)
    return found[1] if found else ""
