"""The user's program: takes on its identity and executes, or says why it cannot.

Everything here runs in children of the zygote, before the program replaces them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import termios
from typing import NoReturn

from trainyard.podruntime import syscalls as sys
from trainyard.podruntime.processes import confinement
from trainyard.podruntime.processes.child_tasks import (
    NOT_EXECUTABLE,
    NOT_FOUND,
    ClusterContext,
    StartError,
)
from trainyard.podruntime.protocol import Program

Stdio = tuple[int, int, int]
"""Standard input, output and error."""
_RESET_SIGNALS = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGTERM,
    signal.SIGCHLD,
)


def exec_program(
    program: Program, context: ClusterContext, stdio: Stdio, terminal: bool = False
) -> NoReturn:
    """Set session, streams and user, then execute the program. Confinement comes before."""
    os.setsid()
    if terminal:
        fcntl.ioctl(stdio[0], termios.TIOCSCTTY, 0)
    for target, source in enumerate(stdio):
        os.dup2(source, target)
    _reset_process(context)
    _change_user(program)
    _execute(program)


def _execute(program: Program) -> NoReturn:
    _enter_folder(program.cwd)
    try:
        os.execvpe(program.argv[0], program.argv, program.env)
    except OSError as error:
        raise _cannot_execute(program.argv[0], program.env, error) from None


def _cannot_execute(program: str, env: dict[str, str], error: OSError) -> StartError:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        where = "" if "/" in program else f" in PATH={env.get('PATH', '')}"
        if "/" in program and os.path.exists(program):
            return StartError(f"cannot run {program}: its interpreter does not exist", NOT_FOUND)
        return StartError(f"command not found: {program}{where}", NOT_FOUND)
    if error.errno == errno.EACCES:
        refusal = _closed_on_the_way(program, env) or "not an executable file"
        return StartError(f"cannot run {program}: {refusal}", NOT_EXECUTABLE)
    return StartError(f"cannot run {program}: {error.strerror}", NOT_EXECUTABLE)


def _closed_on_the_way(program: str, env: dict[str, str]) -> str:
    """Which folder this user may not enter to get to a program, or to its interpreter."""
    for path in _candidates(program, env):
        for wanted in (path, os.path.realpath(path), _named_interpreter(path)):
            if folder := _closed_folder(wanted):
                return f"user {os.geteuid()} may not enter {folder}"
    return ""


def _closed_folder(path: str) -> str:
    """The first folder above a path that this user may not enter; "" where there is none."""
    ends = (at for at, letter in enumerate(path) if letter == "/")
    above = (path[:at] or "/" for at in ends)
    return next(
        (each for each in above if os.path.isdir(each) and not os.access(each, os.X_OK)), ""
    )


def _named_interpreter(script: str) -> str:
    try:
        with open(script, "rb") as file:
            first = file.readline(4096)
    except OSError:
        return ""
    words = os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
    return os.path.realpath(words[0]) if words else ""


def changes_user(program: Program) -> bool:
    return program.user is not None or program.group is not None or bool(program.groups)


def prepare_process(program: Program, context: ClusterContext) -> None:
    """Set what a program inherits and :func:`spawn_program` cannot set by itself."""
    _set_limits(context)
    confine(program, context)
    _enter_folder(program.cwd)


def spawn_program(program: Program, stdio: Stdio) -> int:
    """Start the program by posix_spawn, without copying this process; returns its process id."""
    actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate(stdio)]
    name, env = program.argv[0], program.env
    failure = OSError(errno.ENOENT, "")
    for path in _candidates(name, env):
        try:
            return os.posix_spawn(
                path,
                program.argv,
                env,
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=_RESET_SIGNALS,
            )
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                failure = error
    raise _cannot_execute(name, env, failure)


def _candidates(program: str, env: dict[str, str]) -> list[str]:
    if "/" in program:
        return [program]
    return [os.path.join(folder, program) for folder in env.get("PATH", "").split(":") if folder]


def _enter_folder(path: str) -> None:
    try:
        os.chdir(path)
    except OSError as error:
        closed = _closed_folder(f"{path}/") if error.errno == errno.EACCES else ""
        why = f"user {os.geteuid()} may not enter {closed}" if closed else error.strerror
        raise StartError(f"cannot enter working directory {path}: {why}") from None


def _set_limits(context: ClusterContext) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, context.open_files)
    os.umask(0o022)


def _reset_process(context: ClusterContext) -> None:
    for number in _RESET_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _set_limits(context)


def confine(program: Program, context: ClusterContext) -> None:
    """Confine this process, and what it starts, to what ``program`` may do."""
    confinement.confine(program, context.kind, context.user_namespace, context.last_capability)


def _change_user(program: Program) -> None:
    user, group = program.user, program.group
    if group is not None or program.groups:
        os.setgroups(program.groups)
    if group is not None:
        os.setresgid(group, group, group)
    if user is not None:
        os.setresuid(user, user, user)
        sys.die_with_parent()
