"""The state folder, where a cluster keeps everything, and by which processes find a running one.

Imports nothing slow: every command looks here first.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import stat
import sys
from contextlib import suppress
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from trainyard.machine import folder_lock
from trainyard.machine.ownership import check_folder, check_server, socket_address
from trainyard.machine.users import user_with_uid
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError

FAILED = " failed: "
"""Stands in the log of a cluster before the reason why it ended."""
FOLDER_BUSY = "another one is just starting or ending in this folder"
_TAIL_BYTES = 4096
_MIN_FREE_BYTES = 64 << 10
_CONNECT_SECONDS = 2.0


_RECORD_FIELDS: dict[str, tuple[type, ...]] = {
    "pid": (int,),
    "socket": (str,),
    "port": (int,),
    "started": (float, int),
    "isolation": (str,),
}
"""The fields of a record, and their types."""
_TYPE_NAMES = {int: "a whole number", float: "a number", str: "a text"}


_FOLDERS = ("certificates", "memory", "pods", "root", "runs", "submissions", "volumes")
_FILES = (
    *("api.sock", "channel.json", "cluster.json", "cluster.log", "kubeconfig", "lock", "shim.log"),
    *("shim.sock", "state.db", "state.db-wal", "state.db.backup", "token", "tokens.json"),
)
"""What clusters make in their state folder, sockets among the files."""

FILE_FORMAT = 1
"""Of the JSON files that outlive a cluster, in their field `format`; 1 where there is none. Within
a format, fields are only added, and those that are not known are ignored."""


def has_newer_format(content: object) -> bool:
    """Whether a newer trainyard wrote a file with this content, in a way of its own."""
    found = content.get("format") if isinstance(content, dict) else None
    return isinstance(found, int) and found > FILE_FORMAT


class StateError(TrainyardError):
    """The state folder cannot be used."""


def require_linux() -> None:
    """Raise StateError where no embedded cluster can be: its pods are made by Linux's own calls."""
    if sys.platform != "linux":
        system = {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
        here = "work in WSL 2, or " if system == "Windows" else ""
        raise StateError(
            f"the embedded cluster needs Linux, and this is {system}: {here}name a cluster with "
            "--kubeconfig FILE or --context NAME"
        )


def state_folder() -> Path:
    """`$TRAINYARD_STATE_DIR`, else `$XDG_STATE_HOME/trainyard`, else `~/.local/state/trainyard`."""
    chosen = os.environ.get("TRAINYARD_STATE_DIR")
    folder = Path(chosen).absolute() if chosen else own_folder()
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        raise StateError(
            f"the state folder {error.object!r} has a name that is not UTF-8 text: set "
            "TRAINYARD_STATE_DIR to another one"
        ) from error
    return folder


def own_folder() -> Path:
    """`$XDG_STATE_HOME/trainyard`, else `~/.local/state/trainyard`: this user's own files, where
    the cluster is somebody else's."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return _expanded(base).absolute() / "trainyard"


def _expanded(base: str) -> Path:
    try:
        return Path(base).expanduser()
    except RuntimeError as error:
        raise StateError(
            f"there is no home folder of user {os.geteuid()} to keep a cluster in: set "
            "TRAINYARD_STATE_DIR to a folder of your own"
        ) from error


def records_folder() -> Path:
    """The folder with what this user has submitted: the state folder, or their own where that is
    somebody else's."""
    folder = state_folder()
    is_closed = os.path.lexists(folder) and not os.access(folder, os.W_OK)
    return own_folder() if is_closed else folder


class _File:
    """A property: the path of a file in the folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, paths: Paths, _: object) -> Path:
        return paths.folder / self._name


@dataclass(frozen=True, slots=True)
class Paths:
    """The files of one cluster."""

    folder: Path

    api_socket = _File("api.sock")
    """The API server's Unix socket."""
    database = _File("state.db")
    """The durable store."""
    lock = _File("lock")
    """Locked by the cluster that is up, starts or ends."""
    record = _File("cluster.json")
    """Who runs the cluster; present while it is up."""
    log = _File("cluster.log")
    """The log of the background cluster."""
    kubeconfig = _File("kubeconfig")
    """For kubectl."""
    token = _File("token")
    """The bearer token in the kubeconfig."""
    tokens = _File("tokens.json")
    """The key of the tokens of others who may use the cluster."""
    channel = _File("channel.json")
    """What the pods' channel is trusted by; of this user's clusters together."""
    certificates = _File("certificates")
    """The private authority and the server's certificate."""
    pods = _File("pods")
    """Logs and volumes of the pods."""
    submissions = _File("submissions")
    """What was recorded of submissions (decision 150)."""
    runs = _File("runs")
    """Folders of the clusters that `trainyard run` starts for itself (decision 67)."""

    def check_kinds(self) -> None:
        """Raise StateError where a folder has the name of a file, or a file that of a folder."""
        for names, has_wrong_kind, found, wanted in (
            (_FOLDERS, os.path.isfile, "a file", "folder"),
            (_FILES, os.path.isdir, "a folder", "file"),
        ):
            for path in (self.folder / name for name in names):
                if has_wrong_kind(path):
                    raise StateError(
                        f"{path} is {found}, and a cluster has a {wanted} of that name: "
                        "move it away, or set TRAINYARD_STATE_DIR to another folder"
                    )

    def check_formats(self) -> None:
        """Raise StateError where a newer trainyard wrote keys here, which stay as they are."""
        for path in (self.tokens, self.channel):
            try:
                is_newer = has_newer_format(json.loads(path.read_bytes()))
            except (OSError, ValueError, RecursionError):  # told, or made anew, where it is used
                continue
            if is_newer:
                raise StateError(
                    f"cannot read {path}: a newer trainyard wrote it (this one knows format "
                    f"{FILE_FORMAT}): nothing was changed; upgrade trainyard or use another state "
                    "folder"
                )

    def prepare(self) -> None:
        """Make the folder, and make sure that it is ours, sound, and can be written.

        Raises StateError or NotOurs.
        """
        probe = self.folder / f".probe-{os.getpid()}"
        try:
            _make_private(self.folder)
            check_folder(self.folder, owner=True)
            self.check_kinds()
            probe.write_bytes(b"\0" * 4096)
            probe.unlink()
        except OSError as error:
            with suppress(OSError):
                probe.unlink()
            fix = "make it writable, or set TRAINYARD_STATE_DIR to another folder"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                fix = "make room there; what is stored stays, and replicas that run go on"
            raise StateError(
                f"cannot write to the state folder {self.folder}: {error.strerror}; {fix}"
            ) from error

    def take_lock(self) -> None:
        """Keep clusters of other processes out until this one ends; raises StateError."""
        import fcntl  # Unix alone has it

        lock = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise StateError(FOLDER_BUSY) from None

    def share(self) -> None:
        """Let others come as far as the socket and the record, and see nothing else.

        Raises StateError where they could not reach the folder.
        """
        for path in self.folder.resolve().parents:
            if not path.stat().st_mode & stat.S_IXOTH:
                raise StateError(
                    f"others cannot share the cluster in {self.folder}: they may not enter {path}; "
                    "set TRAINYARD_STATE_DIR to a folder such as /var/lib/trainyard, for them too"
                )
        for name in _FOLDERS:
            (self.folder / name).mkdir(exist_ok=True, mode=0o700)
        for entry in self.folder.iterdir():
            if entry not in (self.record, self.api_socket) and not entry.is_symlink():
                entry.chmod(entry.stat().st_mode & 0o700)
        self.folder.chmod(0o711)


def _make_private(folder: Path) -> None:
    """Make a folder and those it lies in, each for this user only; present ones stay as they are.

    `Path.mkdir(parents=True)` would leave the ones on the way open to others.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True, mode=0o700)
    folder.mkdir(exist_ok=True)  # raises FileExistsError if it is a file


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """The record of a cluster that is up; `port` 0: it has no TLS listener."""

    pid: int
    socket: str
    port: int
    started: float
    """Seconds since the epoch."""
    isolation: str
    python: str = ""
    """The interpreter of pods for which neither image nor user has an environment."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The options with which it was started (`ClusterSettings`)."""
    version: str = ""
    """Which trainyard it is (`installed_version`); "": one that did not record it."""
    runtime: str = ""
    """Which trainyard its pod runtime is of, that of a cluster before it perhaps."""
    formats: dict[str, int] = field(default_factory=dict)
    """What another version has to know to take it over: `store`, the format of the database, and
    `wire`, the version of its pod runtime's protocol. Empty: it did not record them."""

    def write(self, paths: Paths) -> None:
        """Write the record, atomically, for other processes to find."""
        draft = paths.record.with_suffix(".new")
        draft.write_text(json.dumps(asdict(self)))
        draft.chmod(0o644)
        draft.replace(paths.record)

    @property
    def is_ours(self) -> bool:
        """Whether this user runs it; else it is root's, for several users."""
        return os.stat(self.socket).st_uid == os.geteuid()

    @property
    def namespace(self) -> str:
        """The namespace of this user's jobs that name none."""
        return "default" if self.is_ours else user_with_uid(os.geteuid()).namespace


def record_problem(paths: Paths) -> str:
    """Return why the record of a folder cannot be read; "" if it can, or there is none."""
    try:
        _read_record(paths)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, RecursionError) as error:
        return str(error)
    return ""


