"""Jobs by phase, and those that wait for their replicas to run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily, Metric

from trainyard.kinds.shared.reasons import ConditionReason, ConditionType, Phase
from trainyard.kube.object_conditions import find_condition
from trainyard.operator.metrics.gauges import MetricsSnapshot
from trainyard.operator.metrics.label_values import END_REASONS, known_or_other
from trainyard.operator.reconcile.job_records import JobRecord
from trainyard.schema.times import parse


def collect(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    """Numbers of jobs by kind and namespace and, where allowed, the phase of each job."""
    by_phase: Counter[tuple[str, ...]] = Counter()
    waiting: Counter[tuple[str, ...]] = Counter()
    waiting_since: dict[tuple[str, ...], datetime] = {}
    phase_of_job = GaugeMetricFamily(
        "trainyard_job_phase",
        "1 for the phase that each job is in.",
        labels=["job_kind", "job_name", "job_namespace", "phase"],
    )
    for job in snapshot.jobs():
        phase, kind = _phase(job), job.kind.kind
        by_phase[kind, job.namespace, phase] += 1
        phase_of_job.add_metric([kind, job.name, job.namespace, phase], 1.0)
        if phase in (Phase.PENDING, Phase.RESUMING):
            waiting[kind, job.namespace, _not_running_reason(job)] += 1
            since = _attempt_start(job)
            if since is not None:
                place = (kind, job.namespace)
                waiting_since[place] = min(since, waiting_since.get(place, since))
    yield _family("trainyard_jobs", "Jobs, by the phase they are in.", "phase", by_phase)
    yield _family(
        "trainyard_jobs_waiting",
        "Jobs whose replicas do not all run yet, by why if something is wrong.",
        "reason",
        waiting,
    )
    yield _oldest(waiting_since, snapshot.now)
    if snapshot.has_job_series:
        yield phase_of_job


def _family(name: str, text: str, label: str, numbers: Mapping[tuple[str, ...], int]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["job_kind", "job_namespace", label])
    for labels, number in sorted(numbers.items()):
        family.add_metric(labels, float(number))
    return family


def _oldest(since: Mapping[tuple[str, ...], datetime], now: datetime) -> Metric:
    family = GaugeMetricFamily(
        "trainyard_jobs_waiting_oldest_seconds",
        "For how long the job's replicas have been awaited that has waited the longest.",
        labels=["job_kind", "job_namespace"],
    )
    for labels, moment in sorted(since.items()):
        family.add_metric(labels, max(0.0, (now - moment).total_seconds()))
    return family


def _phase(job: JobRecord) -> str:
    phase = str((job.status or {}).get("phase") or Phase.PENDING)
    return phase if phase in frozenset(Phase) else Phase.UNKNOWN


def _attempt_start(job: JobRecord) -> datetime | None:
    """When the current attempt started; before the first one, when the job was created."""
    for attempt in reversed((job.status or {}).get("attempts") or ()):
        return parse(attempt.get("startTime"))
    return parse(job.raw["metadata"].get("creationTimestamp"))


def _not_running_reason(job: JobRecord) -> str:
    """The reason of the job's Running condition; "" where nothing is wrong."""
    reason = str(find_condition(job.status, ConditionType.RUNNING).get("reason", ""))
    return "" if reason == ConditionReason.NONE else known_or_other(END_REASONS, reason)
