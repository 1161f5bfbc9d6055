"""Users of this machine, and the namespace that each has on a cluster of several users."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

NOBODY = 65534
"""The group of a user whom the machine's database does not know."""
_NOT_OF_A_LABEL = re.compile(r"[^a-z0-9-]+")
_DIGITS = re.compile(r"[0-9]{1,10}", re.ASCII)
_MAX_ID = (1 << 32) - 2
"""The greatest id of a user or group; to system calls the next one means "leave it as it is"."""


class User(NamedTuple):
    """A user of this machine."""

    uid: int
    gid: int
    name: str
    home: str = ""
    groups: tuple[int, ...] = ()
    """The primary group among them."""

    @property
    def namespace(self) -> str:
        """The user's own namespace: the name if it is a DNS label, else a label with the uid."""
        return namespace_of(self.name, self.uid)


class AllowList(NamedTuple):
    """Who besides its owner may use a cluster: ids of users and groups of this machine."""

    users: frozenset[int] = frozenset()
    groups: frozenset[int] = frozenset()

    def admits(self, user: User) -> bool:
        """Whether the user is on the list, or one of their groups is."""
        return user.uid in self.users or not self.groups.isdisjoint(user.groups)


NOBODY_ELSE = AllowList()


def user_with_uid(uid: int) -> User:
    """Return the user with this id; an unknown one has the id for a name, and is in no group."""
    import pwd

    try:
        found = pwd.getpwuid(uid)
    except KeyError:
        return User(uid, NOBODY, str(uid))
    groups = tuple(os.getgrouplist(found.pw_name, found.pw_gid))
    return User(uid, found.pw_gid, found.pw_name, found.pw_dir, groups)


def parse_id(text: str) -> int | None:
    """The id of a user or group in decimal digits, at most 2^32 - 2; None if it is none."""
    number = int(text) if _DIGITS.fullmatch(text) else None
    return number if number is not None and number <= _MAX_ID else None


def namespace_of(name: str, uid: int) -> str:
    """`alice`; `john-doe-1001` of John.Doe, since a namespace's name is a DNS label."""
    label = _NOT_OF_A_LABEL.sub("-", name.lower()).strip("-")
    is_free = label != "default" and not label.startswith("kube-")
    if label == name and is_free and not label.isdigit() and len(label) <= 63:
        return label
    return f"{'user' if label.isdigit() else label[:50].rstrip('-') or 'user'}-{uid}"


def user_with_namespace(namespace: str) -> User | None:
    """The user whose own namespace this is; None if it is nobody's."""
    uid = uid_of(namespace)
    if uid is None:
        uid = parse_id(namespace.rpartition("-")[2])
    user = None if uid is None else user_with_uid(uid)
    return user if user is not None and user.namespace == namespace else None


def uid_of(name: str) -> int | None:
    """The id of a user by name or number; None if there is no such user."""
    import pwd

    try:
        return parse_id(name) if name.isdigit() else pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def gid_of(name: str) -> int | None:
    """The id of a group by name or number; None if there is no such group."""
    import grp

    try:
        return parse_id(name) if name.isdigit() else grp.getgrnam(name).gr_gid
    except KeyError:
        return None
