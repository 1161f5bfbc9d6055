"""A pod's root file system: a layer over the host's that goes with the pod (decision 40).

This runs in the container init, in a mount namespace of its own. Writes go to a tmpfs, the upper
layer of overlays; only volumes and the working folder, which are bind mounts, reach the host. Mount
points that the host lacks are made in the upper layer beforehand, since without root the host's
directory is not ours.

A volume's content belongs to the pods: paths into it are followed by ``safe_paths`` only (decision
77). The cluster's own folder is covered before anything is mounted, so that no bind mount shows it
(decision 78).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import stat

from trainyard.podruntime import syscalls as sys
from trainyard.podruntime.filesystem import base_mounts, kernel_filesystems, safe_paths
from trainyard.podruntime.filesystem.base_mounts import MountPoints
from trainyard.podruntime.filesystem.impersonation import acting_as
from trainyard.podruntime.protocol import Account, Bind, Root

_ROOM_BYTES = 64 << 10


class RootError(Exception):
    """The root cannot be built; the text says which mount, and why."""


class VolumeMount:
    """A bind mount: where it will probably go, which decides the order, and its opened source."""

    def __init__(self, bind: Bind, account: Account | None) -> None:
        self.bind = bind
        self.place = (
            bind.target
            if kernel_filesystems.is_kernel_path(os.fsencode(bind.target))
            else safe_paths.real_path(bind.target)
        )
        self.source = open_source(bind, account) if bind.private else -1

    @functools.cached_property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(os.fstat(self.source).st_mode)


class TenantPathMaker(safe_paths.Maker):
    """Makes missing mount points with a tenant's rights, except on the pod's own file systems."""

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
    """Open what is to be mounted; a missing ``subPath`` is made.

    Outside the cluster's own folder this happens with the rights of ``account``, if any: a mount
    must not show what the user could not reach (decision 89).
    """
    if bind.private or account is None:
        return _find_source(bind, copies_owner=True)
    with acting_as(*account):
        return _find_source(bind, copies_owner=False)  # what the tenant makes belongs to the tenant


def _find_source(bind: Bind, *, copies_owner: bool) -> int:
    source = bind.source
    try:
        if bind.private:
            top = os.open(source, os.O_PATH | os.O_CLOEXEC)
        else:
            top = safe_paths.open_without_links(source)
    except OSError as error:
        text = f"cannot mount {source} at {bind.target}: {safe_paths.explain_refusal(error)}"
        raise RootError(text) from None
    if not bind.inner:
        return top
    try:
        return safe_paths.make(top, bind.inner, safe_paths.BENEATH, copies_owner=copies_owner)
    except OSError as error:
        reason = safe_paths.explain_refusal(error)
        text = f"cannot mount subPath {bind.inner!r} at {bind.target}: {reason}"
        raise RootError(text) from None
    finally:
        os.close(top)


def enter(root: Root, base: str, mounted: MountPoints, *, rootless: bool) -> int:
    """Build ``root`` on the prepared mounts, and make it this process's root directory.

    Returns a descriptor of the old root, which no path leads to any more; :func:`leave` unmounts
    it.
    """
    old = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    _RootBuilder(root, base, mounted, rootless=rootless).build()
    os.chdir(base_mounts.NEW_ROOT)
    sys.pivot_root(".", ".")
    os.chdir("/")
    return old


def leave(old: int) -> None:
    """Unmount the old root, which lies over the new one, before any program runs."""
    os.fchdir(old)
    sys.umount(".")
    os.chdir("/")
    os.close(old)


def is_full() -> bool:
    """Whether there is no room left in this process's root, outside of volumes."""
    try:
        disk = os.statvfs("/")
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _ROOM_BYTES


def _is_beneath(path: str, folder: str) -> bool:
    return folder == "/" or path.startswith(folder + "/")


