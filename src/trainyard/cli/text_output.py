"""Plain text for users: tables, among them that of jobs, and objects as YAML or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

from trainyard.api.views import Job
from trainyard.schema.times import age, span

_GAP = "   "
NONE = "-"
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""Escape sequences of terminals (ECMA-48): CSI, OSC and single ones."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Align columns to the left, as kubectl does; empty cells show as `-`."""
    lines = [[str(header) for header in headers]]
    lines += [[NONE if cell is None or cell == "" else printable(cell) for cell in r] for r in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    return "\n".join(
        _GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def printable(value: object) -> str:
    """Remove escape sequences and control characters, which a program's words may contain."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _ESCAPE.sub("", str(value)))


def indent(text: str, by: int) -> str:
    """Indent every line but the first."""
    return text.replace("\n", "\n" + " " * by)


def document(obj: Mapping[str, Any], output: str) -> str:
    """Return an object as `json` or `yaml`, without managedFields, which only servers need."""
    cleaned = _without_managed_fields(obj)
    if output == "json":
        return json.dumps(cleaned, indent=2, ensure_ascii=False)
    import yaml

    text: str = yaml.safe_dump(cleaned, sort_keys=False, allow_unicode=True)
    return text.rstrip("\n")


def _without_managed_fields(obj: Mapping[str, Any]) -> dict[str, Any]:
    if "items" in obj:
        return {**obj, "items": [_without_managed_fields(item) for item in obj["items"]]}
    metadata = {k: v for k, v in (obj.get("metadata") or {}).items() if k != "managedFields"}
    return {**obj, "metadata": metadata}


def job_table(
    jobs: Sequence[Job],
    now: datetime,
    *,
    everywhere: bool,
    wide: bool,
    owners: Mapping[str, str] = MappingProxyType({}),
    progress: bool = False,
) -> str:
    """Return a table with a line per job.

    `owners`, namespace to user, adds a column; so does `progress`.
    """
    headers = ["NAME", "KIND", "PHASE", "RUNNING", "RESTARTS", "AGE"]
    if everywhere:
        headers.insert(0, "NAMESPACE")
    if owners:
        headers.append("OWNER")
    if wide:
        headers += ["DURATION", "QUEUE", "REASON"]
    if progress:
        headers.append("PROGRESS")
    rows = [_row(job, now, owners, everywhere=everywhere, wide=wide) for job in jobs]
    extra = ([progress_text(job)] if progress else [] for job in jobs)
    return table(headers, [[*row, *cells] for row, cells in zip(rows, extra, strict=True)])


def _row(
    job: Job, now: datetime, owners: Mapping[str, str], *, everywhere: bool, wide: bool
) -> list[object]:
    row: list[object] = [job.namespace] if everywhere else []
    row += [
        job.name,
        job.kind.kind,
        phase_text(job),
        running_text(job),
        job.restarts,
        age(job.metadata.get("creationTimestamp"), now),
    ]
    if owners:
        row.append(owners.get(job.namespace, ""))
    if wide:
        row += [
            span(job.status.get("startTime"), job.status.get("completionTime"), now),
            job.queue,
            reason(job),
        ]
    return row


def phase_text(job: Job) -> str:
    """The phase, or Terminating for a job that is being deleted."""
    return "Terminating" if job.is_deleting else job.phase


def progress_text(job: Job) -> str:
    """The job's progress: `step 1,200/10,000, 3.1 it/s, 47 min left`; empty without reports."""
    return printable(job.progress.get("message") or "")


def running_text(job: Job) -> str:
    """Running and all replicas: `3/4`; empty before any is known."""
    counts = job.aggregate
    return f"{counts.get('running', 0)}/{sum(counts.values())}" if counts else ""


def reason(job: Job) -> str:
    """The reason of the Running condition while the job does not run; may be empty."""
    running = job.condition("Running")
    text = str(running.get("reason") or "") if running.get("status") != "True" else ""
    return "" if text == "-" else text
