"""Files, folders, mounts and devices."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import termios

from .trying import (
    HERE,
    LEFT_OPEN,
    MNT_DETACH,
    MS_BIND,
    MS_REMOUNT,
    NEW_NS,
    NEW_USER,
    attempt,
    call,
    is_other_root,
    libc,
    one_of,
    raw,
    write,
)


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
    return is_other_root("/..")


@attempt
def find_the_old_root_by_the_first_process() -> bool:
    return is_other_root("/proc/1/root/") or is_other_root("/proc/1/cwd/../../../../../../..")


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
    return raw(304, 265, os.open("/", os.O_RDONLY), handle, os.O_RDONLY)


@attempt
def read_the_cluster_state() -> bool:
    return any(os.path.exists(f"{HERE['state']}/{name}") for name in ("state.db", "api.sock"))


@attempt
def mount_a_file_system() -> bool:
    return call("mount", b"none", b"/mnt", b"tmpfs", 0, None)


@attempt
def mount_proc_again() -> bool:
    return call("mount", b"proc", b"/mnt", b"proc", 0, None)


@attempt
def bind_a_folder() -> bool:
    return call("mount", b"/etc", b"/mnt", None, 4096, None)


@attempt
def make_sys_writable() -> bool:
    return call("mount", None, b"/sys", None, 32 | 4096, None)


@attempt
def unmount_what_covers_proc() -> bool:
    return call("umount2", b"/proc", 2)


@attempt
def open_a_mount_tree() -> bool:
    return raw(428, 428, -100, b"/", 1)


@attempt
def prepare_a_file_system() -> bool:
    return raw(430, 430, b"tmpfs", 0)


@attempt
def change_the_root_of_all() -> bool:
    os.makedirs("/tmp/pivot", exist_ok=True)
    return raw(155, 41, b"/tmp/pivot", b"/tmp/pivot")


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
def read_kernel_memory() -> bool:
    with open("/proc/kcore", "rb") as file:
        return bool(file.read(1))


def _mount_points() -> list[str]:
    with open("/proc/self/mountinfo") as file:
        return [line.split()[4] for line in file]


@attempt
def find_another_root_by_any_process() -> bool:
    found = False
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for way in ("root/", "cwd/../../../../../../../../.."):
            with contextlib.suppress(OSError):
                found = found or is_other_root(f"/proc/{pid}/{way}")
    return found


@attempt
def link_an_opened_file_of_the_machine_into_the_working_folder() -> bool:
    fd = os.open(HERE["canary"], os.O_RDONLY)
    os.link(f"/proc/self/fd/{fd}", "canary-link", follow_symlinks=True)
    return True


@attempt
def write_above_the_working_folder() -> bool:
    with open("../escaped", "w") as file:  # lands in the pod's layer; judged outside
        file.write("escaped")
    return False


@attempt
def move_the_working_folder() -> bool:
    here = os.getcwd()
    os.rename(here, f"{here}-moved")
    return True


@attempt
def move_the_folder_above_the_state_folder() -> bool:
    above = os.path.dirname(HERE["state"])
    os.rename(above, f"{above}-moved")
    return True


@attempt
def put_another_folder_where_the_state_folder_is() -> bool:
    os.rename(HERE["state"], f"{HERE['state']}-moved")
    return True


@attempt
def write_into_the_state_folder() -> bool:
    with open(f"{HERE['state']}/escaped", "w") as file:
        file.write("escaped")
    return False


@attempt
def read_the_logs_of_another_pod() -> bool:
    return any(os.scandir(f"{HERE['state']}/pods"))


@attempt
def read_a_private_file_of_another_user() -> bool:
    with open(HERE["private"]) as file:
        return bool(file.read())


@attempt
def write_a_private_file_of_another_user() -> bool:
    with open(HERE["private"], "w") as file:  # lands in the pod's layer; judged outside
        file.write("escaped")
    return False


@attempt
def change_the_addresses_of_hosts() -> bool:
    return write("/etc/hosts", "192.0.2.1 elsewhere\n")


@attempt
def replace_the_addresses_of_hosts() -> bool:
    with open("/etc/new-hosts", "w") as file:
        file.write("192.0.2.1 elsewhere\n")
    os.replace("/etc/new-hosts", "/etc/hosts")
    return True


@attempt
def change_who_resolves_names() -> bool:
    return write("/etc/resolv.conf", "nameserver 192.0.2.1\n")


@attempt
def change_a_configuration_volume() -> bool:
    return write(f"{HERE['configuration']}/key", "escaped")


@attempt
def link_a_configuration_volume_elsewhere() -> bool:
    os.symlink(HERE["canary"], f"{HERE['configuration']}/new")
    return True


@attempt
def change_a_read_only_claim() -> bool:
    return write(f"{HERE['read-only']}/file", "escaped")


@attempt
def make_a_read_only_claim_writable() -> bool:
    return call("mount", None, HERE["read-only"].encode(), None, MS_REMOUNT | MS_BIND, None)


@attempt
def make_the_root_writable_again() -> bool:
    return call("mount", None, b"/", None, MS_REMOUNT, None)


@attempt
def unmount_anything() -> bool:
    return any(libc.umount2(point.encode(), MNT_DETACH) == 0 for point in _mount_points())


@attempt
def move_a_mount() -> bool:
    return call("mount", b"/proc", b"/mnt", None, 8192, None)


@attempt
def change_the_attributes_of_a_mount() -> bool:
    attributes = (ctypes.c_uint64 * 4)(0, 1)  # clear: read-only
    return raw(442, 442, -100, b"/proc/sys", 0, attributes, 32)


@attempt
def mount_the_control_groups() -> bool:
    return call("mount", b"x", b"/mnt", b"cgroup2", 0, None) or call(
        "mount", b"x", b"/mnt", b"cgroup", 0, b"rdma"
    )


@attempt
def uncover_something_in_namespaces_of_ones_own() -> bool:
    """Whoever may make them is root there, but mounts that came from outside are locked."""
    user, group = os.geteuid(), os.getegid()
    _become_root_of_a_namespace(user, group)
    call("mount", b"none", b"/", None, 1 << 18 | 16384, None)
    for point in reversed(_mount_points()):
        libc.umount2(point.encode(), MNT_DETACH)
        libc.mount(None, point.encode(), None, MS_REMOUNT | MS_BIND, None)
    read_only = f"{HERE['read-only']}/file"
    return one_of((read_only, "/proc/sysrq-trigger", "/sys/kernel/mm/ksm/run"), os.O_WRONLY) or (
        os.path.exists(f"{HERE['state']}/shim.log")
    )


def _become_root_of_a_namespace(user: int, group: int) -> None:
    call("unshare", NEW_USER | NEW_NS)
    for name, text in (
        ("setgroups", "deny"),
        ("gid_map", f"0 {group} 1"),
        ("uid_map", f"0 {user} 1"),
    ):
        write(f"/proc/self/{name}", text)


@attempt
def leave_a_program_with_its_owners_rights() -> bool:
    """On the machine, in the working folder, for anybody to run as root."""
    with open("escape-program", "w"):
        os.chmod("escape-program", 0o4755)
    found = os.stat("escape-program")
    os.unlink("escape-program")
    return found.st_uid == 0 and bool(found.st_mode & 0o4000)


@attempt
def leave_a_program_with_a_capability() -> bool:
    with open("escape-program", "w"):
        pass
    try:
        # VFS_CAP_REVISION_2, effective: SYS_ADMIN.
        data = (0x02000001).to_bytes(4, "little") + (1 << 21).to_bytes(4, "little") + bytes(12)
        os.setxattr("escape-program", "security.capability", data)
    finally:
        os.unlink("escape-program")
    return True


@attempt
def make_a_disk_device_in_the_working_folder() -> bool:
    os.mknod("escape-disk", 0o60600, HERE["device"])
    os.unlink("escape-disk")
    return True


@attempt
def make_a_device_of_the_kernel() -> bool:
    for number, (major, minor) in enumerate(((1, 11), (10, 232), (10, 229), (10, 200), (5, 1))):
        with contextlib.suppress(PermissionError):
            os.mknod(f"/tmp/device-{number}", 0o20600, os.makedev(major, minor))
            return True
    return False


@attempt
def push_words_into_a_terminal() -> bool:
    _, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSTI, b"x")
    return True


@attempt
def find_descriptors_that_were_left_open() -> bool:
    return bool(LEFT_OPEN)
