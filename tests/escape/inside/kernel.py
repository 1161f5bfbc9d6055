"""What belongs to the machine as a whole: its kernel, its settings, its keys."""

from __future__ import annotations

import ctypes
import glob
import os
import socket
import time
from collections.abc import Iterator

from .trying import (
    HERE,
    attempt,
    call,
    libc,
    one_of,
    raw,
    write,
    write_any,
)


@attempt
def load_a_module() -> bool:
    return raw(313, 273, os.open("/proc/version", os.O_RDONLY), b"", 0)


@attempt
def unload_a_module() -> bool:
    return raw(176, 106, b"none", 0)


@attempt
def load_a_kernel() -> bool:
    return raw(320, 294, -1, -1, 0, None, 0)


@attempt
def restart_the_machine() -> bool:
    return raw(169, 142, 0xFEE1DEAD, 672274793, 0, None)  # turns Ctrl-Alt-Del off


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
    return raw(167, 224, b"/nowhere", 0)


@attempt
def account_processes() -> bool:
    return raw(163, 89, None)


@attempt
def load_a_kernel_program() -> bool:
    return raw(321, 280, 0, ctypes.create_string_buffer(128), 128)


@attempt
def measure_the_machine() -> bool:
    return raw(298, 241, ctypes.create_string_buffer(b"\1\0\0\0\x80", 128), 0, -1, -1, 0)


@attempt
def handle_faults_in_user_space() -> bool:
    return raw(323, 282, 1)


@attempt
def queue_calls_past_the_filter() -> bool:
    return raw(425, 425, 8, ctypes.create_string_buffer(256))


@attempt
def read_the_log_of_the_kernel() -> bool:
    return call("klogctl", 3, ctypes.create_string_buffer(99), 99)


@attempt
def read_the_log_device_of_the_kernel() -> bool:
    return bool(os.read(os.open("/proc/kmsg", os.O_RDONLY | os.O_NONBLOCK), 1))


@attempt
def call_in_the_other_architecture() -> bool:
    return raw(0x40000000 + 39, -1)


@attempt
def set_core_pattern() -> bool:
    return write("/proc/sys/kernel/core_pattern", "|/bin/true")


@attempt
def set_the_module_loader() -> bool:
    return write("/proc/sys/kernel/modprobe", "/bin/true")


@attempt
def press_the_magic_key() -> bool:
    return write("/proc/sysrq-trigger", "h")


@attempt
def set_what_runs_on_events() -> bool:
    return write("/sys/kernel/uevent_helper", "/bin/true")


@attempt
def set_what_runs_when_groups_empty() -> bool:
    return write_any("/sys/fs/cgroup/*/release_agent", "/bin/true")


@attempt
def leave_the_control_group() -> bool:
    return write_any("/sys/fs/cgroup/*/cgroup.procs", "0")


@attempt
def make_a_control_group() -> bool:
    os.mkdir(next(iter(glob.glob("/sys/fs/cgroup/pids")), "/sys/fs/cgroup") + "/escaped")
    return True


@attempt
def set_a_module_parameter() -> bool:
    return write_any("/sys/module/*/parameters/*", "1")


@attempt
def put_the_machine_to_sleep() -> bool:
    return write("/sys/power/state", "freeze")


@attempt
def read_keys() -> bool:
    return raw(250, 219, 0, -3, 1)


@attempt
def add_a_key() -> bool:
    return raw(248, 217, b"user", b"escaped", b"x", 1, -4)


def _files(folder: str, without: tuple[str, ...] = ()) -> Iterator[str]:
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if os.path.join(where, name) not in without]
        for name in names:
            path = os.path.join(where, name)
            if not os.path.islink(path) and path not in without:
                yield path


@attempt
def open_a_setting_of_the_kernel_for_writing() -> bool:
    """Of all there are; with the network's, which is the pod's own, and one that anybody one_of."""
    without = ("/proc/sys/net", "/proc/sys/kernel/ns_last_pid")
    return one_of(_files("/proc/sys", without), os.O_WRONLY)


@attempt
def open_anything_in_proc_for_writing() -> bool:
    processes = tuple(f"/proc/{name}" for name in os.listdir("/proc") if name.isdigit())
    # What is told to it is about memory pressure, and there for everybody.
    without = (*processes, "/proc/sys", "/proc/pressure", "/proc/self", "/proc/thread-self")
    return one_of(_files("/proc", without), os.O_WRONLY)


@attempt
def open_anything_in_sys_for_writing() -> bool:
    return one_of(_files("/sys"), os.O_WRONLY)


@attempt
def register_a_format_of_programs() -> bool:
    return write("/proc/sys/fs/binfmt_misc/register", ":escape:M::xx::/bin/true:")


@attempt
def set_the_clock_in_the_old_way() -> bool:
    seconds = (ctypes.c_long * 2)(int(time.time()), 0)
    return raw(164, 170, seconds, None)


@attempt
def rename_the_domain_of_the_machine() -> bool:
    return raw(171, 162, b"escaped", 7)


@attempt
def reach_ports_of_the_hardware() -> bool:
    return raw(172, -1, 3)


@attempt
def watch_all_files_of_the_machine() -> bool:
    return raw(300, 262, 0, os.O_RDONLY)


@attempt
def list_keys() -> bool:
    with open("/proc/keys") as file:
        return bool(file.read())


@attempt
def find_a_key_of_the_machine() -> bool:
    return any(
        libc.syscall(250, 10, keyring, b"user", HERE["key"].encode(), 0) > 0
        for keyring in (-3, -4, -5)
    )


@attempt
def read_addresses_of_the_kernel() -> bool:
    with open("/proc/kallsyms") as file:
        return int(file.readline().split()[0], 16) != 0


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
