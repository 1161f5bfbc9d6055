"""Processes, namespaces, memory and limits."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import resource
import signal
import sys
import time

from .trying import (
    HERE,
    NEW_NET,
    NEW_NS,
    NEW_USER,
    attempt,
    call,
    libc,
    one_of,
    raw,
    write,
    write_any,
)

_PTRACE_SEIZE = 0x4206


@attempt
def make_a_user_namespace() -> bool:
    return call("unshare", NEW_USER)


@attempt
def make_a_mount_namespace() -> bool:
    return call("unshare", NEW_NS)


@attempt
def clone_into_a_user_namespace() -> bool:
    before = os.getpid()
    raw(56, 220, NEW_USER | NEW_NET | signal.SIGCHLD, 0, 0, 0, 0)
    if os.getpid() != before:
        os._exit(0)
    return True


@attempt
def enter_the_first_process_namespaces() -> bool:
    for name in ("user", "mnt", "net"):
        fd = os.open(f"/proc/1/ns/{name}", os.O_RDONLY)
        call("setns", fd, 0)
    return True


@attempt
def see_a_process_of_the_machine() -> bool:
    os.kill(HERE["process"], 0)
    with open(f"/proc/{HERE['process']}/cmdline") as file:
        return "pytest" in file.read() or "tests." in file.read()


@attempt
def find_the_secret_of_another_pod() -> bool:
    secret = HERE["secret"][::-1].encode()  # turned round, not to find our own copy
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                if secret in file.read():
                    return True
        except OSError:
            continue
    return False


@attempt
def read_memory_of_the_first_process() -> bool:
    with open("/proc/1/mem", "rb") as file:
        return bool(file)


@attempt
def read_variables_of_the_first_process() -> bool:
    with open("/proc/1/environ") as file:
        file.read()
    return True


@attempt
def write_into_files_of_the_first_process() -> bool:
    return write_any("/proc/1/fd/*", "junk\n")


@attempt
def trace_the_first_process() -> bool:
    return call("ptrace", _PTRACE_SEIZE, 1, 0, 0)


@attempt
def copy_memory_of_the_first_process() -> bool:
    room = ctypes.create_string_buffer(8)
    local = (ctypes.c_void_p * 2)(ctypes.addressof(room), 8)
    remote = (ctypes.c_void_p * 2)(0x400000, 8)
    return raw(310, 270, 1, local, 1, remote, 1, 0)


@attempt
def take_a_file_of_the_first_process() -> bool:
    return any(raw(438, 438, os.pidfd_open(1), fd, 0) for fd in range(10))


@attempt
def stop_the_first_process() -> bool:
    os.kill(1, signal.SIGSTOP)
    os.kill(1, signal.SIGKILL)
    time.sleep(0.1)
    with open("/proc/1/stat") as file:
        return file.read().rpartition(")")[2].split()[0] in "TZX"


@attempt
def run_before_all_others() -> bool:
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    return True


@attempt
def be_spared_when_memory_is_short() -> bool:
    return write("/proc/self/oom_score_adj", "-1000")


@attempt
def have_more_processes_than_allowed() -> bool:
    made: list[int] = []
    try:
        while len(made) < HERE["processes"]:
            pid = os.fork()
            if not pid:
                time.sleep(60)
                os._exit(0)
            made.append(pid)
        return True
    finally:
        for pid in made:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@attempt
def raise_a_limit() -> bool:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    return True


@attempt
def enter_any_namespace() -> bool:
    for path in glob.glob("/proc/[0-9]*/ns/*"):
        with contextlib.suppress(OSError):
            if libc.setns(os.open(path, os.O_RDONLY), 0) == 0:
                return True
    return False


@attempt
def make_a_time_namespace() -> bool:
    return call("unshare", 0x80)


@attempt
def reach_a_process_that_is_not_seen() -> bool:
    for pid in range(2, 1 << 16):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            if not os.path.exists(f"/proc/{pid}"):
                return True
    return False


@attempt
def write_memory_of_the_first_process() -> bool:
    with open("/proc/1/mem", "r+b") as file:
        return bool(file)


@attempt
def look_at_the_first_process() -> bool:
    names = ("maps", "auxv", "stack", "syscall", "exe", "personality", "io", "fd/0", "ns/pid")
    return one_of((f"/proc/1/{name}" for name in names), os.O_RDONLY)


@attempt
def look_at_the_threads_of_the_first_process() -> bool:
    return one_of((f"/proc/1/task/1/{name}" for name in ("environ", "mem", "exe")), os.O_RDONLY)


@attempt
def change_the_program_of_the_first_process() -> bool:
    """As CVE-2019-5736 does: it is the machine's own interpreter."""
    fd = os.open("/proc/1/exe", os.O_RDONLY)
    own = os.stat(sys.executable)
    found = os.fstat(fd)
    return (found.st_dev, found.st_ino) != (own.st_dev, own.st_ino)


@attempt
def run_as_real_time() -> bool:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return True


@attempt
def read_disks_before_all_others() -> bool:
    return raw(251, 30, 1, 0, 1 << 13)


@attempt
def find_shared_memory_of_another_pod() -> bool:
    return raw(29, 194, HERE["shared"], 0, 0)


@attempt
def find_a_message_queue_of_another_pod() -> bool:
    return raw(240, 180, b"escape-queue", os.O_RDONLY, 0, None)


@attempt
def find_a_memory_file_of_another_pod() -> bool:
    return os.path.exists("/dev/shm/escape-file")


@attempt
def have_variables_of_who_started_the_cluster() -> bool:
    token = HERE["token"][::-1]
    return any(token in value for value in os.environ.values())


@attempt
def change_the_limits_of_its_control_group() -> bool:
    with open("/proc/self/cgroup") as file:
        places = [line.strip().split(":", 2) for line in file]
    folders = [f"/sys/fs/cgroup/{names.removeprefix('name=')}{path}" for _, names, path in places]
    names = ("memory.max", "pids.max", "cpu.max", "memory.limit_in_bytes", "cgroup.procs")
    return one_of((f"{folder}/{name}" for folder in folders for name in names), os.O_WRONLY)


@attempt
def have_more_descriptors_than_allowed() -> bool:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, 512),) * 2)
    return bool([os.dup(0) for _ in range(600)])
