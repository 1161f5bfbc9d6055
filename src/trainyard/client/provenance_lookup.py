"""How a job came to be, as it was recorded: of a job that is there, and of one that is gone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainyard.client import submission_records
from trainyard.client.cluster_target import ClusterTarget, CommandError
from trainyard.client.git_repository import Changes
from trainyard.client.job_lookup import JobNotFound, find, kind_named
from trainyard.client.job_view import Job
from trainyard.client.provenance import state_of
from trainyard.client.submission_records import Record
from trainyard.kinds.kind_registry import JOB_KINDS
from trainyard.kinds.shared import labels
from trainyard.schema.dataclass import dataclass
from trainyard.schema.times import parse

_EARLIER = re.compile(r"(?P<name>.+)~(?P<back>\d+)\Z")


@dataclass(frozen=True, slots=True)
class Result:
    """How a job stands, or ended, as far as that is known."""

    phase: str | None = None
    """None where nobody saw the end."""
    restarts: int | None = None
    seconds: float | None = None
    """From its start to its end; None where it has not ended."""
    failure: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Past:
    """A job that is there or is gone, with what was recorded of it."""

    job: Job
    """As it stands, or as it was submitted."""
    record: Record | None
    is_there: bool

    def __str__(self) -> str:
        return str(self.job) if self.is_there else f"{self.job} (of {self.record_name})"

    def __repr__(self) -> str:
        return f"<{self}: {self.result.phase or 'end not seen'}>"

    @property
    def record_name(self) -> str:
        """Of its record; empty without one."""
        return self.record.name if self.record else self.annotation(labels.RECORD)

    def annotation(self, name: str) -> str:
        """One of its annotations, or what the record has in its place; empty where neither is."""
        found = str((self.job.metadata.get("annotations") or {}).get(name, ""))
        return found or self._from_record().get(name, "")

    def _from_record(self) -> dict[str, str]:
        if self.record is None:
            return {}
        content = self.record.content
        commit = self.record.commit
        found = {
            labels.COMMAND: content.get("command"),
            labels.SUBMITTED_FROM: content.get("submittedFrom"),
            labels.COMMIT: commit.commit if commit else "",
            labels.REMOTE: commit.remote if commit else "",
            labels.INTERPRETER: f"{content.get('version', '')} {content.get('python', '')}".strip(),
            labels.SNAPSHOT_OF: content.get("folder") if content.get("snapshot") else "",
        }
        return {name: str(value or "") for name, value in found.items()}

    @property
    def has_copy(self) -> bool:
        """Whether the code that it ran is still there as a copy."""
        return self.record is not None and bool(self.record.files) and self.record.code.is_dir()

    @property
    def changes(self) -> Changes | None:
        """What was not committed; None where that is not known."""
        return self.record.changes if self.record else None

    @property
    def diff(self) -> str | None:
        """The same as text; None where there is none, or none was kept."""
        changes = self.changes
        return changes.diff if changes else None

    @property
    def packages(self) -> tuple[str, ...] | None:
        """``name==version`` of the interpreter's packages; None where they are not known."""
        return self.record.packages if self.record else None

    @property
    def result(self) -> Result:
        """How it stands, or ended; of a job that is gone what `run` or `delete` saw of it."""
        if self.is_there:
            job, status = self.job, self.job.status
            return Result(job.phase, job.restarts, _seconds(status), job.failure)
        status = self.record.ended(self.job.namespace, self.job.name) if self.record else {}
        failure = str(status.get("failure") or "")
        return Result(status.get("phase"), status.get("restarts"), _seconds(status), failure)

    @property
    def created(self) -> str:
        """When it was submitted, as Kubernetes writes times; empty without a record."""
        return self.record.created if self.record else ""

    @property
    def command(self) -> str:
        """The command line by which it was submitted."""
        return self.annotation(labels.COMMAND)

    @property
    def commit(self) -> str:
        """The git commit of its code; empty where that is in no repository."""
        return self.annotation(labels.COMMIT)

    @property
    def interpreter(self) -> str:
        """Version and path of the Python that it ran."""
        return self.annotation(labels.INTERPRETER)

    @property
    def origin(self) -> list[tuple[str, str]]:
        """How it came to be, in a few lines with their labels."""
        lines = [("Command", self.command), ("Code", code_of(self)), ("Python", python_of(self))]
        return [(label, text) for label, text in lines if text]


