"""First process of every pod of an ssh-launched job: runs sshd, and on one replica the launch.

It is mounted into the user's image, so it needs nothing but Python 3.8 and an sshd. It makes a
private folder with copies of the keys (ssh refuses keys that others may read, and a mounted
Secret's mode cannot suit root and non-root images alike), writes the server's configuration, so
that the image's own has no say, and saves the container's environment for the ssh sessions, which
sshd starts with a bare one. It must not touch anything outside that folder.

Signals from the minder (``minder.py``): SIGUSR2 ends the ranks on this node, SIGUSR1 ends sshd
and, a little later, this process with 0, because the launch is over.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shlex
import shutil
import signal
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # not mounted
    from trainyard.payloads.messages import LaunchDescription

if TYPE_CHECKING or __package__:
    from trainyard.payloads.fitness import NOT_FOUND, Server, Unfit, check
    from trainyard.payloads.minder import say, training
    from trainyard.payloads.places import client_config
else:  # in a pod there is no package, and isolated mode leaves the script's own folder out
    sys.path.insert(0, str(Path(__file__).parent))
    from fitness import NOT_FOUND, Server, Unfit, check
    from minder import say, training
    from places import client_config

END_DELAY_SECONDS = 3.0
"""Workers outlive sshd by this much, so that the launching pod's own end is seen first."""
KILL_AFTER_SECONDS = 5.0
PR_SET_CHILD_SUBREAPER = 36

POD_IP = "TRAINYARD_POD_IP"
NOT_FOR_SESSIONS = (b"PWD", b"OLDPWD", b"SHLVL", b"_", POD_IP.encode())
IMAGE_VARIABLES = re.compile(
    rb"(PATH|LD_LIBRARY_PATH|LIBRARY_PATH|HOME|LANG|LC_.*|TZ|VIRTUAL_ENV|(PYTHON|CONDA|CUDA|NVIDIA"
    rb"|NCCL).*)\Z"
)
"""What an image commonly sets; all that sessions get where the job's variables are turned off."""

SSHD_CONFIG = """\
Port {port}
{listen}
HostKey {run}/ssh/ssh_host_ed25519_key
AuthorizedKeysFile {run}/ssh/authorized_keys
PidFile none
StrictModes no
PermitUserEnvironment yes
UsePAM {pam}
PermitRootLogin yes
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
X11Forwarding no
UseDNS no
PrintMotd no
LogLevel ERROR
LoginGraceTime 30
MaxStartups 4096
MaxSessions 4096
ClientAliveInterval 20
ClientAliveCountMax 3
ForceCommand /bin/sh {run}/session
"""

SESSION = """\
run={run}
if [ "$SSH_ORIGINAL_COMMAND" = trainyard-minder ]; then
    exec {python} -IS {minder} "$run" {pid}
fi
set -- TRAINYARD_RUN="$run" {variables}
if [ -z "$SSH_ORIGINAL_COMMAND" ]; then
    exec env "$@" "$SHELL"
fi
{command}
"""
PLAIN_COMMAND = 'exec env "$@" "$SHELL" -c "$SSH_ORIGINAL_COMMAND"'
REPORTED_COMMAND = """\
: > "$run/reports/start-s$$"
env "$@" "$SHELL" -c "$SSH_ORIGINAL_COMMAND"
code=$?
: > "$run/reports/end-s$$-$code-0"
exit $code"""


def container_environment() -> list[bytes]:
    """``NAME=value`` of the container, as it was before any interpreter changed it."""
    block = Path("/proc/self/environ").read_bytes()
    pairs = [pair for pair in block.split(b"\0") if b"=" in pair]
    return [pair for pair in pairs if pair.split(b"=", 1)[0] not in NOT_FOR_SESSIONS]


def session_environment(pairs: list[bytes], custom: list[str], disabled: bool) -> list[bytes]:
    """What ssh sessions get: everything or, if disabled, what the image itself commonly sets."""
    if not disabled:
        return pairs
    own = {name.encode() for name in custom}
    return [
        pair
        for pair in pairs
        for name in [pair.split(b"=", 1)[0]]
        if IMAGE_VARIABLES.match(name) and name not in own
    ]


def shell_quote(value: bytes) -> bytes:
    """A word that a POSIX shell reads back byte by byte."""
    return b"'" + value.replace(b"'", b"'\\''") + b"'"


def write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Create the file with its mode from the start: it may hold secrets."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)


