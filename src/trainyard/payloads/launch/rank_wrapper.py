"""One rank of a DeepSpeed launch: runs the program and reports how it ended.

``deepspeed`` starts this in place of the user's script, because it turns exit codes into others
(a SIGKILL into 247, some signals into 0) and, through pdsh and a remote shell, arguments into
others too. Arguments that a shell or pdsh could change arrive encoded (``encoded-argument:`` and
base64). The program is started as ``deepspeed`` would have: ``python -u script``,
``python -u -m module`` or the program itself, ``--local_rank`` first among its arguments. The lines
of ranks that share a log are kept apart (`rank_output`).
"""

from __future__ import annotations

import base64
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from trainyard.payloads.rank_output import RankOutput, shared_output

ENCODED = "encoded-argument:"
PR_SET_PDEATHSIG = 1
NOT_FOUND = 127
PYTHON = re.compile(r"(?:.*/)?python[0-9.]*")


def decode(argument: str) -> str:
    """The argument as the user wrote it."""
    if not argument.startswith(ENCODED):
        return argument
    data = base64.urlsafe_b64decode(argument[len(ENCODED) :])
    return data.decode("utf-8", "surrogateescape")


def command(arguments: list[str]) -> list[str]:
    """``[--local_rank=N] [in folder path] form program args…`` as the rank's command.

    Goes to the folder, with the path as PYTHONPATH: through a shell they would not have come.
    """
    local_rank = [argument for argument in arguments[:1] if argument.startswith("--local_rank=")]
    form, program, *rest = (decode(argument) for argument in arguments[len(local_rank) :])
    if form == "in":
        os.chdir(program)
        path, form, *rest = rest
        os.environ["PYTHONPATH"] = ":".join(filter(None, (program, path)))  # as deepspeed has it
        program, *rest = rest
    head = {
        "python": [sys.executable, "-u", program],
        "module": [sys.executable, "-u", "-m", program],
        "exec": [program],
    }[form]
    own = count_python_words(rest) if form == "exec" and PYTHON.fullmatch(program) else 0
    return [*head, *rest[:own], *local_rank, *rest[own:]]


def count_python_words(words: list[str]) -> int:
    """How many arguments of a Python are its own: the others are the script's or module's."""
    count = 0
    while count < len(words) and words[count].startswith("-"):
        option = words[count]
        count += 2 if option in ("-W", "-X", "-m", "-c") else 1
        if option in ("-m", "-c"):
            return count
    return count + 1


def report(run: str, name: str) -> None:
    """Reports are empty files: a name appears at once or not at all."""
    Path(run, "reports", name).touch()


def pipes(output: RankOutput, rank: str) -> tuple[int, int]:
    """Ends for the rank's standard output and error."""
    end = output.pipe(rank, 1)
    return end, end if shared_output() else output.pipe(rank, 2)


def wait(process: subprocess.Popen[bytes], output: RankOutput | None, ends: set[int]) -> int:
    """The exit code of the rank, when all that it wrote is passed on."""
    if output is None:
        return process.wait()
    for end in ends:
        os.close(end)
    output.start()
    code = process.wait()
    output.drain()
    return code


def main() -> None:
    """Run, report, and end with the rank's code or 128 plus its signal."""
    run, rank = os.environ.pop("TRAINYARD_RUN"), os.environ.get("RANK", "0")
    prctl = ctypes.CDLL(None).prctl
    asked: list[Path] = []

    def mark_asked(*_: object) -> None:
        # deepspeed signals the whole tree; the rank is not to be asked a second time.
        for mark in asked:
            mark.touch()

    signal.signal(signal.SIGTERM, mark_asked)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def prepare_child() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    report(run, f"start-{rank}")
    argv = command(sys.argv[1:])
    output = RankOutput() if os.environ.get("WORLD_SIZE", "1") != "1" else None
    out, err = pipes(output, rank) if output else (None, None)
    try:
        process = subprocess.Popen(argv, preexec_fn=prepare_child, stdout=out, stderr=err)
        asked.append(Path(run, "asked", str(process.pid)))
        code = wait(process, output, {end for end in (out, err) if end is not None})
    except OSError as error:
        print(f"trainyard: cannot run {argv[0]}: {error.strerror}", file=sys.stderr)
        code = NOT_FOUND
    for mark in asked:
        mark.unlink() if mark.exists() else None
    code = 128 - code if code < 0 else code
    report(run, f"end-{rank}-{code}-{time.time_ns()}")
    raise SystemExit(code)


if __name__ == "__main__":
    main()