def _read_record(paths: Paths) -> RunningCluster:
    """Raises OSError where there is none, ValueError for one that no cluster has written."""
    record = json.loads(paths.record.read_bytes())
    if not isinstance(record, dict):
        raise ValueError("it is not a JSON object")
    for name, kinds in _RECORD_FIELDS.items():
        if name not in record:
            raise ValueError(f"{name} is missing")
        if not isinstance(record[name], kinds) or isinstance(record[name], bool):
            raise ValueError(f"{name} is {record[name]!r:.40}, not {_TYPE_NAMES[kinds[0]]}")
    if record["pid"] < 1:
        raise ValueError(f"pid is {record['pid']}")
    given = {name: record[name] for name in _RECORD_FIELDS}
    for name in ("python", "version", "runtime"):  # older clusters did not record them
        given[name] = value if isinstance(value := record.get(name), str) else ""
    settings, formats = record.get("settings"), record.get("formats")
    return RunningCluster(
        **given,
        settings=settings if isinstance(settings, dict) else {},
        formats=formats if isinstance(formats, dict) else {},
    )


def find_cluster(folder: Path | None = None) -> RunningCluster | None:
    """The cluster that is up in a state folder (default: the user's), if it answers.

    Raises NotOurs where the folder, or the server, is neither this user's nor root's.
    """
    if sys.platform != "linux":
        return None
    paths = Paths(folder or state_folder())
    check_folder(paths.folder)
    try:
        found = _read_record(paths)
    except (OSError, ValueError, RecursionError):  # `trainyard doctor` reports why
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_CONNECT_SECONDS)
        try:
            with socket_address(found.socket) as short:
                connection.connect(short)
        except OSError:
            return None
        check_server(connection, found.socket)
    return found


