"""Records of submissions: what is kept, on this machine, of how jobs came to be (decision 150).

A record is a folder of the state folder, and holds the jobs as they were submitted (`record.json`),
the packages (`packages.txt`), what git says (`repository`), how each job ended (`ended/`), and with
``--snapshot`` the code. It outlives the jobs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from trainyard.client.git_repository import DIFF, STATUS, Changes, Commit, changes_in
from trainyard.client.job_view import Job
from trainyard.client.object_views import Object
from trainyard.kinds.shared import labels
from trainyard.machine.state_folder import FILE_FORMAT, Paths, has_newer_format
from trainyard.schema.dataclass import dataclass

RECORDS = "submissions"
CODE = "code"
_MOST = 500
_MOST_CODE = 20
_ENDED = "ended"
_FILES = "files"


@dataclass(frozen=True, slots=True)
class Record:
    """One submission, as it was recorded."""

    folder: Path
    content: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def created(self) -> str:
        """When, as Kubernetes writes times."""
        return str(self.content.get("created", ""))

    @property
    def objects(self) -> list[Object]:
        """The manifest, without Secrets and without what looked like one; jobs among it."""
        return list(self.content.get("objects") or ())

    @property
    def packages(self) -> tuple[str, ...] | None:
        """``name==version``; None where they are not known."""
        try:
            return tuple((self.folder / "packages.txt").read_text().split())
        except OSError:
            return None

    @property
    def files(self) -> tuple[str, ...]:
        """The names of what was copied of the code, from its folder."""
        try:
            return tuple(os.fsdecode((self.folder / _FILES).read_bytes()).split("\0"))
        except OSError:
            return ()

    @property
    def code(self) -> Path:
        """The copy of the code, which is there after ``--snapshot``."""
        return self.folder / CODE

    @property
    def commit(self) -> Commit | None:
        """Where the code's repository stood; None where it was in none."""
        git = self.content.get("git")
        if not git:
            return None
        return Commit(**{name: git[name] for name in Commit.__dataclass_fields__ if name in git})

    @property
    def changes(self) -> Changes | None:
        """What was not committed; None where that is not known."""
        return changes_in(self.folder)

    def hand_changes(self, other: Path) -> None:
        """Write the same into another record."""
        for name in (DIFF, STATUS):
            with suppress(OSError):
                shutil.copyfile(self.folder / name, other / name)

    def ended(self, namespace: str, name: str) -> dict[str, Any]:
        """How a job of this submission ended; empty where it was not seen."""
        return _read(self.folder / _ENDED / f"{namespace}_{name}.json")


def make(state: Path, name: str) -> Path:
    """A new folder for a record; raises OSError. `name` is the job's. Names are in the order in
    which they were made, within a second too."""
    now = time.time()
    when = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}.{int(now % 1 * 1e6):06}"
    folder = Paths(state).submissions / f"{when}-{name[:40]}"
    for number in range(1, 1000):
        try:
            folder.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            folder = folder.with_name(f"{folder.name.removesuffix(f'.{number - 1}')}.{number}")
        else:
            return folder
    raise FileExistsError(folder)


def read(folder: Path) -> Record | None:
    """The record in a folder; None if there is none, or a newer trainyard wrote it."""
    content = _read(folder / "record.json")
    return Record(folder, content) if content and not has_newer_format(content) else None


def records(state: Path) -> Iterator[Record]:
    """Those of a state folder and of the clusters that `trainyard run` had, newest first."""
    folders = list(Paths(state).submissions.glob("*"))
    folders += Paths(state).runs.glob(f"*/{RECORDS}/*")
    for folder in sorted(folders, key=lambda path: (path.name, str(path)), reverse=True):
        if (found := read(folder)) is not None:
            yield found


def record_of(state: Path, job: Job) -> Record | None:
    """The record of a job that is still there; None where it was made elsewhere, or is gone."""
    name = (job.metadata.get("annotations") or {}).get(labels.RECORD, "")
    if not re.fullmatch(r"[\w.-]+", name):
        return None
    return read(Paths(state).submissions / name)


def keep_end(state: Path, job: Job) -> None:
    """Write down how a job stands that is about to go, if there is a record of it."""
    record = record_of(state, job)
    if record is None:
        return
    status = job.status
    content = {
        "uid": job.uid,
        "phase": job.phase,
        "restarts": job.restarts,
        "startTime": status.get("startTime"),
        "completionTime": status.get("completionTime"),
        "failure": job.failure,
    }
    with suppress(OSError):
        (record.folder / _ENDED).mkdir(exist_ok=True)
        path = record.folder / _ENDED / f"{job.namespace}_{job.name}.json"
        path.write_text(json.dumps(content))


def is_crowded(state: Path) -> bool:
    """Whether there are more records than are kept."""
    folders = list(Paths(state).submissions.glob("*"))
    return len(folders) > _MOST or sum((f / CODE).exists() for f in folders) > _MOST_CODE


def forget(state: Path, in_use: Collection[str]) -> None:
    """Remove the oldest records beyond the number that is kept; code of jobs in use stays."""
    folders = sorted(Paths(state).submissions.glob("*"), reverse=True)
    left, left_code = _MOST, _MOST_CODE
    for folder in folders:
        left, left_code = left - 1, left_code - (folder / CODE).exists()
        if folder.name not in in_use and (left < 0 or (left_code < 0 and (folder / CODE).exists())):
            shutil.rmtree(folder, ignore_errors=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write(
    folder: Path,
    content: dict[str, Any],
    packages: tuple[str, ...] | None = None,
    files: tuple[str, ...] = (),
) -> None:
    """Write a record; raises OSError. ``files`` are those that were copied of the code."""
    if files:
        (folder / _FILES).write_bytes(os.fsencode("\0".join(files)))
    if packages is not None:
        (folder / "packages.txt").write_text("\n".join(packages) + "\n")
    draft = folder / f".record.{os.getpid()}"
    draft.write_text(json.dumps({"format": FILE_FORMAT, **content}))
    draft.replace(folder / "record.json")