class _RootBuilder:
    def __init__(self, root: Root, base: str, mounted: MountPoints, *, rootless: bool) -> None:
        self._root, self._base, self._rootless = root, base, rootless
        self._mounts = set(mounted.list_mounts())
        self._layers: list[int] = []
        self._hidden: set[str] = set()
        self._numbers = itertools.count()
        self._binds = sorted(
            (VolumeMount(bind, root.account) for bind in root.binds),
            key=lambda each: each.place.count("/") if each.place != "/" else 0,
        )
        self._work = safe_paths.real_path(root.work) if root.work else ""

    def build(self) -> None:
        if self._root.size:
            flags = sys.MS_REMOUNT | sys.MS_NOSUID | sys.MS_NODEV
            sys.mount("", ".", "", flags, f"size={self._root.size}")
        self._hide({safe_paths.real_path(os.path.dirname(self._base)), *self._root.hidden})
        for each in self._binds:
            if each.source < 0:
                each.source = open_source(each.bind, self._root.account)
        self._expose_host()
        base_mounts.install_kernel_filesystems(self._root)
        if self._rootless:
            self._empty_closed_folders()
        for each in self._binds:
            self._bind(each)
        if self._root.work:
            self._make_work(self._root.work)
        if self._root.read_only:
            for fd in self._layers:
                with contextlib.suppress(OSError):
                    flags = sys.MS_REMOUNT | sys.MS_BIND | sys.MS_RDONLY
                    sys.mount("", safe_paths.proc_path(fd), "", flags)

    # -- what is hidden -------------------------------------------------------------------------

    def _hide(self, hidden: set[str]) -> None:
        """Cover each of ``hidden`` with an empty folder; bind mounts made later show that."""
        for folder in sorted(hidden):
            if not os.path.isdir(folder):
                continue  # or it lies in a folder that is covered already
            self._hidden.add(folder)
            self._note_mount(folder)
            self._pin_parents(folder)
            sys.mount(self._empty(folder), folder, "", sys.MS_BIND)

    def _note_mount(self, path: str) -> None:
        if not kernel_filesystems.is_kernel_path(os.fsencode(path)):
            self._mounts.add(path)

    def _empty(self, folder: str) -> str:
        """A read-only folder that has only the mount points wanted in ``folder``."""
        inside = [
            (place, is_dir) for place, is_dir in self._wanted_places() if _is_beneath(place, folder)
        ]
        if not inside:
            return base_mounts.EMPTY
        empty = f"e{next(self._numbers)}"
        os.mkdir(empty)
        for place, is_directory in inside:
            _make_mount_point(folder, place, empty, is_directory)
        sys.mount(empty, empty, "", sys.MS_BIND)
        kernel_filesystems.set_read_only(empty)
        return empty

    def _pin_parents(self, folder: str) -> None:
        """Keep pods from renaming the folders above a covered one: mount points cannot be renamed.

        Otherwise the next pod would find the real folder under a new name.
        """
        sources = [each.bind.source for each in self._binds if not each.bind.private]
        parts = folder.split("/")[1:-1]
        for end in range(1, len(parts) + 1):
            above = "/" + "/".join(parts[:end])
            if any(_is_beneath(above, source) for source in sources):
                sys.mount(above, above, "", sys.MS_BIND | sys.MS_REC)
                self._note_mount(above)

    # -- the host's files -----------------------------------------------------------------------

    def _expose_host(self) -> None:
        if not self._layer("/", base_mounts.NEW_ROOT):
            # pivot_root needs a mount point.
            sys.mount(base_mounts.NEW_ROOT, base_mounts.NEW_ROOT, "", sys.MS_BIND)
            self._open_top()
            self._layers.append(os.dup(self._top))
            self._rebuild_by_entry("/")

    def _open_top(self) -> None:
        self._top = os.open(base_mounts.NEW_ROOT, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def _wanted_places(self) -> list[tuple[str, bool]]:
        """The mount points and the working folder, and whether each is a folder."""
        wanted = [(e.place, e.source < 0 or e.is_directory) for e in self._binds]
        return [*wanted, (self._work, True)] if self._work else wanted

    def _layer(self, path: str, place: str) -> bool:
        """Mount an overlay of the host's directory ``path`` on ``place``; False if impossible."""
        number = next(self._numbers)
        upper, work = f"u{number}", f"w{number}"
        os.mkdir(upper)
        os.mkdir(work)
        _copy_attributes(path, upper)
        for target, directory in self._wanted_places():
            if (
                _is_beneath(target, path)
                and not os.path.lexists(target)
                and not kernel_filesystems.is_kernel_path(os.fsencode(target))
            ):
                _make_mount_point(path, target, upper, directory)
        options = f"lowerdir={_escape(path)},upperdir={upper},workdir={work}"
        if self._rootless:
            options += ",userxattr"
        try:
            sys.mount("overlay", place, "overlay", 0, options)
        except OSError:
            return False
        if path == "/":
            self._open_top()
        self._layers.append(safe_paths.find(self._top, path, safe_paths.AS_ROOT))
        for child in sorted(self._mounts):
            if _is_beneath(child, path) and self._outermost(child, path):
                self._expose(child)
        return True

    def _outermost(self, mount: str, within: str) -> bool:
        above = os.path.dirname(mount)
        while above != within:
            if above in self._mounts:
                return False
            above = os.path.dirname(above)
        return True

    def _rebuild_by_entry(self, path: str) -> None:
        """Rebuild the directory ``path`` entry by entry, where it cannot be one overlay."""
        place = base_mounts.NEW_ROOT + path if path != "/" else base_mounts.NEW_ROOT
        with os.scandir(path) as entries:
            for entry in entries:
                target = os.path.join(place, entry.name)
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), target)
                elif kernel_filesystems.is_kernel_path(os.fsencode(entry.path)):
                    os.mkdir(target)
                else:
                    self._expose(entry.path)

    def _expose(self, path: str) -> None:
        """Make the host's file or directory ``path`` visible in the new root."""
        try:
            directory = stat.S_ISDIR(os.stat(path).st_mode)
            place = self._make(path, directory=directory)
            if directory and path not in self._hidden:
                if self._layer(path, safe_paths.proc_path(place)):
                    return
                if any(_is_beneath(mount, path) for mount in self._mounts):
                    self._rebuild_by_entry(path)
                    return
            if path in self._hidden:
                sys.mount(path, safe_paths.proc_path(place), "", sys.MS_BIND)  # read-only already
            else:
                self._attach(path, place, directory=directory, read_only=True)
        except OSError:
            pass  # a host mount that we may not see stays an empty place

    def _make(self, path: str, *, directory: bool) -> int:
        """Open ``path`` in the new root, and make it if it is missing."""
        return safe_paths.make(self._top, path, safe_paths.AS_ROOT, directory=directory)

    def _open_place(self, path: str, *, directory: bool) -> int:
        """As ``_make``, for a path that a manifest names and that may lead into a host folder.

        There a tenant makes only what the tenant could have made (decision 89).
        """
        account = self._root.account
        if account is None:
            return self._make(path, directory=directory)
        try:
            return safe_paths.find(self._top, path, safe_paths.AS_ROOT)
        except FileNotFoundError:
            ours = {os.fstat(fd).st_dev for fd in self._layers} | {
                os.stat(f"{base_mounts.NEW_ROOT}/dev").st_dev
            }
            maker = TenantPathMaker(directory, account, ours)
            return safe_paths.walk(self._top, path, safe_paths.AS_ROOT, maker)

    def _make_work(self, path: str) -> None:
        try:
            os.close(self._open_place(path, directory=True))
        except OSError as error:
            text = f"cannot make working directory {path}: {safe_paths.explain_refusal(error)}"
            raise RootError(text) from None

    def _empty_closed_folders(self) -> None:
        """Cover folders that this user may not enter but in which something is mounted.

        So a volume at /root/.ssh works for everybody, as it does in a container image.
        """
        emptied: set[str] = set()
        for each in self._binds:
            parts = each.place.split("/")[1:-1]
            for end in range(1, len(parts) + 1):
                parent = "/" + "/".join(parts[:end])
                if os.path.isdir(parent) and not os.access(parent, os.R_OK | os.X_OK):
                    if parent not in emptied:
                        empty = f"c{next(self._numbers)}"
                        os.mkdir(empty)
                        fd = safe_paths.find(self._top, parent, safe_paths.AS_ROOT)
                        sys.mount(empty, safe_paths.proc_path(fd), "", sys.MS_BIND)
                        emptied.add(parent)
                    break

    # -- volumes --------------------------------------------------------------------------------

    def _bind(self, mount: VolumeMount) -> None:
        bind, directory = mount.bind, mount.is_directory
        try:
            place = self._open_place(bind.target, directory=directory)
            source = safe_paths.proc_path(mount.source)
            self._attach(source, place, directory=directory, read_only=bind.read_only)
        except OSError as error:
            raise RootError(
                f"cannot mount at {bind.target}: {safe_paths.explain_refusal(error)}"
            ) from None
        os.close(place)
        os.close(mount.source)

    def _attach(self, source: str, place: int, *, directory: bool, read_only: bool) -> None:
        """Mount ``source`` on the descriptor ``place``.

        A read-only mount is made where nobody can reach it, and then moved: a path to the finished
        mount might lead elsewhere by then.
        """
        flags = sys.MS_BIND | sys.MS_REC
        if not read_only:
            sys.mount(source, safe_paths.proc_path(place), "", flags)
            return
        aside = base_mounts.SCRATCH_FOLDER if directory else base_mounts.SCRATCH_FILE
        sys.mount(source, aside, "", flags)
        kernel_filesystems.set_read_only(aside)
        sys.mount(aside, safe_paths.proc_path(place), "", sys.MS_MOVE)


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _copy_attributes(source: str, target: str) -> None:
    status = os.stat(source)
    with contextlib.suppress(OSError):
        os.chown(target, status.st_uid, status.st_gid)
    os.chmod(target, stat.S_IMODE(status.st_mode))


def _make_mount_point(lower: str, target: str, upper: str, directory: bool) -> None:
    """Make ``target`` (beneath ``lower``) in ``upper``; folders on the way keep the host's mode."""
    here, there = lower.rstrip("/"), upper
    *parents, last = os.path.relpath(target, lower).split("/")
    for name in parents:
        here, there = f"{here}/{name}", f"{there}/{name}"
        if not os.path.isdir(there):
            os.mkdir(there)
            if os.path.isdir(here):
                _copy_attributes(here, there)
    final = f"{there}/{last}"
    if directory:
        os.makedirs(final, exist_ok=True)
    elif not os.path.lexists(final):
        os.close(os.open(final, os.O_CREAT | os.O_WRONLY, 0o644))