def copy_keys(keys: Path, run: Path) -> None:
    """The keys with the modes that ssh insists on, whoever we run as."""
    folder = run / "ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    for name in ("id_ed25519", "ssh_host_ed25519_key"):
        write(folder / name, (keys / name).read_bytes())
    # Decision 103: as of a nested shell, so that bash does not read ~/.bashrc.
    key = (keys / "authorized_keys").read_bytes()
    write(folder / "authorized_keys", b'environment="SHLVL=1" ' + key)
    # All replicas of the job share one host key, under whatever name they are reached.
    write(folder / "known_hosts", b"* " + (keys / "ssh_host_ed25519_key.pub").read_bytes())


def root_is_locked() -> bool:
    """Whether sshd without PAM would turn root away, key or no key."""
    try:
        lines = Path("/etc/shadow").read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(line.startswith("root:!") for line in lines)


def prepare_ssh(spec: LaunchDescription, keys: Path, run: Path) -> None:
    """Keys, client and server configuration and the ``ssh`` that uses them."""
    copy_keys(keys, run)
    pod_ip = os.environ.get(POD_IP, "")
    # Pods without a network of their own differ by their loopback address alone.
    listen = f"ListenAddress {pod_ip}" if pod_ip.startswith("127.") else ""
    pam = "yes" if os.getuid() == 0 and root_is_locked() else "no"
    server = SSHD_CONFIG.format(port=spec["port"], listen=listen, run=run, pam=pam)
    write(run / "ssh" / "sshd_config", server.encode())
    write(run / "ssh" / "config", client_config(spec, run).encode())
    client = shutil.which("ssh")
    (run / "bin").mkdir(mode=0o700, exist_ok=True)
    if client is not None:
        script = f'#!/bin/sh\nexec {client} -F {shlex.quote(str(run / "ssh" / "config"))} "$@"\n'
        write(run / "bin" / "ssh", script.encode(), 0o700)


def prepare_sessions(spec: LaunchDescription, run: Path, environment: list[bytes]) -> None:
    """The forced command: every session gets the environment of the container it lands in."""
    # Decision 17.
    (run / "reports").mkdir(mode=0o700, exist_ok=True)
    text = SESSION.format(
        run=shlex.quote(str(run)),
        python=shlex.quote(sys.executable),
        minder=shlex.quote(str(Path(__file__).parent / "minder.py")),
        pid=os.getpid(),
        variables="@variables@",
        command=REPORTED_COMMAND if spec.get("reportSessions") else PLAIN_COMMAND,
    )
    variables = b" ".join(shell_quote(pair) for pair in environment)
    write(run / "session", text.encode().replace(b"@variables@", variables))


def privilege_separation() -> None:
    """The empty folder that sshd of root insists on, with the mode that it insists on."""
    folder = Path("/run/sshd")
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if stat.S_IMODE(folder.stat().st_mode) & 0o022:
            folder.chmod(0o755)
    except OSError as error:
        say(f"cannot prepare /run/sshd: {error}")


def sshd_command(path: str, run: Path) -> list[str]:
    """sshd in the foreground with our configuration."""
    return [path, "-D", "-e", "-f", f"{run}/ssh/sshd_config"]


def spawn(argv: list[str], variables: dict[bytes, bytes]) -> int:
    """Start a child without input; it is reaped by ``os.wait`` along with all others."""
    null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    return os.posix_spawn(argv[0], argv, variables, file_actions=[null])


