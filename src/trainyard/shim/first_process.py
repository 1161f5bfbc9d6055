"""The first process of a container: from ``clone`` to ``exec``.

Everything here runs in children of the shim, before the user's program takes its place. The shim
learns about it through a status pipe: an ``error`` record, or ``started``, and at the end the
exit code. Nothing may raise past :func:`spawn`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import signal
import termios
from typing import Any, NamedTuple, NoReturn

from trainyard.shim import rootfs, supervisor
from trainyard.shim import syscalls as sys

# What container runtimes grant by default (without MKNOD), and IPC_LOCK, which RDMA needs:
# CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE NET_RAW IPC_LOCK
# SYS_CHROOT AUDIT_WRITE SETFCAP.
DEFAULT_CAPABILITIES = sum(1 << n for n in (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 14, 18, 29, 31))
_RESET_SIGNALS = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGTERM,
    signal.SIGCHLD,
)
NOT_EXECUTABLE, NOT_FOUND, CANNOT_START = 126, 127, 128


class Surroundings(NamedTuple):
    """What a container inherits from the shim; ``kind`` is the isolation."""

    base: str
    kind: str
    namespaces: tuple[tuple[int, int], ...]
    last_capability: int
    open_files: tuple[int, int]


class StartError(Exception):
    """The container cannot be started; ``code`` is what it is recorded to have exited with."""

    def __init__(self, message: str, code: int = CANNOT_START) -> None:
        super().__init__(message)
        self.code = code


def spawn(spec: dict[str, Any], around: Surroundings, status: int, output: int) -> int:
    """Start a container; returns the process id of its supervisor."""
    plain = around.kind == "plain"
    pid = sys.clone(0 if plain else sys.CLONE_NEWPID)
    if pid:
        return pid
    code, old_root = CANNOT_START, -1
    try:
        signal.set_wakeup_fd(-1)
        if plain:
            sys.die_with_parent(signal.SIGTERM)
            sys.prctl(sys.PR_SET_CHILD_SUBREAPER, 1)
            os.setsid()
        else:
            sys.die_with_parent()
            old_root = _isolate(spec, around)
        code = supervisor.supervise(spec, around, status, output, old_root)
    except BaseException as error:
        report(status, error)
    finally:
        os._exit(code)


def _isolate(spec: dict[str, Any], around: Surroundings) -> int:
    for path in spec.get("cgroups", ()):
        with contextlib.suppress(OSError), open(f"{path}/cgroup.procs", "w") as file:
            file.write("0")
    for fd, flag in around.namespaces:
        sys.setns(fd, flag)
    sys.unshare(sys.CLONE_NEWNS)
    return rootfs.enter(rootfs.Root.decode(spec["root"], around.base, around.kind == "rootless"))


def execute(spec: dict[str, Any], around: Surroundings, output: int) -> NoReturn:
    """Become the user's program, with both its outputs going to ``output``."""
    nothing = os.open("/dev/null", os.O_RDONLY)
    become(spec, around, (nothing, output, output))


def become(
    spec: dict[str, Any], around: Surroundings, stdio: tuple[int, int, int], terminal: bool = False
) -> NoReturn:
    """Take up session, standard streams, user and program, in this order."""
    os.setsid()
    if terminal:
        fcntl.ioctl(stdio[0], termios.TIOCSCTTY, 0)
    for target, source in enumerate(stdio):
        os.dup2(source, target)
    _reset_process(around)
    _become_user(spec, around)
    run_program(spec["argv"], spec["env"], spec["cwd"])


def run_program(argv: list[str], env: dict[str, str], cwd: str) -> NoReturn:
    _enter_folder(cwd)
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        raise _cannot_execute(argv[0], env, error) from None


def _cannot_execute(program: str, env: dict[str, str], error: OSError) -> StartError:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        where = "" if "/" in program else f" in PATH={env.get('PATH', '')}"
        if "/" in program and os.path.exists(program):
            return StartError(f"cannot run {program}: its interpreter does not exist", NOT_FOUND)
        return StartError(f"command not found: {program}{where}", NOT_FOUND)
    if error.errno == errno.EACCES:
        return StartError(f"cannot run {program}: not an executable file", NOT_EXECUTABLE)
    return StartError(f"cannot run {program}: {error.strerror}", NOT_EXECUTABLE)


def changes_user(spec: dict[str, Any]) -> bool:
    return any(spec.get(key) not in (None, []) for key in ("user", "group", "groups"))


def prepare(spec: dict[str, Any], around: Surroundings) -> None:
    """Set what a program inherits and :func:`spawn_program` cannot set for it alone."""
    _set_limits(around)
    _bound_privileges(spec, around)
    _enter_folder(spec["cwd"])


def spawn_program(spec: dict[str, Any], output: int) -> int:
    """Start the program without a copy of this process, which is the fast way; returns its id."""
    nothing = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    streams = ((nothing, 0), (output, 1), (output, 2))
    actions = [(os.POSIX_SPAWN_DUP2, source, target) for source, target in streams]
    program, env = spec["argv"][0], spec["env"]
    failure = OSError(errno.ENOENT, "")
    for path in _candidates(program, env):
        try:
            return os.posix_spawn(
                path,
                spec["argv"],
                env,
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=_RESET_SIGNALS,
            )
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                failure = error
    raise _cannot_execute(program, env, failure)


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


def _bound_privileges(spec: dict[str, Any], around: Surroundings) -> None:
    if spec.get("noNewPrivileges"):
        sys.prctl(sys.PR_SET_NO_NEW_PRIVS, 1)
    if around.kind == "root" and not spec.get("privileged"):
        added, dropped = spec.get("capabilities") or 0, spec.get("dropped") or 0
        keep = (DEFAULT_CAPABILITIES & ~dropped) | added
        sys.bound_capabilities(keep, around.last_capability)


def _become_user(spec: dict[str, Any], around: Surroundings) -> None:
    user, group = spec.get("user"), spec.get("group")
    _bound_privileges(spec, around)
    if group is not None or spec.get("groups"):
        os.setgroups([*spec.get("groups", ())])
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
        os.write(status, json.dumps({"error": text, "code": code}).encode())
    os._exit(code)
