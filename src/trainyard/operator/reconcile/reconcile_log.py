"""A log, in lines of JSON, of what every reconcile observed, decided and requested.

A reconcile starts with a line that says what was observed and decided; then comes a line for each
request, and one for how the reconcile ended, all with its number. `trainyard operator --record`
also keeps the whole input of `plan()`, so that the decision can be computed again (``python -m
tests.simulation --replay``).

The log contains jobs as they are stored, commands and environment included, but of other objects
only what decisions need. It must never contain the data of a Secret or a ConfigMap: manifests of
created objects are logged as digests.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cache, partial
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import orjson

from trainyard.lifecycle.actions import Action, Create, Delete, Plan
from trainyard.lifecycle.observed import Observed, Pod
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.reconcile.job_records import JobKey, JobRecord
from trainyard.schema.errors import TrainyardError
from trainyard.schema.times import render

if TYPE_CHECKING:
    from pydantic import TypeAdapter


log = logging.getLogger(__name__)

RECORD_BYTES = 32 * 1024 * 1024
"""A record that has grown to this is set aside as FILE.1, in place of the one before."""
REDACTED = "(redacted)"
_SECRET_FIELDS = ("data", "stringData")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

Line = dict[str, Any]
T = TypeVar("T")


class RecordError(TrainyardError):
    """A record cannot be kept where it was asked for."""


class Sink(Protocol):
    """Where lines go."""

    def begin(self, head: bytes, /) -> object:
        """A controller starts; `head` is the line with its settings."""
        ...

    def write(self, line: bytes, /) -> object:
        """Take in one line, which ends with a newline."""
        ...


class ReconcileLog:
    """Writes lines to `sink`; `at` gives the time for each line.

    `replayable`: with the whole input of `plan()`.
    """

    def __init__(self, sink: Sink, at: Callable[[], Any], *, replayable: bool) -> None:
        self._sink = sink
        self._at = at
        self._replayable = replayable
        self._numbers: dict[JobKey, int] = {}
        self._count = 0

    def start(self, settings: OperatorSettings) -> None:
        """A controller starts, with these settings."""
        encoded = _type(OperatorSettings).dump_python(settings, mode="json", exclude_defaults=True)
        self._sink.begin(_encode({"t": self._at(), "settings": encoded}))

    def log_incident(self, what: str, **more: Any) -> None:
        """Log something that no reconcile did, such as a fault of a simulation."""
        self._write({"happened": what, **more})

    def log_decision(
        self, job: JobRecord, observed: Observed, now: datetime, answer: Plan | Exception
    ) -> None:
        """A reconcile starts: log what it observed, and the plan or exception that came of it."""
        self._count += 1
        self._numbers[job.key] = self._count
        line = {
            "pass": self._count,
            "job": str(job.key),
            "seen": _summarize(job, observed),
            "decided": decision(job, answer, digests=self._replayable),
        }
        if self._replayable:
            line["input"] = {
                "kind": job.kind.kind,
                "now": now.isoformat(),
                "job": _redact(_without_last_applied(job.raw)),
                "observed": _type(Observed).dump_python(observed, mode="json"),
            }
        self._write(line)

    def log_request(self, job: JobRecord, what: str, ended: str) -> None:
        """A request of the job's reconcile was answered, or failed."""
        self._write({"pass": self._numbers.get(job.key), "did": what, "ended": ended})

    def log_end(self, key: JobKey, how: str) -> None:
        """The reconcile is over; nothing is logged of one that found no job."""
        number = self._numbers.pop(key, None)
        if number is not None:
            self._write({"pass": number, "ended": how})

    def _write(self, line: Line) -> None:
        self._sink.write(_encode({"t": self._at(), **line}))


class RecordFile:
    """A file of at most `most_bytes`, and its predecessor as FILE.1, readable by the owner only."""

    def __init__(self, path: Path, most_bytes: int = RECORD_BYTES) -> None:
        """Raises `RecordError`; what fails later ends the record, and nothing else."""
        self._path = path
        self._most = most_bytes
        self._head = b""
        try:
            self._file = _open(path)
        except OSError as error:
            raise RecordError(
                f"cannot record in {path}: {error.strerror}; name a file that can be written"
            ) from error

    def begin(self, head: bytes) -> None:
        """See Sink."""
        self._head = head
        self.write(head)

    def write(self, line: bytes) -> None:
        """See Sink."""
        if self._file.closed:
            return
        try:
            if (size := self._file.tell()) and size + len(line) > self._most:
                self._file.close()
                self._path.replace(f"{self._path}.1")
                self._file = _open(self._path)
                self._file.write(self._head)
            self._file.write(line)
        except OSError as error:
            log.warning("nothing is recorded any more: %s", error)
            self._file.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _open(path: Path) -> FileIO:
    return FileIO(path, "ab", opener=partial(os.open, mode=0o600))