def _seconds(status: Mapping[str, Any]) -> float | None:
    start, end = parse(status.get("startTime")), parse(status.get("completionTime"))
    return (end - start).total_seconds() if start and end else None


async def past_of(target: ClusterTarget | None, text: str, state: Path) -> Past:
    """The job that `text` means: one that is there, else the last one of that name which was
    recorded; ``name~1`` the one before that, and so on; or the name of a record.

    Raises CommandError.
    """
    back = _EARLIER.match(text)
    missing: JobNotFound | None = None
    if target is not None:
        try:
            job = await find(target, back["name"] if back else text)
        except JobNotFound as error:
            missing = error
        else:
            past = Past(job, record_of(target, job), is_there=True)
            if not back or not int(back["back"]):
                return past
    namespace = target.namespace if target else ""
    found = list(pasts(state, back["name"] if back else text, namespace))
    number = int(back["back"]) if back else 0
    if number < len(found):
        chosen = found[number]
        is_same = missing is None and target is not None and number == 0
        return Past(job, chosen.record, is_there=True) if is_same else chosen
    if not found and missing is not None:
        raise missing
    many = f"only {len(found)} of that name are recorded" if found else "none is recorded here"
    raise CommandError(f"there is no job {text}: {many}; `trainyard history` lists them")


def pasts(state: Path, text: str = "", namespace: str = "") -> Iterator[Past]:
    """The jobs that were recorded on this machine, newest first, of a name, or all of them."""
    prefix, slash, name = text.rpartition("/")
    kinds = [kind_named(prefix).kind] if slash else list(JOB_KINDS)
    for record in submission_records.records(state):
        for obj in record.objects:
            if obj["kind"] not in kinds:
                continue
            job = Job(JOB_KINDS[obj["kind"]], obj)
            is_meant = not name or name == job.name or name == record.name
            if is_meant and (not namespace or namespace == job.namespace):
                yield Past(job, record, is_there=False)


def record_of(target: ClusterTarget, job: Job) -> Record | None:
    """The record of a job that is there, if it was made on this machine."""
    state = state_of(target)
    return submission_records.record_of(state, job) if state else None


def copy_of(job: Job) -> str:
    """Of what its working folder is a copy, and where that is; empty where it is none."""
    annotations = job.metadata.get("annotations") or {}
    source, place = annotations.get(labels.SNAPSHOT_OF), annotations.get(labels.WORKING_DIR)
    return f"a copy of {source}, in {place}" if source else ""


def code_of(past: Past) -> str:
    """``1a2b3c4d (main, 2 files changed) of https://…``; empty where nothing is known."""
    commit = past.commit
    folder = past.annotation(labels.SNAPSHOT_OF)
    copy = f"a copy of {folder}, made when it was submitted" if folder else ""
    if not commit:
        return copy
    known = past.record.commit if past.record else None
    notes = [*([known.branch] if known and known.branch else []), dirt(past.changes)]
    remote = past.annotation(labels.REMOTE)
    text = f"{commit[:12]} ({', '.join(notes)})" + (f" of {remote}" if remote else "")
    return f"{text}; {copy}" if copy else text


def dirt(changes: Changes | None) -> str:
    """What was not committed, in a few words."""
    if changes is None:
        return "not known whether it was changed"
    parts = [(len(changes.changed), "changed"), (len(changes.untracked), "untracked")]
    counts = [f"{n} file{'s' if n != 1 else ''} {word}" for n, word in parts if n]
    return ", ".join(counts) or "clean"


def python_of(past: Past) -> str:
    """Version and path of the interpreter, with the number of its packages."""
    python, packages = past.interpreter, past.annotation(labels.PACKAGES)
    count = packages.partition(" ")[0] or (str(len(past.packages)) if past.packages else "")
    return f"{python}, {count} packages" if python and count else python
