"""Users of this machine, and the namespace that each has on a cluster of several users."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

NOBODY = 65534
"""The group of a user whom the machine's database does not know."""
_NOT_OF_A_LABEL = re.compile(r"[^a-z0-9-]+")


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
    """Return the user with this id; an unknown one has the id for a name, and no group."""
    import pwd

    try:
        found = pwd.getpwuid(uid)
    except KeyError:
        return User(uid, NOBODY, str(uid), groups=(NOBODY,))
    groups = tuple(os.getgrouplist(found.pw_name, found.pw_gid))
    return User(uid, found.pw_gid, found.pw_name, found.pw_dir, groups)


def namespace_of(name: str, uid: int) -> str:
    """`alice`; `john-doe-1001` of John.Doe, since a namespace's name is a DNS label."""
    label = _NOT_OF_A_LABEL.sub("-", name.lower()).strip("-")
    is_free = label != "default" and not label.startswith("kube-")
    if label == name and is_free and not label.isdigit() and len(label) <= 63:
        return label
    return f"{'user' if label.isdigit() else label[:50].rstrip('-') or 'user'}-{uid}"


def uid_of(name: str) -> int | None:
    """The id of a user by name or number; None if there is no such name."""
    import pwd

    try:
        return int(name) if name.isascii() and name.isdigit() else pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def gid_of(name: str) -> int | None:
    """The id of a group by name or number; None if there is no such name."""
    import grp

    try:
        return int(name) if name.isascii() and name.isdigit() else grp.getgrnam(name).gr_gid
    except KeyError:
        return None
