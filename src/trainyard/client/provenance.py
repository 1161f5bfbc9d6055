"""How jobs came to be: written down as they are submitted, so that they can be had again.

The small goes into annotations of the jobs, all of it into a record on this machine (decision 150).
Nothing here waits for git, runs the interpreter or asks a package manager: a submission takes some
milliseconds more. What looks like a secret is written nowhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainyard.client import git_repository, job_dependents, submission_records
from trainyard.client.cluster_target import ClusterTarget, CommandError
from trainyard.client.code_snapshot import Copied, copy_code
from trainyard.client.installed_packages import Environment, environment_of
from trainyard.client.job_view import Job
from trainyard.client.object_views import Object
from trainyard.kinds.kind_registry import JOB_KINDS
from trainyard.kinds.shared import labels
from trainyard.machine import interpreters
from trainyard.machine.secret_redaction import (
    REDACTED,
    redact_value,
    redact_words,
)
from trainyard.machine.state_folder import StateError, find_cluster, records_folder
from trainyard.schema.dataclass import dataclass
from trainyard.schema.times import render

_MOST_COMMAND = 4096
_MOST_OBJECTS = 1 << 20


def _ignore(_: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class SubmissionContext:
    """What a command knows of a submission of its own."""

    how: str = "submit"
    """``run`` where it is followed to its end, ``call`` of a function, else ``submit``."""
    options: dict[str, Any] = field(default_factory=dict)
    """The options of an embedded cluster that was started for it."""
    images: Sequence[tuple[str, str]] = ()
    """Pairs of image pattern and environment."""
    cluster_python: str = ""
    """What the cluster runs for who has no environment."""
    rerun_of: submission_records.Record | None = None
    """The record of which this is a repetition; with the copy of code that it has, if any."""
    snapshots: bool = False
    """Whether the code is to be copied."""
    note: Callable[[str], None] = _ignore
    """Is told what the user should know of the copy."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A submission that is being recorded."""

    folder: Path | None
    """Of the record; None where none could be made."""

    def discard(self) -> None:
        """Of a submission that came to nothing."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def name(self, jobs: Sequence[Job]) -> None:
        """Take in what jobs are called whose names the server made up; in the order recorded."""
        found = submission_records.read(self.folder) if self.folder is not None else None
        if found is None:
            return
        kept = [obj for obj in found.objects if obj["kind"] in JOB_KINDS]
        if all(obj["metadata"].get("name") for obj in kept):
            return
        for obj, job in zip(kept, jobs, strict=True):
            obj["metadata"] |= {"name": job.name}
        with suppress(OSError):
            submission_records.write(found.folder, found.content)


def state_of(target: ClusterTarget) -> Path | None:
    """The folder on this machine that has the records of a target's jobs."""
    if target.folder is not None and not target.is_guest:
        return target.folder
    with suppress(StateError):
        return records_folder()
    return None


def keep_end(target: ClusterTarget, job: Job) -> None:
    """Write down how a job stands that is about to go, if its submission was recorded here."""
    if (state := state_of(target)) is not None:
        submission_records.keep_end(state, job)


def record(
    target: ClusterTarget, bodies: Sequence[Object], context: SubmissionContext
) -> Recording:
    """Record objects that are about to be created, and annotate the jobs among them.

    Raises CommandError where the code was to be copied and cannot be.
    """
    jobs = [body for body in bodies if body["kind"] in JOB_KINDS]
    if not jobs:
        return Recording(None)
    place = source = Path(_annotations_of(jobs[0])[labels.WORKING_DIR])
    folder = _folder(target, _name(jobs[0]))
    recording = Recording(folder)
    try:
        copied = _snapshot(target, jobs, folder, context) if context.snapshots else None
        before = (
            context.rerun_of if copied and context.rerun_of and context.rerun_of.files else None
        )
        commit = before.commit if before else git_repository.commit_of(place)
        source = Path(before.content["folder"]) if before else place
        found = _environment(jobs[0], _known(target, context)) if target.socket else None
        if folder is not None:
            content = _record_content(context, source, commit, found, bodies, copied)
            recording = _written(recording, content, found, copied)
            folder = recording.folder
        if folder is not None:
            if before is not None:
                before.hand_changes(folder)
            elif commit is not None:
                git_repository.watch_changes(place, folder)
    except BaseException:
        recording.discard()
        raise
    given = {
        labels.COMMAND: _command(),
        labels.SUBMITTED_FROM: os.getcwd(),
        labels.RECORD: folder.name if folder else "",
        labels.COMMIT: commit.commit if commit else "",
        labels.REMOTE: commit.remote if commit else "",
        labels.INTERPRETER: f"{found.version} {found.python}".strip() if found else "",
        labels.PACKAGES: _digest(found.packages) if found else "",
    }
    if copied is not None:
        given |= {labels.SNAPSHOT_OF: str(source), labels.WORKING_DIR: str(copied.folder)}
        context.note(f"code: a copy of {source} ({copied}), in {copied.folder}")
    for job in jobs:
        # They are told alone; names of files need not be UTF-8.
        known = {n: value.encode(errors="replace").decode() for n, value in given.items() if value}
        job["metadata"]["annotations"] = {**_annotations_of(job), **known}
    return recording


