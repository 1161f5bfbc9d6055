"""What this machine can and cannot do for a cluster: checks of `trainyard doctor`."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from trainyard.embedded import rlimits
from trainyard.embedded.doctor_findings import Found, Patient, State
from trainyard.embedded.node.containers.gpus import detect
from trainyard.embedded.node.shim_process import ShimFailed, start_shim
from trainyard.podruntime.egress.told import SetNetwork

_LITTLE_ROOM, _NO_ROOM = 1 << 30, 64 << 20
_GIB = 1 << 30
_CGROUPS = Path("/sys/fs/cgroup")
_SHARED = Path("/dev/shm")
_LITTLE_SHARED = 1 << 30
_ASK_SECONDS = 10.0
_KEEPS_APART = {
    "root": "each pod has a network, processes, host name, /dev and root file system of its own",
    "rootless": "each pod has a network, processes and a host name of its own, and your rights",
}
_REACHES = {
    "open": "pods reach what this machine reaches, and nothing of the machine itself",
    "none": "pods reach each other and nothing else, as asked for",
    "machine": "plain pods are on this machine's own network",
}
_SWITCHES = {
    "user/max_user_namespaces": "0",
    "kernel/unprivileged_userns_clone": "0",
    "kernel/apparmor_restrict_unprivileged_userns": "1",
}
"""Settings below /proc/sys, and the value by which each forbids namespaces to users."""


def hardware(patient: Patient) -> Iterator[Found]:
    """CPUs and memory: for the record."""
    cpus = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
    system = f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield Found("machine", "ok", f"{cpus} CPUs, {memory:.1f} GiB of memory, {system}")


def isolation(patient: Patient) -> Iterator[Found]:
    """What keeps pods apart: of the cluster that is up, else of one that would be started."""
    if patient.cluster is not None:
        mode, reason = patient.cluster.isolation, patient.told.get("isolationReason", "")
    else:
        try:
            mode, reason, _ = _possible()
        except (ShimFailed, OSError) as error:
            fix = "without it no cluster starts; the message says what is in the way"
            yield Found("isolation", "problem", str(error), fix)
            return
    if mode in _KEEPS_APART:
        yield Found("isolation", "ok", f"{mode}: {_KEEPS_APART[mode]}")
        return
    text = f"{mode}: pods are processes with addresses of their own, and no more"
    yield Found("isolation", "note", f"{text}; {reason}", _more_isolation())


def network(patient: Patient) -> Iterator[Found]:
    """What pods reach beside each other."""
    wanted, reason = patient.told.get("network", ""), patient.told.get("networkReason", "")
    if patient.cluster is None:
        with suppress(ShimFailed, OSError):  # of which another check tells
            possible = _possible()
            wanted = "machine" if possible.isolation == "plain" else "open"
            reason = possible.network_reason
    if reason:
        fix = "use a kernel with nf_tables and its tproxy (CONFIG_NFT_TPROXY), or volumes for data"
        yield Found("network", "note", f"pods reach each other and nothing else: {reason}", fix)
    elif wanted:
        yield Found("network", "ok", _REACHES[wanted])


class _Possible(NamedTuple):
    isolation: str
    reason: str
    network_reason: str


@cache
def _possible() -> _Possible:
    """Asked of a shim, which tries it."""
    with tempfile.TemporaryDirectory(prefix="trainyard-doctor-") as folder:
        shim = start_shim(folder, die_with_parent=True)
        try:
            hello = shim.ready()
            closed = "" if hello.isolation == "plain" else shim.ask(SetNetwork(is_open=True)).error
        finally:
            shim.kill()
    return _Possible(hello.isolation, hello.reason, closed)


def _mode(patient: Patient) -> str:
    if patient.cluster is not None:
        return patient.cluster.isolation
    try:
        return _possible().isolation
    except (ShimFailed, OSError):  # of which another check tells
        return "plain"


def _more_isolation() -> str:
    closed = [
        f"{key.replace('/', '.')}={value}" for key, value in _SWITCHES.items() if _is(key, value)
    ]
    if closed:
        return f"permit user namespaces (sysctl {', '.join(closed)} forbids them), or run as root"
    return (
        "run as root; in a container: --privileged, or --security-opt seccomp=unconfined; what "
        "plain pods can do to each other is told in docs/security.md"
    )


def _is(setting: str, value: str) -> bool:
    try:
        return (Path("/proc/sys") / setting).read_text().strip() == value
    except OSError:
        return False


def control_groups(patient: Patient) -> Iterator[Found]:
    version2 = _CGROUPS / "cgroup.controllers"
    places = [_CGROUPS] if version2.exists() else [_CGROUPS / "memory", _CGROUPS / "cpu"]
    if all(os.access(place / "cgroup.procs", os.W_OK) for place in places):
        yield Found("control groups", "ok", "CPU and memory limits of pods are enforced")
        return
    text = "not writable here: CPU and memory limits of pods are not enforced"
    yield Found("control groups", "note", text, "run as root, or where groups are delegated")


def gpus(patient: Patient) -> Iterator[Found]:
    """NVIDIA's, as they are handed out to pods, and whether the driver answers."""
    found = detect()
    if not found:
        text = "none; pretend some with --resource nvidia.com/gpu=8"
        yield Found("GPUs", "ok", text)
        return
    names = _answer("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    if not names:
        fix = "install or repair the driver: nvidia-smi has to list them"
        yield Found("GPUs", "note", f"{len(found)} device nodes, but nvidia-smi tells of none", fix)
    elif patient.python.torch and not patient.python.cuda:
        fix = "install a torch with CUDA (https://pytorch.org/get-started)"
        text = f"{len(found)} ({names[0]}), which torch {patient.python.torch} cannot use"
        yield Found("GPUs", "note", text, fix)
    else:
        yield Found("GPUs", "ok", f"{len(found)} ({names[0]})")


def python(patient: Patient) -> Iterator[Found]:
    """What replicas run where their image is no environment of its own."""
    has = patient.python
    if not has.version:
        text = f"{has.executable} does not run" if has.executable else "there is none in the PATH"
        fix = "activate an environment, or name one: --image '*=ENV'"
        yield Found("Python", "problem", text, fix)
        return
    text = f"{has.version} ({has.executable})"
    if has.torch:
        yield Found("Python", "ok", f"{text}, torch {has.torch}")
    else:
        fix = f"{has.executable} -m pip install torch, or activate the environment that has it"
        yield Found("Python", "note", f"{text}, without torch", fix)


_PROGRAMS: Mapping[str, str] = {
    "torchrun": "pip install torch",
    "deepspeed": "pip install deepspeed",
    "colossalai": "pip install colossalai",
    "ssh": "apt-get install openssh-client",
    "sshd": "apt-get install openssh-server",
    "pdsh": "apt-get install pdsh",
}
"""What launchers need, and where it comes from."""
_PLACES = ":/usr/sbin:/sbin"
"""Where sshd is, of which the PATH of users does not know."""
_NEEDS = {
    "torchrun": ("torchrun",),
    "deepspeed": ("deepspeed", "ssh", "sshd", "pdsh"),
    "colossalai": ("colossalai", "ssh", "sshd"),
}


def launchers(patient: Patient) -> Iterator[Found]:
    """The programs that launch training, of which each kind needs its own."""
    places = (patient.python.path or os.environ.get("PATH", os.defpath)) + _PLACES
    present = {name: shutil.which(name, path=places) for name in _PROGRAMS}
    if patient.python.torch and not present["torchrun"]:
        present["torchrun"] = patient.python.executable  # -m torch.distributed.run (decision 121)
    missing = [name for name, path in present.items() if path is None]
    text = ", ".join(name for name in present if name not in missing) or "none"
    if not missing:
        yield Found("launchers", "ok", text)
        return
    stopped = [name for name, needs in _NEEDS.items() if not set(needs).isdisjoint(missing)]
    text += f"; missing: {', '.join(missing)}; so nothing is launched by {', '.join(stopped)}"
    fix = "where you use these: " + "; ".join(_PROGRAMS[name] for name in missing)
    yield Found("launchers", "note", text, fix)


def shared_memory(patient: Patient) -> Iterator[Found]:
    """/dev/shm, by which workers of a DataLoader hand over what they have read."""
    if _mode(patient) != "plain":
        yield Found("/dev/shm", "ok", "each pod has its own, of up to half of the memory")
        return
    free = shutil.disk_usage(_SHARED).free
    text = f"{free / _GIB:.1f} GiB are free"
    if free >= _LITTLE_SHARED:
        yield Found("/dev/shm", "ok", text)
    else:
        fix = "mount -o remount,size=8G /dev/shm; in a container: --shm-size=8g"
        text += "; plain pods share them, and workers of a DataLoader need more"
        yield Found("/dev/shm", "note", text, fix)


def kubectl(patient: Patient) -> Iterator[Found]:
    """For those who want to see the API itself; no part of trainyard needs it."""
    path = shutil.which("kubectl")
    if path is None:
        yield Found("kubectl", "ok", "not found, and not needed: trainyard has commands of its own")
        return
    told = _answer("kubectl", "version", "--client")
    version = told[0].partition("v")[2] if told else ""
    yield Found("kubectl", "ok", f"{version or 'of an unknown version'} ({path})")


def nearest(folder: Path) -> Path:
    """The folder, or of those above it the first that is there and may be seen."""
    while not os.path.exists(folder):
        folder = folder.parent
    return folder


def _answer(*command: str) -> list[str]:
    """The lines that a program of this machine prints; none if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=_ASK_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.decode(errors="replace").strip().splitlines()


def limits_of_user(patient: Patient) -> Iterator[Found]:
    files, left = rlimits.open_files(), rlimits.processes_left()
    if files is not None and files < rlimits.GOOD_FILES:
        state: State = "problem" if files < rlimits.LEAST_FILES else "note"
        text = f"the limit of open files (RLIMIT_NOFILE) is {files}"
        yield Found("limits", state, text, rlimits.RAISE_FILES)
    if left is not None and left < rlimits.GOOD_PROCESSES:
        state = "problem" if left < rlimits.LEAST_PROCESSES else "note"
        text = f"{max(left, 0)} more processes may be started (RLIMIT_NPROC)"
        yield Found("limits", state, text, rlimits.RAISE_PROCESSES)
    if all(
        each is None or each >= good
        for each, good in ((files, rlimits.GOOD_FILES), (left, rlimits.GOOD_PROCESSES))
    ):
        text = f"open files: {files or 'unlimited'}; more processes: {left or 'unlimited'}"
        yield Found("limits", "ok", text)


def disk(patient: Patient) -> Iterator[Found]:
    folder = nearest(patient.paths.folder)
    free = shutil.disk_usage(folder).free
    text = f"{free / (1 << 30):.1f} GiB are free at {folder}"
    if free >= _LITTLE_ROOM:
        yield Found("disk", "ok", text)
    else:
        state: State = "problem" if free < _NO_ROOM else "note"
        yield Found("disk", state, text, "make room: objects and logs are written there")
