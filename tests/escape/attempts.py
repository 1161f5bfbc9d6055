"""What a program in a pod may try in order to get out; runs inside one, with nothing but Python.

Each attempt returns whether it got what it should not; an OSError is a refusal. What only shows
outside (a file that was written) is judged there. Prints one JSON object: name to True, False or
the refusal. ``SITUATION`` holds, as JSON, what an attacker could know or guess of the machine.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

HERE: dict[str, Any] = json.loads(os.environ.get("SITUATION", "{}"))
ATTEMPTS: dict[str, Callable[[], object]] = {}
_SECONDS = 20
_X86 = os.uname().machine == "x86_64"
_libc = ctypes.CDLL(None, use_errno=True)

NEW_NS, NEW_USER, NEW_PID, NEW_NET = 0x20000, 0x10000000, 0x20000000, 0x40000000
PTRACE_SEIZE = 0x4206


def attempt(function: Callable[[], object]) -> Callable[[], object]:
    ATTEMPTS[function.__name__] = function
    return function


def _checked(result: int) -> bool:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return True


def _call(name: str, *arguments: Any) -> bool:
    return _checked(getattr(_libc, name)(*arguments))


def _raw(x86: int, arm: int, *arguments: Any) -> bool:
    number = ctypes.c_long(x86 if _X86 else arm)
    longs = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _checked(_libc.syscall(number, *longs))


def _is_other_root(path: str) -> bool:
    own, found = os.stat("/"), os.stat(path)
    return (own.st_dev, own.st_ino) != (found.st_dev, found.st_ino)


def _write(path: str, text: str) -> bool:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
    return True


def _write_any(pattern: str, text: str) -> bool:
    """Into whichever file lets itself be written; the last refusal where none does."""
    refusal = FileNotFoundError(2, pattern)
    for path in glob.glob(pattern):
        try:
            return _write(path, text)
        except OSError as error:
            refusal = error  # type: ignore[assignment]
    raise refusal


# -- files of the machine ------------------------------------------------------------------------


@attempt
def write_a_file_of_the_machine() -> bool:
    with open(HERE["canary"], "w") as file:  # lands in the pod's layer; judged outside
        file.write("escaped")
    return False


@attempt
def replace_a_file_of_the_machine() -> bool:
    new = HERE["canary"] + ".new"
    with open(new, "w") as file:
        file.write("escaped")
    os.replace(new, HERE["canary"])
    return False


@attempt
def link_a_file_of_the_machine_into_the_working_folder() -> bool:
    os.link(HERE["canary"], "canary-link")
    return True


@attempt
def find_the_old_root_above_the_new() -> bool:
    return _is_other_root("/..")


@attempt
def find_the_old_root_by_the_first_process() -> bool:
    return _is_other_root("/proc/1/root/") or _is_other_root("/proc/1/cwd/../../../../../../..")


@attempt
def leave_a_changed_root_upwards() -> bool:
    os.makedirs("/tmp/below", exist_ok=True)
    top, fd = os.stat("/"), os.open("/", os.O_RDONLY)
    os.chroot("/tmp/below")
    os.fchdir(fd)
    for _ in range(64):
        os.chdir("..")
    found = os.stat(".")
    return (top.st_dev, top.st_ino) != (found.st_dev, found.st_ino)


@attempt
def open_a_file_by_its_handle() -> bool:
    handle = ctypes.create_string_buffer(b"\x08\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0", 24)
    return _raw(304, 265, os.open("/", os.O_RDONLY), handle, os.O_RDONLY)


@attempt
def read_the_cluster_state() -> bool:
    return any(os.path.exists(f"{HERE['state']}/{name}") for name in ("state.db", "api.sock"))


@attempt
def reach_folders_of_other_pods() -> bool:
    return bool(glob.glob(f"{HERE['state']}/pods/*_other_*/*"))


# -- mounts --------------------------------------------------------------------------------------


@attempt
def mount_a_file_system() -> bool:
    return _call("mount", b"none", b"/mnt", b"tmpfs", 0, None)


@attempt
def mount_proc_again() -> bool:
    return _call("mount", b"proc", b"/mnt", b"proc", 0, None)


@attempt
def bind_a_folder() -> bool:
    return _call("mount", b"/etc", b"/mnt", None, 4096, None)


@attempt
def make_sys_writable() -> bool:
    return _call("mount", None, b"/sys", None, 32 | 4096, None)


@attempt
def unmount_what_covers_proc() -> bool:
    return _call("umount2", b"/proc", 2)


@attempt
def open_a_mount_tree() -> bool:
    return _raw(428, 428, -100, b"/", 1)


@attempt
def prepare_a_file_system() -> bool:
    return _raw(430, 430, b"tmpfs", 0)


@attempt
def change_the_root_of_all() -> bool:
    os.makedirs("/tmp/pivot", exist_ok=True)
    return _raw(155, 41, b"/tmp/pivot", b"/tmp/pivot")


# -- namespaces -----------------------------------------------------------------------------------


@attempt
def make_a_user_namespace() -> bool:
    return _call("unshare", NEW_USER)


@attempt
def make_a_mount_namespace() -> bool:
    return _call("unshare", NEW_NS)


@attempt
def clone_into_a_user_namespace() -> bool:
    before = os.getpid()
    _raw(56, 220, NEW_USER | NEW_NET | signal.SIGCHLD, 0, 0, 0, 0)
    if os.getpid() != before:
        os._exit(0)
    return True


@attempt
def enter_the_first_process_namespaces() -> bool:
    for name in ("user", "mnt", "net"):
        fd = os.open(f"/proc/1/ns/{name}", os.O_RDONLY)
        _call("setns", fd, 0)
    return True


# -- processes ------------------------------------------------------------------------------------


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
    return _write_any("/proc/1/fd/*", "junk\n")


@attempt
def trace_the_first_process() -> bool:
    return _call("ptrace", PTRACE_SEIZE, 1, 0, 0)


@attempt
def copy_memory_of_the_first_process() -> bool:
    room = ctypes.create_string_buffer(8)
    local = (ctypes.c_void_p * 2)(ctypes.addressof(room), 8)
    remote = (ctypes.c_void_p * 2)(0x400000, 8)
    return _raw(310, 270, 1, local, 1, remote, 1, 0)


@attempt
def take_a_file_of_the_first_process() -> bool:
    return any(_raw(438, 438, os.pidfd_open(1), fd, 0) for fd in range(10))


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
    return _write("/proc/self/oom_score_adj", "-1000")


# -- devices --------------------------------------------------------------------------------------


@attempt
def make_a_disk_device() -> bool:
    os.mknod("/tmp/disk", 0o60600, HERE["device"])
    return bool(os.open("/tmp/disk", os.O_RDONLY))


@attempt
def make_a_memory_device() -> bool:
    os.mknod("/tmp/memory", 0o20600, os.makedev(1, 1))
    return bool(os.open("/tmp/memory", os.O_RDONLY))


@attempt
def open_devices_of_the_machine() -> bool:
    usual = {"null", "zero", "full", "random", "urandom", "tty", "ptmx"}
    for folder, _, names in os.walk("/dev"):
        for name in names:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            special = mode & 0o170000 in (0o60000, 0o20000)
            if special and name not in usual and "pts" not in folder and "nvidia" not in path:
                return bool(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    return False


@attempt
def read_what_memory_is_used_for() -> bool:
    for name in ("kpagecount", "kpageflags", "kpagecgroup"):
        with open(f"/proc/{name}", "rb", buffering=0) as file:
            if file.read(8):
                return True
    return False


@attempt
def change_settings_of_drivers() -> bool:
    open("/proc/driver/escaped", "w").close()
    return True


@attempt
def read_kernel_memory() -> bool:
    with open("/proc/kcore", "rb") as file:
        return bool(file.read(1))


# -- the kernel -----------------------------------------------------------------------------------


@attempt
def load_a_module() -> bool:
    return _raw(313, 273, os.open("/proc/version", os.O_RDONLY), b"", 0)


@attempt
def unload_a_module() -> bool:
    return _raw(176, 106, b"none", 0)


@attempt
def load_a_kernel() -> bool:
    return _raw(320, 294, -1, -1, 0, None, 0)


@attempt
def restart_the_machine() -> bool:
    return _raw(169, 142, 0xFEE1DEAD, 672274793, 0, None)  # turns Ctrl-Alt-Del off


@attempt
def set_the_clock() -> bool:
    time.clock_settime(time.CLOCK_REALTIME, time.time())
    return True


@attempt
def rename_the_machine() -> bool:
    socket.sethostname("escaped")
    return True


@attempt
def swap() -> bool:
    return _raw(167, 224, b"/nowhere", 0)


@attempt
def account_processes() -> bool:
    return _raw(163, 89, None)


@attempt
def load_a_kernel_program() -> bool:
    return _raw(321, 280, 0, ctypes.create_string_buffer(128), 128)


@attempt
def measure_the_machine() -> bool:
    return _raw(298, 241, ctypes.create_string_buffer(b"\1\0\0\0\x80", 128), 0, -1, -1, 0)


@attempt
def handle_faults_in_user_space() -> bool:
    return _raw(323, 282, 1)


@attempt
def queue_calls_past_the_filter() -> bool:
    return _raw(425, 425, 8, ctypes.create_string_buffer(256))


@attempt
def read_the_log_of_the_kernel() -> bool:
    return _call("klogctl", 3, ctypes.create_string_buffer(99), 99)


@attempt
def read_the_log_device_of_the_kernel() -> bool:
    return bool(os.read(os.open("/proc/kmsg", os.O_RDONLY | os.O_NONBLOCK), 1))


@attempt
def call_in_the_other_architecture() -> bool:
    return _raw(0x40000000 + 39, -1)


@attempt
def set_core_pattern() -> bool:
    return _write("/proc/sys/kernel/core_pattern", "|/bin/true")


@attempt
def set_the_module_loader() -> bool:
    return _write("/proc/sys/kernel/modprobe", "/bin/true")


@attempt
def press_the_magic_key() -> bool:
    return _write("/proc/sysrq-trigger", "h")


@attempt
def set_what_runs_on_events() -> bool:
    return _write("/sys/kernel/uevent_helper", "/bin/true")


@attempt
def set_what_runs_when_groups_empty() -> bool:
    return _write_any("/sys/fs/cgroup/*/release_agent", "/bin/true")


@attempt
def leave_the_control_group() -> bool:
    return _write_any("/sys/fs/cgroup/*/cgroup.procs", "0")


@attempt
def make_a_control_group() -> bool:
    os.mkdir(next(iter(glob.glob("/sys/fs/cgroup/pids")), "/sys/fs/cgroup") + "/escaped")
    return True


@attempt
def set_a_module_parameter() -> bool:
    return _write_any("/sys/module/*/parameters/*", "1")


@attempt
def put_the_machine_to_sleep() -> bool:
    return _write("/sys/power/state", "freeze")


# -- keys -----------------------------------------------------------------------------------------


@attempt
def read_keys() -> bool:
    return _raw(250, 219, 0, -3, 1)


@attempt
def add_a_key() -> bool:
    return _raw(248, 217, b"user", b"escaped", b"x", 1, -4)


@attempt
def list_keys() -> bool:
    with open("/proc/keys") as file:
        return bool(file.read())


# -- the network ----------------------------------------------------------------------------------


def _connects(family: int, address: Any) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as ours:
        ours.settimeout(2)
        ours.connect(address)
    return True


@attempt
def connect_to_the_loopback_of_the_machine() -> bool:
    return _connects(socket.AF_INET, ("127.0.0.1", HERE["port"]))


@attempt
def connect_to_the_machine() -> bool:
    return _connects(socket.AF_INET, (HERE["address"], HERE["port"]))


@attempt
def connect_to_the_machine_by_the_gateway() -> bool:
    return _connects(socket.AF_INET, ("10.244.0.1", HERE["port"]))


@attempt
def connect_to_a_socket_without_a_path() -> bool:
    return _connects(socket.AF_UNIX, "\0" + HERE["abstract"])


@attempt
def connect_to_a_socket_of_the_machine() -> bool:
    return _connects(socket.AF_UNIX, HERE["socket"])


@attempt
def connect_to_a_socket_in_the_state_folder() -> bool:
    return _connects(socket.AF_UNIX, f"{HERE['state']}/api.sock")


@attempt
def speak_to_the_hypervisor() -> bool:
    return _connects(socket.AF_VSOCK, (2, 1))


@attempt
def change_the_network() -> bool:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        # RTM_NEWLINK: set the loopback interface down.
        link.send(
            bytes.fromhex("20000000100005000100000000000000 00000000010000000000000001000000")
        )
        return int.from_bytes(link.recv(4096)[16:20], sys.byteorder, signed=True) == 0


# -- limits ---------------------------------------------------------------------------------------


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
def write_more_outside_of_volumes_than_allowed() -> bool:
    block, written = bytes(1 << 20), 0
    try:
        with open("/var/filled", "wb") as file:
            while written < 2 * HERE["layer"]:
                written += file.write(block)
        return True
    finally:
        os.unlink("/var/filled")


@attempt
def raise_a_limit() -> bool:
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    return True


def _outcome(function: Callable[[], object]) -> object:
    """In a process of its own, with an end in sight."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        signal.alarm(_SECONDS)
        try:
            answer: object = bool(function())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writer, json.dumps(answer).encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else "ended by a signal"


if __name__ == "__main__":
    os.makedirs("/mnt", exist_ok=True)
    print(json.dumps({name: _outcome(function) for name, function in ATTEMPTS.items()}))
