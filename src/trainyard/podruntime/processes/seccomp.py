"""Which system calls a pod's programs may make: a filter for the kernel, assembled here.

It lists what is denied, in the spirit of the default profile of common container runtimes (decision
74): what changes the machine rather than the process, what reaches around namespaces, and what few
programs need and many attacks begin with. A denied call fails as if a privilege were missing
(EPERM). Calls for which programs have a fallback are reported as absent (ENOSYS). Other calls cost
nothing: the kernel remembers which ones always pass.

The format is that of ``linux/filter.h``: instructions of eight bytes (code, jump if true, jump if
false, operand) over ``struct seccomp_data`` (number, architecture, instruction pointer, arguments).
"""

from __future__ import annotations

import errno
import functools
import platform
import struct
from collections.abc import Sequence
from typing import NamedTuple

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_JUMP, _BLOCK = 0x05, 8
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_X32 = 0x40000000

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Call numbers as (x86_64, aarch64), -1 where there is none. From asm/unistd_64.h and
# asm-generic/unistd.h.
_COLUMN = {"x86_64": 0, "aarch64": 1}

# Numbers of linux/capability.h: granting one permits the calls beneath it.
_DAC_READ_SEARCH, _SYS_MODULE, _SYS_RAWIO, _SYS_PACCT, _SYS_ADMIN = 2, 16, 17, 20, 21
_SYS_BOOT, _SYS_TIME, _SYS_TTY_CONFIG, _SYSLOG, _PERFMON, _BPF = 22, 25, 26, 34, 38, 39
_NOBODY = -1

_DENIED: dict[int, dict[str, tuple[int, int]]] = {
    _SYS_ADMIN: {
        "fanotify_init": (300, 262),
        "fsconfig": (431, 431),
        "fsmount": (432, 432),
        "fsopen": (430, 430),
        "fspick": (433, 433),
        "lookup_dcookie": (212, 18),
        "mount": (165, 40),
        "mount_setattr": (442, 442),
        "move_mount": (429, 429),
        "open_tree": (428, 428),
        "open_tree_attr": (467, 467),
        "pivot_root": (155, 41),
        "quotactl": (179, 60),
        "quotactl_fd": (443, 443),
        "setdomainname": (171, 162),
        "sethostname": (170, 161),
        "setns": (308, 268),
        "swapoff": (168, 225),
        "swapon": (167, 224),
        "umount2": (166, 39),
    },
    _SYS_MODULE: {
        "create_module": (174, -1),
        "delete_module": (176, 106),
        "finit_module": (313, 273),
        "init_module": (175, 105),
    },
    _SYS_RAWIO: {"ioperm": (173, -1), "iopl": (172, -1)},
    _SYS_PACCT: {"acct": (163, 89)},
    _SYS_BOOT: {"kexec_file_load": (320, 294), "kexec_load": (246, 104), "reboot": (169, 142)},
    _SYS_TIME: {
        "clock_adjtime": (305, 266),
        "clock_settime": (227, 112),
        "settimeofday": (164, 170),
    },
    _SYS_TTY_CONFIG: {"vhangup": (153, 58)},
    _SYSLOG: {"syslog": (103, 116)},
    _PERFMON: {"perf_event_open": (298, 241)},
    _BPF: {"bpf": (321, 280)},
    _DAC_READ_SEARCH: {"open_by_handle_at": (304, 265)},
    # Keyrings are only in user namespaces; the rest is obsolete, or has a history of exploits.
    _NOBODY: {
        "_sysctl": (156, -1),
        "add_key": (248, 217),
        "get_kernel_syms": (177, -1),
        "io_uring_enter": (426, 426),
        "io_uring_register": (427, 427),
        "io_uring_setup": (425, 425),
        "keyctl": (250, 219),
        "nfsservctl": (180, 42),
        "query_module": (178, -1),
        "request_key": (249, 218),
        "sysfs": (139, -1),
        "uselib": (134, -1),
        "userfaultfd": (323, 282),
        "ustat": (136, -1),
    },
}
# Its flags are in memory, which no filter can read; on ENOSYS the C library uses clone.
_CLONE3 = (435, 435)

_NEW_NAMESPACES = 0x7E020000
_NEW_TIME_NAMESPACE = 0x80  # only for unshare; in clone these bits are the exit signal
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
_AF_VSOCK = 40  # reaches the hypervisor, past the network namespace
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # inject input into a terminal


