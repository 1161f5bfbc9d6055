"""Checks of `trainyard doctor` about the machine: isolation, network, GPUs, programs, limits."""

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

from trainyard.embedded.doctor_findings import DoctorContext, DoctorFinding, FindingState
from trainyard.embedded.node.containers.gpus import detect
from trainyard.embedded.node.pod_runtime_process import PodRuntimeFailed, start_pod_runtime
from trainyard.machine import rlimits
from trainyard.machine.interpreters import foreign_package
from trainyard.podruntime.protocol import STARTER_DIED, SetNetwork

_LOW_DISK_BYTES, _NO_DISK_BYTES = 1 << 30, 64 << 20
_GIB = 1 << 30
_CGROUPS = Path("/sys/fs/cgroup")
_SHARED_MEMORY = Path("/dev/shm")
_LOW_SHARED_BYTES = 1 << 30
_COMMAND_SECONDS = 10.0
_ISOLATION_TEXTS = {
    "root": "each pod has a network, processes, host name, /dev and root file system of its own",
    "rootless": "each pod has a network, processes and a host name of its own, and your rights",
}
_NETWORK_TEXTS = {
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


def hardware(context: DoctorContext) -> Iterator[DoctorFinding]:
    """CPUs, memory and system, for the record."""
    cpus = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
    system = f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield DoctorFinding("machine", "ok", f"{cpus} CPUs, {memory:.1f} GiB of memory, {system}")


def isolation(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Isolation of pods in the running cluster, else in one that would be started."""
    if context.cluster is not None:
        mode, reason = context.cluster.isolation, context.debug_report.get("isolationReason", "")
    else:
        try:
            mode, reason, _ = _probe_isolation()
        except (PodRuntimeFailed, OSError) as error:
            fix = "without it no cluster starts; the message says what is in the way"
            yield DoctorFinding("isolation", "problem", str(error), fix)
            return
    if mode in _ISOLATION_TEXTS:
        yield DoctorFinding("isolation", "ok", f"{mode}: {_ISOLATION_TEXTS[mode]}")
        return
    text = f"{mode}: pods are processes with addresses of their own, and no more"
    yield DoctorFinding("isolation", "note", f"{text}; {reason}", _how_to_isolate())


def network(context: DoctorContext) -> Iterator[DoctorFinding]:
    """What pods reach beside each other."""
    wanted, reason = (
        context.debug_report.get("network", ""),
        context.debug_report.get("networkReason", ""),
    )
    if context.cluster is None:
        with suppress(PodRuntimeFailed, OSError):  # another check reports it
            possible = _probe_isolation()
            wanted = "machine" if possible.isolation == "plain" else "open"
            reason = possible.network_reason
    if reason:
        fix = "use a kernel with nf_tables and its tproxy (CONFIG_NFT_TPROXY), or volumes for data"
        if STARTER_DIED in reason:
            fix = (
                "start another: `trainyard restart` once no replica runs, else `trainyard down`, "
                "then up"
            )
        yield DoctorFinding(
            "network", "note", f"pods reach each other and nothing else: {reason}", fix
        )
    elif wanted:
        yield DoctorFinding("network", "ok", _NETWORK_TEXTS[wanted])


class _ProbedIsolation(NamedTuple):
    isolation: str
    reason: str
    network_reason: str


@cache
def _probe_isolation() -> _ProbedIsolation:
    """Start a shim for a moment and ask what it can do here."""
    with tempfile.TemporaryDirectory(prefix="trainyard-doctor-") as folder:
        pod_runtime = start_pod_runtime(folder, die_with_parent=True)
        try:
            hello = pod_runtime.ready()
            closed = (
                ""
                if hello.isolation == "plain"
                else pod_runtime.ask(SetNetwork(is_open=True)).error
            )
        finally:
            pod_runtime.kill()
    return _ProbedIsolation(hello.isolation, hello.reason, closed)


def _isolation_mode(context: DoctorContext) -> str:
    if context.cluster is not None:
        return context.cluster.isolation
    try:
        return _probe_isolation().isolation
    except (PodRuntimeFailed, OSError):  # another check reports it
        return "plain"


def _how_to_isolate() -> str:
    closed = [
        f"{key.replace('/', '.')}={value}"
        for key, value in _SWITCHES.items()
        if _has_value(key, value)
    ]
    if closed:
        return f"permit user namespaces (sysctl {', '.join(closed)} forbids them), or run as root"
    return (
        "run as root; in a container: --privileged, or --security-opt seccomp=unconfined; what "
        "plain pods can do to each other is told in docs/security.md"
    )


def _has_value(setting: str, value: str) -> bool:
    try:
        return (Path("/proc/sys") / setting).read_text().strip() == value
    except OSError:
        return False


def control_groups(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Whether limits of CPU and memory can be enforced."""
    version2 = _CGROUPS / "cgroup.controllers"
    places = [_CGROUPS] if version2.exists() else [_CGROUPS / "memory", _CGROUPS / "cpu"]
    if all(os.access(place / "cgroup.procs", os.W_OK) for place in places):
        yield DoctorFinding("control groups", "ok", "CPU and memory limits of pods are enforced")
        return
    text = "not writable here: CPU and memory limits of pods are not enforced"
    yield DoctorFinding(
        "control groups", "note", text, "run as root, or where groups are delegated"
    )


def gpus(context: DoctorContext) -> Iterator[DoctorFinding]:
    """NVIDIA's, as they are handed out to pods, and whether the driver answers."""
    found = detect()
    if not found:
        text = "none; pretend some with --resource nvidia.com/gpu=8"
        yield DoctorFinding("GPUs", "ok", text)
        return
    names = _command_lines("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    if not names:
        fix = "install or repair the driver: nvidia-smi has to list them"
        yield DoctorFinding(
            "GPUs", "note", f"{len(found)} device nodes, but nvidia-smi tells of none", fix
        )
    elif context.python.torch and not context.python.cuda:
        fix = "install a torch with CUDA (https://pytorch.org/get-started)"
        text = f"{len(found)} ({names[0]}), which torch {context.python.torch} cannot use"
        yield DoctorFinding("GPUs", "note", text, fix)
    else:
        yield DoctorFinding("GPUs", "ok", f"{len(found)} ({names[0]})")


def python(context: DoctorContext) -> Iterator[DoctorFinding]:
    """What replicas run where their image is no environment of its own."""
    has = context.python
    if not has.version:
        text = f"{has.executable} does not run" if has.executable else "there is none in the PATH"
        fix = "activate an environment, or name one: --image '*=ENV'"
        yield DoctorFinding("Python", "problem", text, fix)
        return
    text = f"{has.version} ({has.executable})"
    if has.torch:
        yield DoctorFinding("Python", "ok", f"{text}, torch {has.torch}")
    else:
        fix = f"{has.executable} -m pip install torch, or activate the environment that has it"
        yield DoctorFinding("Python", "note", f"{text}, without torch", fix)
    if has.foreign:
        yield DoctorFinding("Python", "problem", *foreign_package(has.executable, has.foreign))


_PROGRAMS: Mapping[str, str] = {
    "torchrun": "pip install torch",
    "deepspeed": "pip install deepspeed",
    "colossalai": "pip install colossalai",
    "ssh": "apt-get install openssh-client",
    "sshd": "apt-get install openssh-server",
    "pdsh": "apt-get install pdsh",
}
"""What launchers need, and where it comes from."""
_EXTRA_PATHS = ":/usr/sbin:/sbin"
"""Where sshd is, of which the PATH of users does not know."""
_PROGRAMS_BY_LAUNCHER = {
    "torchrun": ("torchrun",),
    "deepspeed": ("deepspeed", "ssh", "sshd", "pdsh"),
    "colossalai": ("colossalai", "ssh", "sshd"),
}


def launchers(context: DoctorContext) -> Iterator[DoctorFinding]:
    """The programs that launch training, of which each kind needs its own."""
    places = (context.python.path or os.environ.get("PATH", os.defpath)) + _EXTRA_PATHS
    present = {name: shutil.which(name, path=places) for name in _PROGRAMS}
    if context.python.torch and not present["torchrun"]:
        present["torchrun"] = context.python.executable  # -m torch.distributed.run (decision 121)
    missing = [name for name, path in present.items() if path is None]
    text = ", ".join(name for name in present if name not in missing) or "none"
    if not missing:
        yield DoctorFinding("launchers", "ok", text)
        return
    stopped = [
        name for name, needs in _PROGRAMS_BY_LAUNCHER.items() if not set(needs).isdisjoint(missing)
    ]
    text += f"; missing: {', '.join(missing)}; so nothing is launched by {', '.join(stopped)}"
    fix = "where you use these: " + "; ".join(_PROGRAMS[name] for name in missing)
    yield DoctorFinding("launchers", "note", text, fix)


def shared_memory(context: DoctorContext) -> Iterator[DoctorFinding]:
    """/dev/shm, by which workers of a DataLoader hand over what they have read."""
    if _isolation_mode(context) != "plain":
        yield DoctorFinding("/dev/shm", "ok", "each pod has its own, of up to half of the memory")
        return
    free = shutil.disk_usage(_SHARED_MEMORY).free
    text = f"{free / _GIB:.1f} GiB are free"
    if free >= _LOW_SHARED_BYTES:
        yield DoctorFinding("/dev/shm", "ok", text)
    else:
        fix = "mount -o remount,size=8G /dev/shm; in a container: --shm-size=8g"
        text += "; plain pods share them, and workers of a DataLoader need more"
        yield DoctorFinding("/dev/shm", "note", text, fix)


def kubectl(context: DoctorContext) -> Iterator[DoctorFinding]:
    """kubectl is optional: no part of trainyard needs it."""
    path = shutil.which("kubectl")
    if path is None:
        yield DoctorFinding(
            "kubectl", "ok", "not found, and not needed: trainyard has commands of its own"
        )
        return
    lines = _command_lines("kubectl", "version", "--client")
    version = lines[0].partition("v")[2] if lines else ""
    yield DoctorFinding("kubectl", "ok", f"{version or 'of an unknown version'} ({path})")


def nearest_existing(folder: Path) -> Path:
    """The folder, or of those above it the first that is there and may be seen."""
    while not os.path.exists(folder):
        folder = folder.parent
    return folder


def _command_lines(*command: str) -> list[str]:
    """The lines that a program of this machine prints; none if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=_COMMAND_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.decode(errors="replace").strip().splitlines()


def user_limits(context: DoctorContext) -> Iterator[DoctorFinding]:
    """This user's limits of open files and processes, where they are low."""
    files, left = rlimits.max_open_files(), rlimits.processes_left()
    if files is not None and files < rlimits.GOOD_FILES:
        state: FindingState = "problem" if files < rlimits.LEAST_FILES else "note"
        text = f"the limit of open files (RLIMIT_NOFILE) is {files}"
        yield DoctorFinding("limits", state, text, rlimits.RAISE_FILES)
    if left is not None and left < rlimits.GOOD_PROCESSES:
        state = "problem" if left < rlimits.LEAST_PROCESSES else "note"
        text = f"{max(left, 0)} more processes may be started (RLIMIT_NPROC)"
        yield DoctorFinding("limits", state, text, rlimits.RAISE_PROCESSES)
    if all(
        each is None or each >= good
        for each, good in ((files, rlimits.GOOD_FILES), (left, rlimits.GOOD_PROCESSES))
    ):
        text = f"open files: {files or 'unlimited'}; more processes: {left or 'unlimited'}"
        yield DoctorFinding("limits", "ok", text)


def disk(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Free space where the cluster's state is, or would be."""
    folder = nearest_existing(context.paths.folder)
    free = shutil.disk_usage(folder).free
    text = f"{free / (1 << 30):.1f} GiB are free at {folder}"
    if free >= _LOW_DISK_BYTES:
        yield DoctorFinding("disk", "ok", text)
    else:
        state: FindingState = "problem" if free < _NO_DISK_BYTES else "note"
        yield DoctorFinding("disk", state, text, "make room: objects and logs are written there")
