"""What is bound into a pod's root: its sources, and by whose rights they are reached and made."""

from __future__ import annotations

import functools
import os
import stat

from trainyard.podruntime import kernelfs, paths
from trainyard.podruntime.protocol import Account, Bind
from trainyard.podruntime.rights import acting_as


class RootError(Exception):
    """The root cannot be built; the text says which mount, and why."""


class Mount:
    """A bind, where it is probably to go (the order follows from that), and its opened source."""

    def __init__(self, bind: Bind, account: Account | None) -> None:
        self.bind = bind
        self.place = (
            bind.target if kernelfs.holds(os.fsencode(bind.target)) else paths.real(bind.target)
        )
        self.source = open_source(bind, account) if bind.private else -1

    @functools.cached_property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(os.fstat(self.source).st_mode)


class GuestsMaker(paths.Maker):
    """Makes what is missing with a user's rights, but on the file systems of the pod's own root."""

    def __init__(self, directory: bool, account: Account, ours: set[int]) -> None:
        super().__init__(directory)
        self._account, self._ours = account, ours

    def make(self, folder: int, name: str, is_last: bool) -> None:
        if os.fstat(folder).st_dev in self._ours:
            super().make(folder, name, is_last)
            return
        with acting_as(*self._account):
            super().make(folder, name, is_last)


def open_source(bind: Bind, account: Account | None) -> int:
    """A descriptor of what is to be mounted; a ``subPath`` that nobody has made yet is made.

    Outside of the cluster's own folder with the rights of ``account``, if any: what a user cannot
    reach by its path, a mount must not show (decision 89).
    """
    if bind.private or account is None:
        return _found_source(bind, like=True)
    with acting_as(*account):
        return _found_source(bind, like=False)  # what they make is theirs


def _found_source(bind: Bind, *, like: bool) -> int:
    source = bind.source
    try:
        if bind.private:
            top = os.open(source, os.O_PATH | os.O_CLOEXEC)
        else:
            top = paths.without_links(source)
    except OSError as error:
        text = f"cannot mount {source} at {bind.target}: {paths.reason(error)}"
        raise RootError(text) from None
    if not bind.inner:
        return top
    try:
        return paths.make(top, bind.inner, paths.BENEATH, like=like)
    except OSError as error:
        text = f"cannot mount subPath {bind.inner!r} at {bind.target}: {paths.reason(error)}"
        raise RootError(text) from None
    finally:
        os.close(top)
