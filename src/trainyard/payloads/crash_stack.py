"""What a crash of native code left in the container's termination message (`sitecustomize_hook`).

Programs that outlive the ranks keep it in order there: a stack of an earlier attempt is not of this
end, and a long list of extension modules, which Python puts below the stack, would push it out of
the 4 KiB from the end that a kubelet keeps. Mounted into the user's image, as a part of these
programs: standard library, Python 3.8.
"""

from __future__ import annotations

import os

CRASHED = "Fatal Python error: "


def crash_file() -> str:
    """The termination message's file (`rank_observer.VARIABLE`); empty where nobody observes."""
    given = os.environ.get("TRAINYARD_OBSERVE", "")
    parts = dict(part.split("=", 1) for part in given.split(",") if "=" in part)
    return (parts.get("message") or "/dev/termination-log") if parts else ""


def read_crash() -> str:
    """The stacks that are there, without lists of modules; empty if there are none."""
    try:
        with open(crash_file(), encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 16)
    except OSError:
        return ""
    lines = [line for line in text.split("\n") if not line.startswith("Extension modules: ")]
    return "\n".join(lines).rstrip() + "\n" if CRASHED in text else ""


def write_crash(text: str) -> None:
    """Replace the stacks that are there, if any, or write the first one."""
    if not text and not read_crash():
        return
    try:
        with open(crash_file(), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:  # it may not be written: the end is told without
        return
