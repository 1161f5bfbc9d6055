"""Runs the image's ``colossalai`` script with our ssh configuration and next to no environment.

``colossalai run`` exports all of its own environment to the workers, unescaped, over theirs; with
none at all, its bare ``export`` would print the workers' into the log. And it knows no option for
an ssh configuration; fabric, which it connects with, has a setting.

Arguments: our client configuration, the ``colossalai`` script, this pod's name, then those of the
script.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
import time
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

_LAST_SECONDS = 2.0
"""For what a failed launch leaves of its processes, one a host."""


def exit_now(code: object) -> None:
    """End at once: the pod would wait for torch to be taken down, half a second of computing."""
    if code is not None and not isinstance(code, int):  # see sys.exit
        print(code, file=sys.stderr)
        code = 1
    until = time.monotonic() + _LAST_SECONDS
    # Not `active_children()`: of one that was just killed, its pipe may tell before its signal.
    for child in list(multiprocessing.process._children):  # type: ignore[attr-defined]
        # After an error of its own they wait for another command, and are never told to end.
        child.join(max(0.0, until - time.monotonic()) if code else None)
        if code and code < 128 and (child.exitcode or 0) < 0:
            code = report_killed(-child.exitcode)
        child.terminate()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def report_killed(number: int) -> int:
    """Say so; the exit code that stands for it."""
    text = f"trainyard: a process of the launch was killed by signal {number}"
    print(text, flush=True)  # the pod may be told to end before we leave
    return 128 + number


def watch() -> None:
    """``colossalai run`` has a process a host, and never misses one that is killed."""
    own = os.getpid()

    def note(*_: object) -> None:
        if os.getpid() != own:
            return
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is not None and ended.si_code != os.CLD_EXITED:
            exit_now(report_killed(ended.si_status))

    signal.signal(signal.SIGCHLD, note)


class WholeLines:
    """A stream that is written whole lines at a time; other hosts' processes write there, too."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream, self.rest = stream, ""

    def write(self, text: str) -> None:
        """Write the lines that are whole by now."""
        lines, newline, self.rest = (self.rest + text).rpartition("\n")
        self.stream.write(lines + newline)

    def flush(self) -> None:
        """Nothing is held back but an unfinished line."""
        self.stream.flush()


def keep_lines_whole() -> None:
    """invoke (`invoke/runners.py`) writes what came of a host so far, whole lines or not."""
    try:
        runner: Any = import_module("invoke.runners").Runner
        handle = runner._handle_output
    except (ImportError, AttributeError):
        return

    def handle_output(self: Any, buffer_: Any, hide: bool, output: Any, reader: Any) -> None:
        lines = WholeLines(output)
        handle(self, buffer_, hide, lines, reader)
        if lines.rest:
            lines.write("\n")
            lines.flush()

    runner._handle_output = handle_output


def main() -> None:
    """Become ``colossalai``."""
    settings, script, pod, *arguments = sys.argv[1:]
    del sys.path[0]
    try:
        configuration = import_module("fabric.config").Config
    except ImportError:
        pass
    else:
        defaults = configuration.global_defaults
        changed = {"ssh_config_path": settings}
        configuration.global_defaults = staticmethod(lambda: {**defaults(), **changed})
    os.environ.clear()
    os.environ["TRAINYARD_LAUNCHER"] = pod
    sys.argv = [script, *arguments]
    watch()
    keep_lines_whole()
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        exit_now(end.code)


if __name__ == "__main__":
    main()