# The contents of lines.


def decision(job: JobRecord, answer: Plan | Exception, *, digests: bool = True) -> Line:
    """A plan as JSON values: the status as changes by path, actions and events as texts."""
    if isinstance(answer, Exception):
        return {"raised": f"{type(answer).__name__}: {answer}"}
    line: Line = {}
    if answer.status is not None:
        line["status"] = dict(changes(_plain(job.status or {}), _plain(answer.status)))
    if answer.actions:
        line["actions"] = [_action(action, digests) for action in answer.actions]
    if answer.events:
        line["events"] = [f"{e.type} {e.reason}: {e.message}" for e in answer.events]
    if answer.wake_at is not None:
        line["wake"] = answer.wake_at.isoformat()
    return line


def changes(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Path and new value of every difference between two JSON values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            inner = f"{path}.{name}" if path else str(name)
            if name not in new:
                yield inner, "(absent)"
            elif name not in old:
                yield inner, new[name]
            else:
                yield from changes(old[name], new[name], inner)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from changes(before, after, f"{path}[{index}]")
    elif old != new:
        yield path, new


def _action(action: Action, digests: bool) -> str:
    name = f"{action.resource.plural}/{action.name}"
    if isinstance(action, Create):
        return f"create {name} {_digest(action.manifest())}" if digests else f"create {name}"
    if isinstance(action, Delete):
        grace = "" if action.grace_seconds is None else f" grace {action.grace_seconds}"
        return f"delete {name} {action.uid}{grace}"
    return f"patch {name} {_encode(_redact(action.patch)).decode().strip()}"


def _digest(manifest: Mapping[str, Any]) -> str:
    text = orjson.dumps(_redact(manifest), option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2s(text, digest_size=6).hexdigest()


def _summarize(job: JobRecord, observed: Observed) -> Line:
    seen: Line = {
        "version": job.resource_version,
        "phase": (job.status or {}).get("phase", ""),
        "pods": {pod.name: _pod(pod) for pod in observed.pods},
        "owned": [f"{each.resource.plural}/{each.name}" for each in observed.owned],
        "refused": [f"{r.resource.plural}/{r.name}: {r.message}" for r in observed.refusals],
        "taken": [f"{c.resource.plural}/{c.name} by {c.owner}" for c in observed.conflicts],
        "lost nodes": sorted(observed.lost_nodes),
    }
    return {name: what for name, what in seen.items() if what}


def _pod(pod: Pod) -> str:
    codes = [str(c.exit_code) for c in pod.containers if c.exit_code is not None]
    parts = (
        pod.phase,
        f"attempt {pod.attempt}",
        f"on {pod.node}" if pod.node else "",
        f"exit {' '.join(codes)}" if codes else "",
        pod.reason,
        pod.disruption,
        f"terminating until {render(pod.deleting)}" if pod.deleting else "",
    )
    return ", ".join(part for part in parts if part)


def _without_last_applied(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A job without kubectl's copy of it in an annotation."""
    metadata = dict(raw["metadata"])
    notes = metadata.get("annotations") or {}
    if _LAST_APPLIED in notes:
        metadata["annotations"] = {k: v for k, v in notes.items() if k != _LAST_APPLIED}
    return {**raw, "metadata": metadata}


def _redact(value: Any) -> Any:
    """A copy without the contents of Secrets and ConfigMaps."""
    if isinstance(value, Mapping):
        return {
            name: dict.fromkeys(inner, REDACTED)
            if name in _SECRET_FIELDS and isinstance(inner, Mapping)
            else _redact(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redact(each) for each in value]
    return value


def _encode(line: Any) -> bytes:
    return orjson.dumps(line, default=_as_plain, option=orjson.OPT_APPEND_NEWLINE)


def _as_plain(value: Any) -> Any:
    """Encode what orjson does not know: other mappings and sequences."""
    return dict(value) if isinstance(value, Mapping) else list(value)


def _plain(value: Any) -> Any:
    return orjson.loads(_encode(value))


@cache
def _type(of: type[T]) -> TypeAdapter[T]:
    from pydantic import TypeAdapter

    return TypeAdapter(of)
