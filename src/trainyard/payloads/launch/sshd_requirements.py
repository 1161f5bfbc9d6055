"""Checks whether a pod can serve ssh at all, and reads why its sshd ended.

What is missing for good (a program, an account, a right) is told before anything starts, in a
line that begins with ``PERMANENT``: the controller does not try such a pod again. Mounted beside
``supervise.py``: standard library, Python 3.8.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import threading
from pathlib import Path

PERMANENT = "cannot start: "
NOT_FOUND = 127  # what a shell ends with; such a pod is not tried again (decision 102)
CAPABILITIES = {"SETGID": 6, "SETUID": 7, "SYS_CHROOT": 18}
"""What sshd of root cannot do without (capabilities(7)), and the bits of each."""
LAST_OUTPUT_SECONDS = 1.0
"""How long sshd's last words are waited for; a session of it may hold the pipe open."""
PORT_TAKEN = re.compile(r"Bind to port \d+ on \S+ failed: Address already in use")
NOISE = re.compile(
    r"(?:error: )?(?:kex_exchange_identification|kex_protocol_error|ssh_dispatch_run_fatal"
    r"|banner exchange|Connection (?:closed|reset)|Timeout before authentication)"
)
"""What sshd says of connections that only look whether it answers, as the launch does."""


class CannotServeSsh(Exception):
    """The image, or how it is run, does not allow ssh; ends the pod with ``code``."""

    def __init__(self, message: str, code: int = 1, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.permanent = permanent

    def log_text(self, pod: str) -> str:
        """The line for the pod's log; the controller reads it."""
        return f"{PERMANENT if self.permanent else ''}{pod}: {self}"


def check_login() -> None:
    """ssh logs in by name and through a shell; an image may offer neither."""
    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError:
        message = f"uid {os.getuid()} has no entry in /etc/passwd, but ssh needs one; add it"
        raise CannotServeSsh(message, permanent=True) from None
    shell = user.pw_shell or "/bin/sh"
    if Path(shell).name in ("nologin", "false"):
        message = f"user {user.pw_name} has no login shell ({shell}), but ssh needs one"
        raise CannotServeSsh(message, permanent=True)
    for needed in (shell, "/bin/sh"):
        if shutil.which(needed) is None:
            message = f"{needed} is not in the image, but user {user.pw_name} needs it for ssh"
            raise CannotServeSsh(message, NOT_FOUND, permanent=True)


def check_rights(status: str) -> None:
    """sshd of root changes users and roots; ``status`` is what /proc tells of this process."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    effective = int(found[1], 16) if found else -1
    missing = [name for name, bit in CAPABILITIES.items() if not effective >> bit & 1]
    if missing:
        raise CannotServeSsh(
            f"sshd of root needs the capabilities {', '.join(missing)}; add them to the "
            "container's securityContext, or run it as another user",
            permanent=True,
        )


def check_requirements(sshd: str) -> None:
    """Whether sshd is there, and can let this user in."""
    if shutil.which(sshd) is None:
        message = f"sshd not found: {sshd}; install openssh-server in the image"
        raise CannotServeSsh(message, NOT_FOUND, permanent=True)
    check_login()
    if os.getuid() == 0:
        check_rights(Path("/proc/self/status").read_text())


class SshdServer:
    """A running sshd. Its messages reach the pod's log through this process."""

    def __init__(self, argv: list[str]) -> None:
        self.complaint = ""
        """What it said last, for when it ends."""
        theirs, ours = os.pipe()
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, ours, 2),
        ]
        self.pid = os.posix_spawn(
            argv[0], argv, dict(os.environb), file_actions=actions, setsigmask=()
        )
        os.close(ours)
        self.listener = threading.Thread(target=self.listen, args=(theirs,), daemon=True)
        self.listener.start()

    def listen(self, pipe: int) -> None:
        """Pass on what it says, but for what the launch's own looking around makes it say."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        with os.fdopen(pipe, errors="replace") as lines:
            for line in lines:
                line = line.strip()
                if not line or NOISE.match(line):
                    continue
                os.write(2, f"trainyard: sshd: {line}\n".encode())  # unbuffered: a daemon's
                if not PORT_TAKEN.search(self.complaint):
                    self.complaint = line
                if PORT_TAKEN.search(line):
                    # It would go on with the addresses that are left, such as those of IPv6.
                    os.kill(self.pid, signal.SIGTERM)

    def end(self, code: int) -> CannotServeSsh:
        """The error for an end of sshd that nobody asked for."""
        self.listener.join(LAST_OUTPUT_SECONDS)
        how = f"was killed by signal {code - 128}" if code > 128 else f"ended with exit code {code}"
        if PORT_TAKEN.search(self.complaint):
            return CannotServeSsh(
                f"{self.complaint.rstrip('.')}; another container of the pod may hold the port"
            )
        complaint = f": {self.complaint}" if self.complaint else ""
        return CannotServeSsh(f"sshd {how}{complaint}", code if code > 128 else 1)
