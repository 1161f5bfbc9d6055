"""What the end of a process says about its cause: exit codes, signals and last words."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import NamedTuple

from trainyard.diagnosis.following import follows
from trainyard.diagnosis.tracebacks import Raised
from trainyard.kinds.shared.reasons import cannot_start
from trainyard.kinds.shared.workload import ASKS_FOR_RESTART

NOT_EXECUTABLE, NOT_FOUND, SIGNAL_BASE = 126, 127, 128


@dataclass(frozen=True, slots=True)
class Reading:
    """What probably happened, and what to do about it."""

    what: str
    advice: tuple[str, ...] = ()
    is_guess: bool = False
    """Whether there is nothing but an exit code that may mean anything."""


class _Words(NamedTuple):
    """A pattern in the last lines of a log, and what it means."""

    pattern: str
    what: str
    advice: str


_PATHS = (
    "check the path, `workingDir` and the volume mounts; --volume CLAIM=DIR is what fills a claim"
)
_SAID = (
    _Words(
        r"Torch not compiled with CUDA|No CUDA GPUs are available|Found no NVIDIA driver"
        r"|CUDA driver version is insufficient|no NVIDIA GPU detected",
        "it asks for CUDA, and there is no GPU where it runs",
        "give the replica one (resources.limits nvidia.com/gpu, --gpus 1), an image with CUDA, or "
        "let the script take the CPU",
    ),
    _Words(
        r"Timed out after \d+ seconds waiting for clients. (\d+)/(\d+) clients joined",
        "only {0} of {1} processes came: the world is larger than what was started",
        "leave world_size to the launcher's WORLD_SIZE, or start that many processes",
    ),
    _Words(
        r"wait timeout after \d+ms, keys: /default_pg",
        "it waited in vain for all processes to join: some hang, or the world is larger than what "
        "was started",
        "leave world_size to the launcher's WORLD_SIZE, and look whether all ranks get that far",
    ),
    _Words(
        r"environment variable (\w+) expected, but not set"
        r"|KeyError: '((?:LOCAL_|GROUP_|ROLE_)?RANK|(?:LOCAL_)?WORLD_SIZE|MASTER_(?:ADDR|PORT))'",
        "{0} is set by a launcher, and this one does not set it",
        "use one that does, such as torchrun (--launcher torchrun), or do without the variable",
    ),
    _Words(
        r"KeyError: '(\w+)'\n.*environ",
        "the variable {0} is not set where it runs",
        "set it: `env` of the container, or --env {0}=VALUE",
    ),
    _Words(
        r"most likely due to a circular import",
        "two modules import each other, or a file of the script's folder hides a package",
        "rename the file that has the name of a package",
    ),
    _Words(
        r"DataLoader worker .*Bus error|out of shared memory",
        "/dev/shm does not hold what the workers of the DataLoader hand over",
        "mount an emptyDir with medium Memory at /dev/shm, or use fewer workers",
    ),
    _Words(
        r"(?i)CUDA out of memory|CUDA error: out of memory",
        "the GPU's memory did not suffice",
        "use a smaller batch or model, or more GPUs",
    ),
    _Words(
        r"can't open file ['\"]?([^'\":]+)",
        "the script {0} does not exist where the replica runs",
        _PATHS,
    ),
    _Words(
        r"No module named ['\"]?([\w.]+)",
        "the Python package {0} is not there",
        "install it for the Python that the replica runs, or use another image (on this machine "
        "--image PATTERN=ENV names the environment that stands for it)",
    ),
    _Words(
        r"unrecognized arguments: (.+)",
        "its program does not know the arguments {0}",
        "correct `args` of the container; a launcher such as torchrun takes its own options first",
    ),
    _Words(
        r"(?i)Address already in use|EADDRINUSE",
        "a port was in use already",
        "let another port be used, or keep the jobs apart by namespaces (see `trainyard status`)",
    ),
    _Words(
        r"(?i)No space left on device",
        "a volume or the disk is full",
        "make room, or raise the volume's sizeLimit",
    ),
    _Words(
        r"NCCL (?:error|WARN)|ncclSystemError|ncclInternalError",
        "NCCL could not connect the replicas or their GPUs",
        "set NCCL_DEBUG=INFO and look at the logs of all replicas",
    ),
    _Words(
        r"command not found: (\S+)|(\S+): (?:command )?not found"
        r"|exec: \"([^\"]+)\": executable file not found",
        "the command {0} does not exist where the replica runs",
        "check its spelling and PATH, and which environment stands for the image "
        "(--image PATTERN=ENV)",
    ),
    _Words(
        r"Argument list too long",
        "its arguments and environment are longer than Linux allows",
        "pass what is long in a file, such as one of a ConfigMap",
    ),
    _Words(
        r"No such file or directory: ['\"]([^'\"]+)",
        "the file {0} does not exist where the replica runs",
        _PATHS,
    ),
    _Words(
        r"([^\s:'\"]+)['\"]?: No such file or directory",
        "the file {0} does not exist where the replica runs",
        _PATHS,
    ),
)

_PORT_TAKEN = "another container of the pod may hold the port"
"""In the words of `payloads.fitness`."""
_NEVER_RAN = ("ContainerCannotRun", "StartError", "RunContainerError")

_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception): .+)$", re.MULTILINE)
"""The last line of a traceback, where nothing else of it is left."""


def read(
    code: int | None, reason: str = "", message: str = "", raised: Raised | None = None
) -> Reading:
    """The meaning of an exit code, the container's reason, its last lines, and the exception that
    ended it."""
    if (told := _told(reason, message)) is not None:
        return told
    place = raised.place if raised else None
    text = f"{raised.text}\n{place.source if place else ''}" if raised else message
    for said, what, advice in _SAID:
        if found := re.search(said, text):
            subjects = [group for group in found.groups() if group] or [""]
            return Reading(what.format(*subjects), (advice.replace("{0}", subjects[0]),))
    if raised is not None:
        return _of_exception(raised)
    words = message.strip().splitlines()[0] if reason in _NEVER_RAN and message.strip() else ""
    if words and code not in (NOT_FOUND, NOT_EXECUTABLE):
        return Reading(f"it could not be started: {words}")
    said = f": {words}" if words else ""
    if code == NOT_FOUND:
        return Reading(
            f"its command was not found{said}",
            ("check the command's spelling, and that the image (or --image PATTERN=ENV) has it",),
        )
    if code == NOT_EXECUTABLE:
        return Reading(f"its command is no program{said}", ("make the file executable (chmod +x)",))
    if code is not None and code > SIGNAL_BASE:
        return _of_signal(code - SIGNAL_BASE)
    if exceptions := _EXCEPTION.findall(message):
        return Reading(f"its program ended with {exceptions[-1]}")
    return Reading("its program ended with an error", is_guess=True)


def _of_exception(raised: Raised) -> Reading:
    """Of one that nothing more is known of than where it was raised."""
    place = raised.place
    if raised.is_native:
        at = f" below {place.where}" if place else ""
        return Reading(f"native code crashed{at}", ("look at what that line calls",) if at else ())
    if follows(raised):
        return Reading(
            "it lost a peer, and no log says why that one went",
            ("look at the logs of the others, and at the machines and the network between them",),
        )
    what = f"its program ended with {raised.text}"
    if raised.root is not None and raised.root.place is not None:
        what += f", which followed from {raised.root.text} ({raised.root.place.where})"
    if place is None or not place.is_own:
        return Reading(what)
    return Reading(what, (f"correct {place.file.rpartition('/')[2]}, line {place.line}",))


def _told(reason: str, message: str) -> Reading | None:
    """Where reason or words leave nothing to guess."""
    if reason == "OOMKilled":
        return Reading(
            "it used more memory than it may",
            ("raise resources.limits.memory of the container, or use less memory",),
        )
    if reason == "Evicted":
        return Reading("its node was short of memory or disk", ("request what it needs",))
    if reason == "LaunchTimeout":
        return Reading(f"its launch did not start in time: {message.partition('): ')[2] or '?'}")
    if _PORT_TAKEN in message:
        return Reading(
            "the port of its sshd is taken by another container of its pod",
            ("let that container listen on another port",),
        )
    if missing := cannot_start(message):
        return Reading(f"it can never start there: {missing.partition(': ')[2]}")
    return None


def _of_signal(number: int) -> Reading:
    if SIGNAL_BASE + number == ASKS_FOR_RESTART:
        return Reading(f"it asked to be restarted (exit code {ASKS_FOR_RESTART}), or got SIGUSR1")
    try:
        name = signal.Signals(number).name
    except ValueError:
        return Reading("its program ended with an error", is_guess=True)
    if number == signal.SIGKILL:
        return Reading(
            "it was killed (SIGKILL), by the kernel for want of memory or by somebody",
            ("look for `Out of memory` in the kernel's log (dmesg)",),
        )
    if number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT):
        advice: tuple[str, ...] = ("native code crashed; set PYTHONFAULTHANDLER=1 to see where",)
        if number == signal.SIGBUS:
            full = "/dev/shm may be full: mount an emptyDir with medium Memory there"
            advice = (full, *advice)
        return Reading(f"it crashed ({name})", advice)
    return Reading(f"it was ended by {name}")