def _written(
    recording: Recording,
    content: dict[str, Any],
    found: Environment | None,
    copied: Copied | None,
) -> Recording:
    """The recording with its record; jobs go without one where there is no room for it."""
    assert recording.folder is not None
    packages, files = found.packages if found else None, copied.files if copied else ()
    try:
        submission_records.write(recording.folder, content, packages, files)
    except OSError as error:
        if copied is None:
            recording.discard()
            return Recording(None)
        text = f"--snapshot: the copy cannot be kept in {recording.folder}: {error.strerror}"
        raise CommandError(text) from error
    return recording


def _name(obj: Object) -> str:
    """Of an object, or what its name will begin with."""
    metadata = obj["metadata"]
    return str(metadata.get("name") or metadata.get("generateName") or "")


def _annotations_of(job: Object) -> dict[str, str]:
    return job["metadata"].get("annotations") or {}


def _folder(target: ClusterTarget, name: str) -> Path | None:
    state = state_of(target)
    with suppress(OSError):
        return submission_records.make(state, name) if state else None
    return None


def _snapshot(
    target: ClusterTarget, jobs: Sequence[Object], folder: Path | None, context: SubmissionContext
) -> Copied:
    if not target.socket:
        raise CommandError("--snapshot copies code on this machine; on a cluster, build an image")
    places = {_annotations_of(job)[labels.WORKING_DIR] for job in jobs}
    if len(places) > 1:
        raise CommandError(f"--snapshot copies one folder, not {', '.join(sorted(places))}")
    state = state_of(target)
    if folder is None or state is None or target.is_guest:
        raise CommandError("--snapshot: the copy cannot be kept: the state folder is not yours")
    if context.rerun_of and context.rerun_of.files:
        code, files = context.rerun_of.code, context.rerun_of.files
        return copy_code(code, folder / submission_records.CODE, files=files)
    return copy_code(Path(*places), folder / submission_records.CODE, without=state)


def _known(target: ClusterTarget, context: SubmissionContext) -> SubmissionContext:
    """With what the cluster that is up says of itself."""
    if context.cluster_python or target.folder is None:
        return context
    cluster = find_cluster(target.folder)
    return replace(context, cluster_python=cluster.python) if cluster else context


def _environment(job: Object, context: SubmissionContext) -> Environment | None:
    python = _annotations_of(job).get(labels.PYTHON) or context.cluster_python
    lines = _annotations_of(job).get(labels.IMAGES, "").splitlines()
    images = [(pattern, folder) for pattern, _, folder in (line.partition("=") for line in lines)]
    found = interpreters.environment_of_image(
        os.environ, _image(job), [*images, *context.images], python=python
    )
    interpreter = interpreters.find_interpreter(found)
    return environment_of(interpreter) if interpreter else None


def _image(job: Object) -> str:
    """Of the first container of the first template, whatever the kind."""
    found = (c.get("image") for c in _containers(job.get("spec")) if isinstance(c, dict))
    return str(next(found, None) or "")


def _containers(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for each in value:
            yield from _containers(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from each if key == "containers" and isinstance(each, list) else _containers(each)


def _command() -> str:
    program = os.path.basename(sys.argv[0] or "python")
    program = "trainyard" if program in ("main.py", "__main__.py") else program
    line = shlex.join([program, *redact_words(sys.argv[1:])])
    return line if len(line) <= _MOST_COMMAND else f"{line[: _MOST_COMMAND - 1]}…"


def _digest(packages: Sequence[str]) -> str:
    return f"{len(packages)} sha256:{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:16]}"


def _record_content(
    context: SubmissionContext,
    place: Path,
    commit: git_repository.Commit | None,
    found: Environment | None,
    bodies: Sequence[Object],
    copied: Copied | None,
) -> dict[str, Any]:
    left_out: list[str] = []
    objects = [_kept(b, f"{b['kind']} {_name(b)}", left_out) for b in bodies]
    are_kept = len(json.dumps(objects)) <= _MOST_OBJECTS
    return {
        "created": render(datetime.now(UTC)),
        "how": context.how,
        "command": _command(),
        "submittedFrom": os.getcwd(),
        "folder": str(place),
        "snapshot": str(copied) if copied else "",
        "git": asdict(commit) if commit else None,
        "python": found.python if found else "",
        "version": found.version if found else "",
        "options": context.options,
        "rerunOf": context.rerun_of.name if context.rerun_of else "",
        "objects": [each for each in objects if each is not None] if are_kept else None,
        "leftOut": left_out,
    }


def _is_writable(name: str, value: str) -> bool:
    return redact_value(name, value) == value


def _kept(value: Any, path: str, left_out: list[str]) -> Any:
    """An object, or a part of one, without Secrets and what looks like one; None for a Secret, but
    for one that takes its values from the shell, of which these are not kept.

    Values are left out of variables of such a name, and of words of a command beside one.
    """
    if isinstance(value, dict):
        if value.get("kind") == "Secret" and "metadata" in value:
            if job_dependents.variables_of(value):
                return {key: value[key] for key in ("apiVersion", "kind", "metadata")}
            left_out.append(path)
            return None
        text = value.get("value")
        if isinstance(text, str) and not _is_writable(str(value.get("name")), text):
            left_out.append(f"{path}.value")
            return {**value, "value": REDACTED}
        return {key: _kept(each, f"{path}.{key}", left_out) for key, each in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(each, str) for each in value):
            shown = redact_words(value)
            both = enumerate(zip(shown, value, strict=True))
            left_out += [f"{path}[{n}]" for n, (new, old) in both if new != old]
            return shown
        return [_kept(each, f"{path}[{n}]", left_out) for n, each in enumerate(value)]
    return value
