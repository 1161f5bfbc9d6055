"""The filter of system calls: held by the kernel, and read through for each architecture."""

from __future__ import annotations

import errno
import json
import platform
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import missing
from trainyard.podruntime.processes import seccomp

X86, ARM = "x86_64", "aarch64"
SYS_TIME, SYS_ADMIN = 1 << 25, 1 << 21
ALLOWED = 0x7FFF0000
DENIED, ABSENT = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
NEW_USER, NEW_TIME = 0x10000000, 0x80

# Run where the filter holds: what each call answers, 0 or the number of its error.
PROBE = """
import ctypes, json, os, signal, socket, subprocess, sys, threading
from trainyard.podruntime import syscalls
from trainyard.podruntime.processes import seccomp
libc = ctypes.CDLL(None, use_errno=True)
syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
syscalls.filter_calls(seccomp.profile())
def call(name, *arguments):
    ctypes.set_errno(0)
    getattr(libc, name)(*arguments)
    return ctypes.get_errno()
def raw(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in arguments])
    return ctypes.get_errno()
def vsock():
    try: socket.socket(40, socket.SOCK_STREAM)
    except OSError as error: return error.errno
answers = {
    "mount": call("mount", b"none", b"/", b"tmpfs", 0, None),
    "unshare": call("unshare", 0x10000000),
    "sethostname": call("sethostname", b"x", 1),
    "reboot": call("reboot", 0),
    "clone3": raw(435, 0, 0),
    "x32": raw(0x40000000 + 39),
    "vsock": vsock(),
    "tiocsti": call("ioctl", 0, 0x5412, b"x"),
    "personality": raw({"x86_64": 135, "aarch64": 92}[os.uname().machine], 0x0040000),
    "own personality": raw({"x86_64": 135, "aarch64": 92}[os.uname().machine], 0xFFFFFFFF),
}
thread = threading.Thread(target=lambda: answers.update(thread=0)); thread.start(); thread.join()
answers["process"] = subprocess.run(["true"]).returncode
answers["fork"] = os.waitpid(os.fork() or os._exit(0), 0)[1]
answers["socket"] = socket.socket().close() or 0
child = subprocess.Popen(["sleep", "60"])
answers["ptrace"] = call("ptrace", 16, child.pid, 0, 0)
os.waitpid(child.pid, os.WUNTRACED)
answers["detach"] = call("ptrace", 17, child.pid, 0, 0)
child.kill(); child.wait()
print(json.dumps(answers))
"""


def judge(program: bytes, number: int, arguments: tuple[int, ...] = (), machine: str = X86) -> int:
    """What the kernel would answer: the machine of linux/filter.h, as far as it is used."""
    architecture = {X86: 0xC000003E, ARM: 0xC00000B7}.get(machine, 0x40000003)
    values = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *values)
    instructions = list(struct.iter_unpack("=HBBI", program))
    place = accumulator = 0
    while True:
        code, if_true, if_false, operand = instructions[place]
        place += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, operand)
        elif code == 0x06:
            return int(operand)
        elif code == 0x05:
            place += operand
        else:
            tests = {
                0x15: accumulator == operand,
                0x35: accumulator >= operand,
                0x45: bool(accumulator & operand),
            }
            place += if_true if tests[code] else if_false


@pytest.mark.skipif(platform.machine() not in (X86, ARM), reason="numbers are not known here")
def test_the_kernel_takes_the_filter_and_holds_it() -> None:
    command = [sys.executable, "-c", PROBE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    denied = ("mount", "unshare", "sethostname", "reboot", "vsock", "tiocsti", "personality")
    absent = ("clone3", "x32")
    assert {name: answers.pop(name) for name in denied} == dict.fromkeys(denied, errno.EPERM)
    assert {name: answers.pop(name) for name in absent} == dict.fromkeys(absent, errno.ENOSYS)
    assert not any(answers.values()), answers


@pytest.mark.parametrize("machine", [X86, ARM])
def test_every_number_of_the_list_is_denied_and_the_others_are_allowed(machine: str) -> None:
    column = [X86, ARM].index(machine)
    listed = {n[column] for calls in seccomp._DENIED.values() for n in calls.values()}
    program = seccomp.profile(0, machine)
    denied = {n for n in range(500) if judge(program, n, machine=machine) == DENIED}
    assert denied == listed - {-1}
    assert judge(program, 435, machine=machine) == ABSENT
    rest = set(range(500)) - denied - {435}
    assert {judge(program, number, machine=machine) for number in rest} == {ALLOWED}


@pytest.mark.parametrize(("machine", "clone", "unshare"), [(X86, 56, 272), (ARM, 220, 97)])
def test_processes_are_made_and_namespaces_are_not(machine: str, clone: int, unshare: int) -> None:
    program = seccomp.profile(0, machine)
    assert judge(program, clone, (17,), machine) == ALLOWED
    assert judge(program, clone, (NEW_TIME | 17,), machine) == ALLOWED  # part of the signal there
    assert judge(program, clone, (NEW_USER | 17,), machine) == DENIED
    assert judge(program, unshare, (0x200,), machine) == ALLOWED
    assert judge(program, unshare, (NEW_TIME,), machine) == DENIED
    granted = seccomp.profile(SYS_ADMIN, machine)
    assert judge(granted, unshare, (NEW_USER,), machine) == ALLOWED
    assert judge(granted, 435, (), machine) == ALLOWED


def test_a_capability_that_is_given_opens_its_calls_and_no_others() -> None:
    reboot, clock_settime, mount, keyctl = 169, 227, 165, 250
    timed = seccomp.profile(SYS_TIME, X86)
    assert [judge(timed, n) for n in (clock_settime, mount)] == [ALLOWED, DENIED]
    admin = seccomp.profile(SYS_ADMIN, X86)
    assert [judge(admin, n) for n in (mount, reboot, keyctl)] == [ALLOWED, DENIED, DENIED]


def test_programs_of_another_architecture_find_no_calls() -> None:
    assert judge(seccomp.profile(0, X86), 1, machine="i386") == ABSENT
    assert judge(seccomp.profile(0, ARM), 1, machine=X86) == ABSENT


def test_there_is_no_filter_where_the_numbers_are_not_known() -> None:
    assert seccomp.profile(0, "s390x") == b""


@pytest.mark.parametrize(
    ("header", "column"),
    [("x86_64-linux-gnu/asm/unistd_64.h", 0), ("asm-generic/unistd.h", 1)],
)
def test_the_numbers_are_those_of_the_kernels_headers(header: str, column: int) -> None:
    path = Path("/usr/include", header)
    if not path.exists():
        skip = missing if platform.machine() == X86 else pytest.skip
        skip("the kernel's headers (linux-libc-dev) are not installed")
    found = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", path.read_text()))
    calls = {name: n for listed in seccomp._DENIED.values() for name, n in listed.items()}
    ours = {name: numbers[column] for name, numbers in calls.items() if numbers[column] >= 0}
    known = {name: number for name, number in ours.items() if name in found}
    assert len(known) > 40
    assert known == {name: int(found[name]) for name in known}
