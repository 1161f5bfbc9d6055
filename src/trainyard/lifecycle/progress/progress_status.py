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
    before: StatusField, heard: PodReports, now: datetime, *, ended: bool
) -> StatusField | None:
    """`status.progress` as it should be; None where nothing was ever said."""
    told = dict(before)
    counted = heard.collectives
    if counted is not None and not _is_old(before, counted.at, now) and not _has_position(before):
        told |= _fields_of_collectives(counted)
    if (step := heard.progress) is not None and not _is_old(before, step.at, now):
        told = {
            name: v
            for name, v in {**told, **_fields_of_report(told, step)}.items()
            if v is not None
        }
    if _has_position(told):
        told.pop("collectives", None)
        if told.get("source") == SOURCE:
            del told["source"]
    if not told:
        return None
    if ended:
        told.pop("remainingSeconds", None)
    told["message"] = _message(told, ended=ended)
    return told


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


def _is_old(told: StatusField, at: datetime, now: datetime) -> bool:
    """Not what comes after a time that is yet to come: the clock was set back."""
    written = parse(told.get("lastReportTime"))
    return written is not None and at <= written <= now


def _has_position(told: StatusField) -> bool:
    """Whether it is known how far the training is."""
    return any(told.get(name) is not None for name in _POSITION_FIELDS)


def _fields_of_collectives(heard: CollectiveCounts) -> StatusField:
    """What is told of one of which nothing better is known."""
    found: StatusField = {"count": heard.count}
    if heard.rate is not None:
        found["perSecond"] = heard.rate
    if heard.rate and heard.cadence is not None:
        found["periodCount"], found["periodSeconds"] = heard.cadence
    return {
        "lastReportTime": render(heard.at),
        "replica": heard.replica,
        "source": SOURCE,
        "collectives": found,
    }


def _fields_of_report(before: StatusField, heard: Progress) -> StatusField:
    """What is new; None for what is not known any more."""
    told: StatusField = {"lastReportTime": render(heard.at), "replica": heard.replica or None}
    total = before.get("totalSteps") if heard.total is None else heard.total
    step, percentage = heard.step, heard.percentage
    if step is None and percentage in (0, 100) and total:
        step = total * percentage // 100
    if percentage is None and step is not None and total:
        percentage = min(100, 100 * step // total)
    if step is not None or percentage is not None:
        rate = heard.rate or before.get("stepsPerSecond")
        told["source"] = heard.source or None
        told |= {"step": step, "percentage": percentage, "stepsPerSecond": rate}
        told["remainingSeconds"] = _remaining(heard.remaining, step, total, rate)
    if total is not None:
        told["totalSteps"] = total
    if heard.epoch is not None:
        told["epoch"] = heard.epoch
    if heard.metrics is not None:
        told["metrics"] = [{"name": name, "value": value} for name, value in heard.metrics]
    if (made := heard.checkpoint) is not None:
        at = {} if made.step is None else {"step": made.step}
        told["checkpoint"] = {"path": made.path, **at, "time": render(made.at)}
    return told


def _remaining(
    told: int | None, step: int | None, total: int | None, rate: float | None
) -> int | None:
    if told is not None:
        return told
    if step is None or not total or not rate:
        return None
    return max(0, round((total - step) / rate))


def _message(told: StatusField, *, ended: bool) -> str:
    """`step 1,200/10,000, 3.1 it/s, 47 min left`."""
    if "collectives" in told:
        return _cadence(told["collectives"], ended=ended)
    parts = [_position(told)]
    if not ended and told.get("percentage") != 100:
        if rate := told.get("stepsPerSecond"):
            parts.append(_speed(rate))
        if (seconds := told.get("remainingSeconds")) is not None:
            parts.append(f"{_duration(seconds)} left")
    return ", ".join(part for part in parts if part)


def _position(told: StatusField) -> str:
    step, total = told.get("step"), told.get("totalSteps")
    if step is not None:
        return f"step {step:,}/{total:,}" if total else f"step {step:,}"
    if told.get("epoch") is not None:
        return f"epoch {told['epoch']:g}"
    return f"{told['percentage']} %" if told.get("percentage") is not None else ""


def _cadence(told: StatusField, *, ended: bool) -> str:
    """`1,240 collectives, 12.4 a second, the same 4 every 0.322 s`."""
    parts = [f"{told['count']:,} collectives"]
    if not ended and (rate := told.get("perSecond")) is not None:
        parts.append(f"{rate:.3g} a second")
    if not ended and (seconds := told.get("periodSeconds")):
        parts.append(f"the same {told['periodCount']} every {seconds:.3g} s")
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
