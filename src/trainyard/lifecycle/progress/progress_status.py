"""How far the training is: `status.progress`, from what the job's pods say.

It is written now and then (`Settings.progress_seconds`), and along with whatever else is written.
It changes nothing of what happens to the job, and nothing once that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from trainyard.lifecycle.internal_status import final_phase
from trainyard.lifecycle.pod_reports import CollectiveCounts, PodReports, Progress
from trainyard.lifecycle.policy import NOTHING, PolicyResult
from trainyard.lifecycle.reconcile_context import ReconcileContext
from trainyard.lifecycle.status.status_builder import StatusBuilder
from trainyard.schema.times import parse, render

StatusField = dict[str, Any]
SOURCE = "Collectives"
_POSITION_FIELDS = ("step", "percentage", "epoch")
"""What says how far it is."""


def _stored_progress(status: Mapping[str, Any]) -> StatusField:
    """As it was told; what others wrote there and makes no sense was never told."""
    found = status.get("progress")
    try:
        if not isinstance(found, dict):
            return {}
        parse(found["lastReportTime"])
        _message(found, ended=False)
    except (KeyError, TypeError, ValueError):
        return {}
    return dict(found)


def _merge(
    before: StatusField, reports: PodReports, now: datetime, *, ended: bool
) -> StatusField | None:
    """`status.progress` as it should be; None where nothing was ever said."""
    fields = dict(before)
    counted = reports.collectives
    if counted is not None and not _is_old(before, counted.at, now) and not _has_position(before):
        fields |= _fields_of_collectives(counted)
    if (step := reports.progress) is not None and not _is_old(before, step.at, now):
        fields = {
            name: v
            for name, v in {**fields, **_fields_of_report(fields, step)}.items()
            if v is not None
        }
    if _has_position(fields):
        fields.pop("collectives", None)
        if fields.get("source") == SOURCE:
            del fields["source"]
    if not fields:
        return None
    if ended:
        fields.pop("remainingSeconds", None)
    fields["message"] = _message(fields, ended=ended)
    return fields


def current_progress(context: ReconcileContext) -> StatusField | None:
    """`status.progress` as it will be written with whatever else this pass writes."""
    return _merge(
        _stored_progress(context.before), context.observed.reports, context.now, ended=False
    )


def evaluate(context: ReconcileContext, status: StatusBuilder) -> PolicyResult:
    """Put the progress into the status; what is reported after the end changes nothing.

    Where nothing else is to be written and the last progress is too recent, wakes when it is not.
    """
    if final_phase(context.before):
        return NOTHING
    before, reports = _stored_progress(context.before), context.observed.reports
    ended = bool(final_phase(status.fields))
    progress = _merge(before, reports, context.now, ended=ended)
    if progress is None or progress == before:
        return NOTHING
    writable_at = _writable_at(before, context.now, context.settings.progress_seconds)
    if writable_at is not None and status.fields == context.before:
        return PolicyResult(wake_at=writable_at)
    status.fields["progress"] = progress
    return NOTHING


def _writable_at(before: StatusField, now: datetime, seconds: float) -> datetime | None:
    """When it may be written again; None: now."""
    written = parse(before.get("lastReportTime"))
    if written is None or written > now:  # the clock was set back
        return None
    moment = written + timedelta(seconds=seconds)
    return moment if moment > now else None


def _is_old(before: StatusField, at: datetime, now: datetime) -> bool:
    """Not what comes after a time that is yet to come: the clock was set back."""
    written = parse(before.get("lastReportTime"))
    return written is not None and at <= written <= now


def _has_position(fields: StatusField) -> bool:
    """Whether it is known how far the training is."""
    return any(fields.get(name) is not None for name in _POSITION_FIELDS)


def _fields_of_collectives(counts: CollectiveCounts) -> StatusField:
    """What is told of one of which nothing better is known."""
    found: StatusField = {"count": counts.count}
    if counts.rate is not None:
        found["perSecond"] = counts.rate
    if counts.rate and counts.cadence is not None:
        found["periodCount"], found["periodSeconds"] = counts.cadence
    return {
        "lastReportTime": render(counts.at),
        "replica": counts.replica,
        "source": SOURCE,
        "collectives": found,
    }


def _fields_of_report(before: StatusField, report: Progress) -> StatusField:
    """What is new; None for what is not known any more."""
    fields: StatusField = {"lastReportTime": render(report.at), "replica": report.replica or None}
    total = before.get("totalSteps") if report.total is None else report.total
    step, percentage = report.step, report.percentage
    if step is None and percentage in (0, 100) and total:
        step = total * percentage // 100
    if percentage is None and step is not None and total:
        percentage = min(100, 100 * step // total)
    is_epoch_all = report.epoch is not None and before.keys().isdisjoint(_POSITION_FIELDS[:2])
    if step is not None or percentage is not None or is_epoch_all:
        rate = report.rate or before.get("stepsPerSecond")
        fields["source"] = report.source or None
        fields |= {"step": step, "percentage": percentage, "stepsPerSecond": rate}
        fields["remainingSeconds"] = _remaining(report.remaining, step, total, rate)
    if total is not None:
        fields["totalSteps"] = total
    if report.epoch is not None:
        fields["epoch"] = report.epoch
    if report.metrics is not None:
        fields["metrics"] = [{"name": name, "value": value} for name, value in report.metrics]
    if (made := report.checkpoint) is not None:
        at = {} if made.step is None else {"step": made.step}
        fields["checkpoint"] = {"path": made.path, **at, "time": render(made.at)}
    return fields


def _remaining(
    reported: int | None, step: int | None, total: int | None, rate: float | None
) -> int | None:
    if reported is not None:
        return reported
    if step is None or not total or not rate:
        return None
    return max(0, round((total - step) / rate))


def _message(fields: StatusField, *, ended: bool) -> str:
    """`step 1,200/10,000, 3.1 it/s, 47 min left`."""
    if "collectives" in fields:
        return _cadence(fields["collectives"], ended=ended)
    parts = [_position(fields)]
    if not ended and fields.get("percentage") != 100:
        if rate := fields.get("stepsPerSecond"):
            parts.append(_speed(rate))
        if (seconds := fields.get("remainingSeconds")) is not None:
            parts.append(f"{_duration(seconds)} left")
    return ", ".join(part for part in parts if part)


def _position(fields: StatusField) -> str:
    step, total = fields.get("step"), fields.get("totalSteps")
    if step is not None:
        return f"step {step:,}/{total:,}" if total else f"step {step:,}"
    if fields.get("epoch") is not None:
        return f"epoch {fields['epoch']:g}"
    return f"{fields['percentage']} %" if fields.get("percentage") is not None else ""


def _cadence(collectives: StatusField, *, ended: bool) -> str:
    """`1,240 collectives, 12.4 a second, the same 4 every 0.322 s`."""
    parts = [f"{collectives['count']:,} collectives"]
    if not ended and (rate := collectives.get("perSecond")) is not None:
        parts.append(f"{rate:.3g} a second")
    if not ended and (seconds := collectives.get("periodSeconds")):
        parts.append(f"the same {collectives['periodCount']} every {seconds:.3g} s")
    return ", ".join(parts)


def _speed(rate: float) -> str:
    """As progress bars have it: a slow step in seconds."""
    return f"{rate:.3g} it/s" if rate >= 1 else f"{1 / rate:.3g} s/it"


def _duration(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours = round(seconds / 3600)
    return f"{hours} h" if hours < 48 else f"{round(hours / 24)} days"