def why_cluster_is_down(paths: Paths) -> str:
    """Return how the last cluster of a folder ended; "" if in order."""
    from trainyard.podruntime.wire import SOCKET_NAME

    if not (paths.folder / SOCKET_NAME).exists() and (pid := folder_lock.holder(paths.folder)) > 0:
        return (
            f"process {pid} still runs pods of one whose files were removed or replaced; "
            "`trainyard down` ends it and them"
        )
    if problem := record_problem(paths):
        return f"{paths.record} cannot be read ({problem}) and is ignored"
    if (found := _recorded_process(paths)) is not None:
        return (
            f"process {found.pid} still runs it, but not here: it listens at {found.socket}; if "
            "this folder was moved, move it back, or end it and its replicas with: trainyard down"
        )
    if paths.record.exists():
        return (
            "it was killed; `trainyard up` takes over the replicas that still run, "
            "`trainyard down` ends them"
        )
    try:
        with open(paths.log, "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    last = lines[-1] if lines else ""
    return f"the last one failed: {last.partition(FAILED)[2]}" if FAILED in last else ""


def _recorded_process(paths: Paths) -> RunningCluster | None:
    """The record of a folder whose process has the lock of the folder, so that it lives."""
    try:
        found, inode = _read_record(paths), os.stat(paths.lock).st_ino
        locks = Path("/proc/locks").read_text()
    except (OSError, ValueError):
        return None
    return found if re.search(rf" {found.pid} \w+:\w+:{inode} ", locks) else None


def is_disk_full(folder: Path) -> bool:
    """Whether the disk of a folder has less than 64 KiB left."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _MIN_FREE_BYTES


def node_name() -> str:
    """This machine's host name as a DNS label."""
    name = re.sub(r"[^a-z0-9-]+", "-", socket.gethostname().lower().split(".")[0]).strip("-")
    return name[:63] or "localhost"
