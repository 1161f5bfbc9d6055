"""What an attempt may get, and where: docs/security.md says that it is not promised otherwise.

A situation is ``<who started the cluster>/<container>``.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any, NamedTuple

PRIVILEGED: dict[str, Any] = {"privileged": True}
SITUATIONS: dict[str, dict[str, dict[str, Any]]] = {
    "root": {
        "default": {},
        "root": {"runAsUser": 0},
        "user": {"runAsUser": 1000},
        "no-escalation": {"allowPrivilegeEscalation": False},
        "unconfined": {"seccompProfile": {"type": "Unconfined"}},
        "privileged": PRIVILEGED,
    },
    "rootless": {
        "default": {},
        "no-escalation": {"allowPrivilegeEscalation": False},
        "unconfined": {"seccompProfile": {"type": "Unconfined"}},
    },
}
"""By isolation, the securityContext of each container that makes attempts."""


class NotPromised(NamedTuple):
    """``phrase`` is in docs/security.md; ``situations`` are patterns as of fnmatch."""

    phrase: str
    situations: tuple[str, ...] = ("*",)


_AS_ROOT = ("root/default", "root/root", "root/no-escalation", "root/unconfined")
_UNCONFINED = NotPromised(
    "`securityContext.seccompProfile.type: Unconfined` lifts it", ("*/unconfined",)
)
_PRIVILEGED = ("root/privileged",)
_OWNED_BY_ROOT = (*_AS_ROOT, *_PRIVILEGED, "root without privileges/*")
_MOUNTS = NotPromised("unless SYS_ADMIN is added", _PRIVILEGED)

NOT_PROMISED: Mapping[str, tuple[NotPromised, ...]] = {
    "connect_to_another_pod": (
        NotPromised("| reach the ports of other pods | no | no | no | no |"),
    ),
    "connect_to_a_socket_in_the_working_folder": (
        NotPromised("whoever listens on a socket in them can be spoken to"),
    ),
    "read_a_private_file_of_another_user": (
        NotPromised("| read the machine's files | no: as root", _AS_ROOT + _PRIVILEGED),
    ),
    "leave_a_program_with_its_owners_rights": (NotPromised("setuid bits and all", _OWNED_BY_ROOT),),
    "leave_a_program_with_a_capability": (NotPromised("setuid bits and all", _OWNED_BY_ROOT),),
    "pose_as_another_pod": (
        NotPromised("one pod can take over another's address", _OWNED_BY_ROOT),
    ),
    "make_a_user_namespace": (_UNCONFINED,),
    "clone_into_a_user_namespace": (_UNCONFINED,),
    "read_keys": (_UNCONFINED,),
    "add_a_key": (_UNCONFINED,),
    "handle_faults_in_user_space": (_UNCONFINED,),
    "queue_calls_past_the_filter": (_UNCONFINED,),
    "call_in_the_other_architecture": (_UNCONFINED,),
    # Harmless for the machine on which it is tried, and enough to say what can be had.
    "mount_a_file_system": (_MOUNTS,),
    "make_sys_writable": (_MOUNTS,),
    "make_a_disk_device": (NotPromised("unless MKNOD is added", _PRIVILEGED),),
    "open_a_file_by_its_handle": (
        NotPromised("unless `privileged` or SYS_ADMIN is added", _PRIVILEGED),
    ),
    "trace_the_first_process": (NotPromised("unless SYS_PTRACE is added", _PRIVILEGED),),
    "read_variables_of_the_first_process": (
        NotPromised("unless SYS_PTRACE is added", _PRIVILEGED),
    ),
}

NEVER = """
find_the_secret_of_another_pod see_a_process_of_the_machine reach_a_process_that_is_not_seen
connect_to_the_machine connect_to_the_loopback_of_the_machine read_the_cluster_state
find_a_memory_file_of_another_pod find_a_message_queue_of_another_pod
find_shared_memory_of_another_pod have_variables_of_who_started_the_cluster
find_the_old_root_above_the_new
"""
"""What even a privileged container does not get."""


def tried_by(situation: str) -> list[str]:
    """The attempts to be made; none that would harm the machine. Empty: all."""
    if not situation.endswith("/privileged"):
        return []
    named = [name for name in NOT_PROMISED if may_succeed(name, situation)]
    return [*named, *NEVER.split()]


def may_succeed(attempt: str, situation: str) -> bool:
    return any(
        fnmatch.fnmatchcase(situation, pattern)
        for each in NOT_PROMISED.get(attempt, ())
        for pattern in each.situations
    )