class Supervisor:
    """Holds sshd and, on the launching replica, the launch."""

    def __init__(
        self, spec: LaunchDescription, options: argparse.Namespace, environment: list[bytes]
    ) -> None:
        self.spec, self.options = spec, options
        self.run: Path = options.run
        self.environment = environment
        self.sshd = 0
        self.launch = 0
        self.ending = False
        self.doomed: set[int] = set()

    def start(self) -> None:
        """sshd first, so that the launch finds at least this replica."""
        self.server = Server(sshd_command(self.spec["sshd"], self.run))
        self.sshd = self.server.pid
        if self.spec.get("launch"):
            launcher = str(Path(__file__).parent / "launch.py")
            arguments = [sys.executable, "-IS", launcher, str(self.options.spec), str(self.run)]
            variables = dict(pair.split(b"=", 1) for pair in self.environment)
            variables[b"PATH"] = b":".join(
                [os.fsencode(self.run / "bin"), variables.get(b"PATH", os.fsencode(os.defpath))]
            )
            variables[b"TRAINYARD_RUN"] = os.fsencode(self.run)
            self.launch = spawn(arguments, variables)

    def stop_training(self, *_: object) -> None:
        """End the ranks: ask first, insist later."""
        self.doomed = training(self.launch)
        for pid in self.doomed:
            self.stop(pid, signal.SIGTERM)
        try:
            seconds = float((self.run / "grace").read_text())
        except (OSError, ValueError):
            seconds = KILL_AFTER_SECONDS
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01))

    def kill_training(self, *_: object) -> None:
        """End what did not end when it was asked; a launch that came since is left alone."""
        for pid in self.doomed & training(self.launch):
            self.stop(pid, signal.SIGKILL)

    def end(self, *_: object) -> None:
        """The launch is over: no sshd, no ranks, and exit 0 soon (decision 18)."""
        self.ending = True
        self.stop(self.sshd, signal.SIGTERM)
        self.stop_training()

    def terminate(self, *_: object) -> None:
        """The pod is being deleted: tell the launch, or let the ranks go (decision 46)."""
        write(self.run / "reports" / "leaving", b"")
        if self.launch:
            self.stop(self.launch, signal.SIGTERM)
        else:
            write(self.run / "grace", str(self.spec["graceSeconds"]).encode())
            self.stop_training()

    @staticmethod
    def stop(pid: int, number: int) -> None:
        """Signal one child that may have gone."""
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return

    def wait(self) -> int:
        """Reap whatever ends; return the exit code of the pod."""
        while True:
            try:
                pid, status = os.wait()
            except ChildProcessError:
                return 1
            signalled = os.WIFSIGNALED(status)
            code = 128 + os.WTERMSIG(status) if signalled else os.WEXITSTATUS(status)
            if pid == self.launch:
                return code
            if pid == self.sshd and not self.ending:
                raise self.server.end(code)
            if pid == self.sshd and not self.launch:
                return 0

    def supervise(self) -> int:
        """Run until the launch, or sshd, has ended."""
        handlers = {
            signal.SIGUSR1: self.end,
            signal.SIGUSR2: self.stop_training,
            signal.SIGALRM: self.kill_training,
            signal.SIGTERM: self.terminate,
            signal.SIGINT: self.terminate,
        }
        for number, handler in handlers.items():
            signal.signal(number, handler)
        self.start()
        code = self.wait()
        if not self.launch:
            self.outlive_sshd()
        for number in handlers:
            # From here on they would find the default handlers of an interpreter that ends.
            signal.signal(number, signal.SIG_IGN)
        self.stop(self.sshd, signal.SIGTERM)
        self.doomed = training(self.launch)
        self.kill_training()
        return code

    def outlive_sshd(self) -> None:
        """Wait, reaping, until the launching pod's own end has surely been seen."""
        deadline = time.monotonic() + END_DELAY_SECONDS
        while time.monotonic() < deadline:
            time.sleep(0.1)


def debug(command: list[str], sshd: str, run: Path) -> None:
    """Replace ourselves by the developer's command, with everything in place for a launch."""
    os.environ["PATH"] = f"{run}/bin:{os.environ.get('PATH', os.defpath)}"
    if command == [sshd, "-D"]:
        command = sshd_command(sshd, run)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise Unfit(f"cannot run {command[0]}: {error.strerror}", NOT_FOUND) from error


def run_pod(spec: LaunchDescription, options: argparse.Namespace) -> int:
    """Prepare, then supervise or, in debug mode, become the developer's command."""
    os.umask(0o022)
    custom, disabled = spec.get("customEnv", []), bool(spec.get("disableCustomEnv"))
    environment = session_environment(container_environment(), custom, disabled)
    try:
        prepare_ssh(spec, options.keys, options.run)
        prepare_sessions(spec, options.run, environment)
    except OSError as error:
        where = error.filename or options.run
        raise Unfit(f"cannot prepare ssh: {where}: {error.strerror}") from error
    if os.getuid() == 0:
        privilege_separation()
    if "debug" in spec:
        debug(spec["debug"], spec["sshd"], options.run)
    check(spec["sshd"])
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return Supervisor(spec, options, environment).supervise()


def main() -> int:
    """Run the pod; its exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--spec", type=Path, required=True)
    parser.add_argument("--keys", type=Path, required=True)
    parser.add_argument("--run", type=Path, required=True)
    options = parser.parse_args()
    spec: LaunchDescription = json.loads(options.spec.read_text())
    try:
        return run_pod(spec, options)
    except Unfit as unfit:
        say(unfit.told(spec["pod"]))
        return unfit.code


if __name__ == "__main__":
    raise SystemExit(main())