class _Condition(NamedTuple):
    """A call denied if ``test`` holds for its ``argument`` and one of ``values``."""

    numbers: tuple[int, int]
    argument: int
    test: int
    values: tuple[int, ...]
    is_allowed: bool = False
    """Inverted: denied unless the test holds."""


_NAMESPACES_MADE = (
    _Condition((56, 220), 0, _ANY_BIT, (_NEW_NAMESPACES,)),  # clone
    _Condition((272, 97), 0, _ANY_BIT, (_NEW_NAMESPACES | _NEW_TIME_NAMESPACE,)),  # unshare
)
_CONDITIONS = (
    _Condition((135, 92), 0, _EQUAL, _PERSONALITIES, is_allowed=True),  # personality
    _Condition((41, 198), 0, _EQUAL, (_AF_VSOCK,)),  # socket
    _Condition((16, 29), 1, _EQUAL, (_TIOCSTI, _TIOCLINUX)),  # ioctl
)


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)


_PASS = _instruction(_RETURN, _ALLOW)
_DENY = _instruction(_RETURN, _ERRNO | errno.EPERM)
_ABSENT = _instruction(_RETURN, _ERRNO | errno.ENOSYS)


@functools.cache
def profile(capabilities: int = 0, machine: str = platform.machine()) -> bytes:
    """The filter for a program that was granted ``capabilities`` (a bit mask).

    Instructions of eight bytes each; empty where the call numbers of ``machine`` are not known.
    """
    if machine not in _ARCHITECTURES:
        return b""
    column = _COLUMN[machine]

    def granted(capability: int) -> bool:
        return capability >= 0 and bool(capabilities >> capability & 1)

    makes_namespaces = granted(_SYS_ADMIN)
    denied = sorted(
        numbers[column]
        for capability, calls in _DENIED.items()
        if not granted(capability) and not (granted(_SYS_ADMIN) and capability in (_PERFMON, _BPF))
        for numbers in calls.values()
        if numbers[column] >= 0
    )
    conditions = _CONDITIONS if makes_namespaces else (*_CONDITIONS, *_NAMESPACES_MADE)
    absent = [] if makes_namespaces else [_CLONE3[column]]
    head = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_EQUAL, _ARCHITECTURES[machine], 1),
        _ABSENT,
        _instruction(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        head += [_instruction(_AT_LEAST, _X32, 0, 1), _ABSENT]
    for condition in conditions:
        head += _conditional(condition, column)
    return b"".join([*head, *_listed(denied, _DENY), *_listed(absent, _ABSENT), _PASS])


def _conditional(condition: _Condition, column: int) -> list[bytes]:
    """Instructions that return a verdict for the condition's call, and skip any other."""
    found, otherwise = (_PASS, _DENY) if condition.is_allowed else (_DENY, _PASS)
    values = condition.values
    body = [_instruction(_LOAD, _FIRST_ARGUMENT + 8 * condition.argument)]
    body += [
        _instruction(condition.test, value, len(values) - place)
        for place, value in enumerate(values)
    ]
    body += [otherwise, found]
    return [_instruction(_EQUAL, condition.numbers[column], 0, len(body)), *body]


def _listed(numbers: Sequence[int], answer: bytes) -> list[bytes]:
    """Instructions that return ``answer`` for each of ``numbers`` (ascending); any other passes.

    In blocks of which all but one are skipped: the kernel evaluates a filter for every call number
    when it is installed.
    """
    made: list[bytes] = [_instruction(_JUMP, 1), answer] if numbers else []
    for start in reversed(range(0, len(numbers), _BLOCK)):
        block = numbers[start : start + _BLOCK]
        # Built from the end: `made` holds the later blocks, and last the jump past the answer.
        to_answer, is_last = len(made) - 1, start + _BLOCK >= len(numbers)
        tests = [
            _instruction(_EQUAL, number, len(block) - place + (0 if is_last else to_answer))
            for place, number in enumerate(block)
        ]
        if not is_last:
            tests.append(_instruction(_JUMP, len(made)))
            skip = _instruction(_AT_LEAST, numbers[start + _BLOCK], len(tests))
            tests.insert(0, skip)
        made = tests + made
    return made
