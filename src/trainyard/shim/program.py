"""The user's program: taking up its identity and starting it, or saying why that cannot be.

Everything here runs in children of the shim, before the program takes their place. A command in a
container that is there already (``exec``) has two: the outer one enters the container's namespaces
(its children, not itself, are in the process namespace), forks the command and passes on how that
ended.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import termios
from typing import NamedTuple, NoReturn

from trainyard.shim import confinement
from trainyard.shim import syscalls as sys
from trainyard.shim.protocol import Program, Progress, to_raw

_RESET_SIGNALS = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGTERM,
    signal.SIGCHLD,
)
_ALL = sys.CLONE_NEWNS | sys.CLONE_NEWPID | sys.CLONE_NEWNET | sys.CLONE_NEWUTS | sys.CLONE_NEWIPC
NOT_EXECUTABLE, NOT_FOUND, CANNOT_START = 126, 127, 128


class Surroundings(NamedTuple):
    """What a container inherits from the shim; ``kind`` is the isolation."""

    base: str
    kind: str
    namespaces: dict[int, int]
    last_capability: int
    open_files: tuple[int, int]
    user_namespace: int = -1

    def confine(self, program: Program) -> None:
        """Bind this process, and what it starts, to what ``program`` may do."""
        confinement.confine(program, self.kind, self.user_namespace, self.last_capability)


class StartError(Exception):
    """The container cannot be started; ``code`` is what it is recorded to have exited with."""

    def __init__(self, message: str, code: int = CANNOT_START) -> None:
        super().__init__(message)
        self.code = code


def execute(program: Program, around: Surroundings, output: int) -> NoReturn:
    """Become the user's program, with both its outputs going to ``output``."""
    nothing = os.open("/dev/null", os.O_RDONLY)
    become(program, around, (nothing, output, output))


def become(
    program: Program, around: Surroundings, stdio: tuple[int, int, int], terminal: bool = False
) -> NoReturn:
    """Take up session, standard streams, user and program, in this order; confined before."""
    os.setsid()
    if terminal:
        fcntl.ioctl(stdio[0], termios.TIOCSCTTY, 0)
    for target, source in enumerate(stdio):
        os.dup2(source, target)
    _reset_process(around)
    _become_user(program)
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
        return StartError(f"cannot run {program}: not an executable file", NOT_EXECUTABLE)
    return StartError(f"cannot run {program}: {error.strerror}", NOT_EXECUTABLE)


def changes_user(program: Program) -> bool:
    return program.user is not None or program.group is not None or bool(program.groups)


def prepare(program: Program, around: Surroundings) -> None:
    """Set what a program inherits and :func:`spawn_program` cannot set for it alone."""
    _set_limits(around)
    around.confine(program)
    _enter_folder(program.cwd)


def spawn_program(program: Program, output: int) -> int:
    """Start the program without a copy of this process, which is the fast way; returns its id."""
    nothing = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    streams = ((nothing, 0), (output, 1), (output, 2))
    actions = [(os.POSIX_SPAWN_DUP2, source, target) for source, target in streams]
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
        raise StartError(f"cannot enter working directory {path}: {error.strerror}") from None


def _set_limits(around: Surroundings) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, around.open_files)
    os.umask(0o022)


def _reset_process(around: Surroundings) -> None:
    for number in _RESET_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _set_limits(around)


def _become_user(program: Program) -> None:
    user, group = program.user, program.group
    if group is not None or program.groups:
        os.setgroups(program.groups)
    if group is not None:
        os.setresgid(group, group, group)
    if user is not None:
        os.setresuid(user, user, user)
        sys.die_with_parent()


def report(status: int, error: BaseException) -> NoReturn:
    """Tell the shim why the container did not start, and end this process."""
    code = error.code if isinstance(error, StartError) else CANNOT_START
    text = str(error) or type(error).__name__
    with contextlib.suppress(OSError):
        tell(status, Progress(error=text, code=code))
    os._exit(code)


def tell(status: int, progress: Progress) -> None:
    """Write one record into the status pipe."""
    os.write(status, json.dumps(to_raw(progress)).encode() + b"\n")


def spawn_command(
    command: Program, around: Surroundings, init: int, attached: list[int], tty: bool
) -> int:
    """Start ``command`` beside process ``init``; returns the outer process's id."""
    pid = sys.clone(0)
    if pid:
        return pid
    code = CANNOT_START
    try:
        sys.die_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.close_others({*attached, around.user_namespace})
        sys.join_cgroups(command.cgroups)
        if around.kind != "plain":
            _join(init)
        stdio = _terminal(attached[0]) if tty else (attached[0], attached[1], attached[2])
        code = _run_command(command, around, stdio, tty)
    finally:
        os._exit(code)


def _join(init: int) -> None:
    fd = os.pidfd_open(init)
    sys.setns(fd, _ALL)
    os.close(fd)


def _terminal(channel: int) -> tuple[int, int, int]:
    """Make a terminal inside the container and hand its controlling end to the agent."""
    controller, terminal = os.openpty()
    with socket.socket(fileno=channel) as connection:
        socket.send_fds(connection, [b"t"], [controller])
    os.close(controller)
    return terminal, terminal, terminal


def _run_command(
    command: Program, around: Surroundings, stdio: tuple[int, int, int], terminal: bool
) -> int:
    pid = sys.clone(0)
    if not pid:
        try:
            sys.die_with_parent()
            around.confine(command)
            become(command, around, stdio, terminal)
        except BaseException as error:
            os.write(2, f"{error}\n".encode())
            os._exit(error.code if isinstance(error, StartError) else 126)
    for fd in set(stdio):
        os.close(fd)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
