"""Makes a replica reachable over ssh: keys, sshd's configuration, the environment of sessions.

Everything lies in a private folder of the pod, with copies of the keys (ssh refuses keys that
others may read, and a mounted Secret's mode cannot suit root and non-root images alike). The server
and the clients have configurations of their own, so that the image's has no say. The container's
environment is saved for the sessions, which sshd starts with a bare one. Mounted into the user's
image: standard library, Python 3.8.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.payloads.launch.hostfile import client_config
from trainyard.payloads.launch.launcher_programs import named_interpreter
from trainyard.payloads.launch.replica_agent import log_line

if TYPE_CHECKING:  # types are not shipped to pods
    from trainyard.payloads.payload_messages import LaunchDescription

POD_IP = "TRAINYARD_POD_IP"
VARIABLES_OF_OTHERS = (b"PWD", b"OLDPWD", b"SHLVL", b"_", POD_IP.encode())
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
{sftp}
"""
SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server",  # Debian
    "/usr/libexec/openssh/sftp-server",  # Fedora
    "/usr/lib/ssh/sftp-server",  # Alpine, SUSE
    "/usr/libexec/sftp-server",
)
"""A program, because sshd's built-in one is not to be had beside a forced command."""

SHUTDOWN_TIMEOUT_VARIABLE = b"TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
CLIENTS = ("ssh", "scp", "sftp")
OBSERVED, OBSERVER = b"TRAINYARD_OBSERVE", b"/t9k/observer"
"""The variable of the observer, and its folder."""
ALWAYS_KEPT = (OBSERVED, b"PYTHONUNBUFFERED", b"TRAINYARD_ATTEMPT")
"""Variables of ours that sessions get even where the job's variables are turned off."""

SESSION = """\
run={run}
if [ "$SSH_ORIGINAL_COMMAND" = trainyard-minder ]; then
    exec env {observed} {python} -IS {minder} "$run" {pid}
fi
set -- TRAINYARD_RUN="$run" {variables}
case "$SSH_ORIGINAL_COMMAND" in
"trainyard-check "*) exec env "$@" {python} -IS {preflight} ${{SSH_ORIGINAL_COMMAND#* }} ;;
esac
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
    return [pair for pair in pairs if pair.split(b"=", 1)[0] not in VARIABLES_OF_OTHERS]


def session_environment(pairs: list[bytes], custom: list[str], disabled: bool) -> list[bytes]:
    """What ssh sessions get: everything or, if disabled, what the image itself commonly sets, and
    `ALWAYS_KEPT`."""
    if not disabled:
        return pairs
    own = {name.encode() for name in custom}
    return [
        pair
        for pair in pairs
        for name in [pair.split(b"=", 1)[0]]
        if name in ALWAYS_KEPT or (IMAGE_VARIABLES.match(name) and name not in own)
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
    # SHLVL as of a nested shell keeps bash from reading ~/.bashrc (decision 103).
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
    """Keys, client and server configuration."""
    copy_keys(keys, run)
    pod_ip = os.environ.get(POD_IP, "")
    # Pods without a network of their own differ by their loopback address alone.
    listen = f"ListenAddress {pod_ip}" if pod_ip.startswith("127.") else ""
    pam = "yes" if os.getuid() == 0 and root_is_locked() else "no"
    found = next((path for path in SFTP_SERVERS if os.access(path, os.X_OK)), "")
    sftp = f"Subsystem sftp {found}" if found else ""
    server = SSHD_CONFIG.format(port=spec["port"], listen=listen, run=run, pam=pam, sftp=sftp)
    write(run / "ssh" / "sshd_config", server.encode())
    write(run / "ssh" / "config", client_config(spec, run).encode())


def prepare_programs(run: Path) -> None:
    """Those that the training calls by name and that run in another way here: see decision 125."""
    (run / "bin").mkdir(mode=0o700, exist_ok=True)
    lines = {
        name: [client, "-F", str(run / "ssh" / "config")]
        for name in CLIENTS
        for client in [shutil.which(name)]
        if client is not None
    }
    ours, python = Path(__file__).parent / "torchrun.py", python_of_torchrun()
    if python and ours.exists():
        lines["torchrun"] = [python, str(ours)]
    for name, line in lines.items():
        words = " ".join(map(shlex.quote, line))
        write(run / "bin" / name, f'#!/bin/sh\nexec {words} "$@"\n'.encode(), 0o700)


def python_of_torchrun() -> str:
    """The Python that runs torchrun here; empty where that is no script that we know."""
    script = shutil.which("torchrun")
    if script is None or b"torch.distributed.run" not in Path(script).read_bytes():
        return ""
    found = named_interpreter(script)
    return found if Path(found).name.startswith("python") else ""


def training_environment(pairs: list[bytes], run: Path, grace_seconds: float) -> list[bytes]:
    """The environment in which ``ssh``, its kin and ``torchrun`` are ours, torchrun is as patient
    with its ranks as the pod (decision 99), and the observer goes before all (decision 223)."""
    given = dict(pair.split(b"=", 1) for pair in pairs)
    python_path = given.get(b"PYTHONPATH", b"")
    if OBSERVED in given:  # the replica's agent reads what a crash leaves
        given[OBSERVED] = b"kept=1," + given[OBSERVED]
    if OBSERVED in given and OBSERVER not in python_path.split(b":"):
        given[b"PYTHONPATH"] = OBSERVER + b":" + python_path if python_path else OBSERVER
    path = os.fsencode(run / "bin") + b":" + given.get(b"PATH", os.fsencode(os.defpath))
    patience = {SHUTDOWN_TIMEOUT_VARIABLE: str(int(grace_seconds)).encode()}
    return [name + b"=" + value for name, value in {**patience, **given, b"PATH": path}.items()]


def prepare_sessions(spec: LaunchDescription, run: Path, environment: list[bytes]) -> None:
    """The forced command: every session gets the environment of the container it lands in."""
    # Ranks report by empty files in these folders, so that a report is whole or not there
    # (decision 17).
    for name in ("reports", "asked"):
        (run / name).mkdir(mode=0o700, exist_ok=True)
    observed = [pair for pair in environment if pair.startswith(OBSERVED + b"=")]
    text = SESSION.format(
        run=shlex.quote(str(run)),
        python=shlex.quote(sys.executable),
        minder=shlex.quote(str(Path(__file__).parent / "minder.py")),
        preflight=shlex.quote(str(Path(__file__).parent / "preflight.py")),
        pid=os.getpid(),
        observed=" ".join(shlex.quote(os.fsdecode(pair)) for pair in observed),
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
        log_line(f"cannot prepare /run/sshd: {error}")


def sshd_command(path: str, run: Path) -> list[str]:
    """sshd in the foreground with our configuration."""
    return [path, "-D", "-e", "-f", f"{run}/ssh/sshd_config"]


def with_own_configuration(command: list[str], run: Path) -> list[str]:
    """Somebody's own sshd command; its options win over our configuration."""
    given = command[1:]
    ours = [] if any(option.startswith("-f") for option in given) else sshd_command("", run)[2:]
    return [command[0], *ours, *given]
