"""A copy of this package in memory: an upgrade may replace the files while the shim runs.

Processes that start after that have to be of the version that started the shim, whose messages
they speak.
"""

from __future__ import annotations

import fcntl
import os

from trainyard.podruntime import syscalls as sys
from trainyard.podruntime.event_loop import log

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
_BOOT = (
    "import os, sys; fd = int(sys.argv[1]); os.set_inheritable(fd, False); "
    "sys.path.append(f'/proc/self/fd/{fd}'); from MODULE import main; main()"
)


class SourceCopy:
    """A sealed file in memory: a zip archive that Python imports from. Empty until it is made."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("podruntime", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._is_made = False

    def fileno(self) -> int:
        """What a process has to keep open that is to start others from the copy."""
        return self._fd

    def make(self) -> None:
        """Make the copy, once. In a child, which alone needs the library of archives."""
        if self._is_made:
            return
        self._is_made = True
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
            return
        try:
            self._write()
        except BaseException as error:
            log(f"cannot keep a copy of the program: {error}")
        finally:
            os._exit(0)

    def _write(self) -> None:
        import zipfile

        top = sys.sources_folder()
        package = os.path.dirname(os.path.abspath(__file__))
        with os.fdopen(os.dup(self._fd), "wb") as file, zipfile.ZipFile(file, "w") as archive:
            archive.writestr(f"{os.path.relpath(os.path.dirname(package), top)}/__init__.py", "")
            for folder, _, names in os.walk(package):
                for name in names:
                    if name.endswith(".py"):
                        path = os.path.join(folder, name)
                        archive.write(path, os.path.relpath(path, top))
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, _SEALS)

    def command(self, module: str, *arguments: str) -> tuple[list[str], set[int]]:
        """As ``syscalls.interpreter_command``, from the copy if there is one.

        Also returns the descriptors that it has to inherit.
        """
        if not fcntl.fcntl(self._fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE:
            return sys.interpreter_command(module, *arguments), set()
        boot = _BOOT.replace("MODULE", module)
        return sys.isolated_interpreter(boot, str(self._fd), *arguments), {self._fd}
