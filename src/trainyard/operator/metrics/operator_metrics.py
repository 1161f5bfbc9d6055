"""What an operator counts, in the conventions of Prometheus.

https://prometheus.io/docs/practices/naming/ and, for requests and the queue, what client-go and
controller-runtime count. Series are bounded: no UID is a label, jobs are told by their numbers,
and what others may write (reasons) is one of a list. Counters know no namespace, since namespaces
come and go and counters stay; gauges do, as they are read from the cache when somebody asks. It is
`job_namespace`: `namespace` is that of the operator, which whoever scrapes it adds.
"""

from __future__ import annotations

import logging
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from datetime import datetime

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from trainyard.kinds.shared.goodput.goodput_parts import seconds_by_part
from trainyard.kinds.shared.reasons import ConditionReason, ConditionType, Phase
from trainyard.kube.resources import PODS, Resource
from trainyard.kube.transport import Request
from trainyard.lifecycle.actions import Plan
from trainyard.lifecycle.ledger import COMPLETED
from trainyard.lifecycle.outcomes import DISRUPTIONS, VANISHED
from trainyard.operator.metrics import job_progress_metrics
from trainyard.operator.metrics.first_pod_latency import FirstPodLatency
from trainyard.operator.metrics.instrumentation import Instrumentation
from trainyard.operator.metrics.status_transitions import JobEnd, status_transitions
from trainyard.operator.reconcile.controller import Controller
from trainyard.operator.reconcile.job_records import JobKey, JobRecord
from trainyard.schema.times import parse
from trainyard.version import VERSION

log = logging.getLogger(__name__)

_QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_STARTS = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0)
_LIVES = (10.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0, 259200.0, 604800.0)

# https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
_DISRUPTED = (
    *("PreemptionByScheduler", "DeletionByTaintManager", "EvictionByEvictionAPI"),
    *("DeletionByPodGC", "TerminationByKubelet"),
)
RESTART_REASONS = frozenset(
    {
        *("Error", "OOMKilled", "ContainerCannotRun", "StartError", "DeadlineExceeded"),
        *("Deleted", "MaxDuration", "MembersChanged", COMPLETED),
        *(*DISRUPTIONS, *VANISHED, *_DISRUPTED),
    }
)
"""Kubelets and whoever else may write a pod's status have others, which are told as Other."""
_END_REASONS = frozenset(ConditionReason)
OTHER = "Other"
NO_ANSWER = "<error>"
"""The code of a request without an answer, as client-go has it."""

FindController = Callable[[], Controller | None]
"""The controller at work, or None on a standby."""
ListProblems = Callable[[], list[str]]
"""What `/readyz` says is out of reach."""


class OperatorMetrics(Instrumentation):
    """Counts and logs what controllers of this process tell, one after the other."""

    def __init__(
        self,
        controller: FindController,
        problems: ListProblems,
        now: Callable[[], datetime],
        *,
        has_job_series: bool = False,
    ) -> None:
        """`has_job_series`: a series for each job, by its name."""
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._now = now
        self._awaited = FirstPodLatency()
        self.registry = registry = CollectorRegistry()
        self._count_jobs(registry)
        self._count_work(registry)
        self._count_requests(registry)
        name, text = "trainyard_build_info", "Which trainyard it is."
        about = Gauge(name, text, ["version"], registry=registry)
        about.labels(VERSION).set(1.0)
        registry.register(_State(controller, problems, now, has_job_series))
        prometheus_client.ProcessCollector(registry=registry)
        prometheus_client.PlatformCollector(registry=registry)
        prometheus_client.GCCollector(registry=registry)

    def _count_jobs(self, registry: CollectorRegistry) -> None:
        self._created = Counter(
            "trainyard_jobs_created",
            "Jobs that were seen for the first time.",
            ["job_kind"],
            registry=registry,
        )
        self._finished = Counter(
            "trainyard_jobs_finished",
            "Jobs that have ended, by how, and why those that failed did.",
            ["job_kind", "outcome", "reason"],
            registry=registry,
        )
        self._restarts = Counter(
            "trainyard_job_restarts",
            "Restarts that were decided on, by why the replica ended that caused it.",
            ["job_kind", "reason"],
            registry=registry,
        )
        self._spent = Counter(
            "trainyard_job_time_seconds",
            "Wall time of jobs that have ended, by what it was spent on.",
            ["job_kind", "part"],
            registry=registry,
        )
        self._first_pod = Histogram(
            "trainyard_job_first_pod_seconds",
            "Time from a job's creationTimestamp, in whole seconds, to its first pod.",
            ["job_kind"],
            buckets=_STARTS,
            registry=registry,
        )
        self._start = Histogram(
            "trainyard_job_start_seconds",
            "Time from a job's creationTimestamp, in whole seconds, to when all its replicas ran.",
            ["job_kind"],
            buckets=_STARTS,
            registry=registry,
        )
        self._life = Histogram(
            "trainyard_job_duration_seconds",
            "Time from when a job started to its end.",
            ["job_kind", "outcome"],
            buckets=_LIVES,
            registry=registry,
        )

    def _count_work(self, registry: CollectorRegistry) -> None:
        self._passes = Counter(
            "trainyard_passes",
            "Passes over jobs, by how they ended.",
            ["job_kind", "result"],
            registry=registry,
        )
        self._pass = Histogram(
            "trainyard_pass_seconds",
            "Time that a pass took, requests included.",
            ["job_kind"],
            buckets=_QUICK,
            registry=registry,
        )
        self._wait = Histogram(
            "trainyard_queue_wait_seconds",
            "Time that a job that was due waited for its pass.",
            buckets=_QUICK,
            registry=registry,
        )
        self._watches = Counter(
            "trainyard_watch_restarts",
            "Watches that had to be opened again, by resource and why.",
            ["resource", "reason"],
            registry=registry,
        )
        self._events = Counter(
            "trainyard_events_lost",
            "Kubernetes Events that will never be stored, by why.",
            ["reason"],
            registry=registry,
        )
        for why in ("overflow", "refused"):
            self._events.labels(why)
        self._reports = Counter(
            "trainyard_reports",
            "Reports of pods, by the HTTP status of the answer.",
            ["code"],
            registry=registry,
        )

    def _count_requests(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "trainyard_api_requests",
            "Requests to the API server, repetitions included, by how they were answered.",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self._request = Histogram(
            "trainyard_api_request_seconds",
            "Time until the API server had answered; of a watch, until it had begun to.",
            ["verb"],
            buckets=_QUICK,
            registry=registry,
        )

    def expose(self, accept: str) -> tuple[bytes, str]:
        """All metrics, and the content type: OpenMetrics for a scraper that asks for it."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self.registry), content_type

    # What is told.

    def requested(self, request: Request, status: int, seconds: float) -> None:
        """A request was answered; `status` 0: it was not."""
        verb, resource = verb_and_resource(request)
        self._requests.labels(verb, resource, str(status) if status else NO_ANSWER).inc()
        self._request.labels(verb).observe(seconds)

    def reconcile_finished(self, key: JobKey, result: str, seconds: float) -> None:
        self._passes.labels(key.kind, result).inc()
        self._pass.labels(key.kind).observe(seconds)

    def queue_waited(self, seconds: float) -> None:
        self._wait.observe(seconds)

    def reported(self, code: int) -> None:
        """A report of a pod was answered."""
        self._reports.labels(str(code)).inc()

    def watch_ended(self, resource: Resource, why: str) -> None:
        self._watches.labels(resource.full_name, why).inc()

    def event_lost(self, why: str) -> None:
        self._events.labels(why).inc()

    def object_created(self, job: JobRecord, resource: Resource) -> None:
        since = self._awaited.take(job) if resource == PODS else None
        if since is not None:
            seconds = (self._now() - since).total_seconds()
            self._first_pod.labels(job.kind.kind).observe(max(0.0, seconds))

    def status_stored(self, before: JobRecord, after: JobRecord, plan: Plan) -> None:
        if not after.kind.is_job:
            return
        kind = after.kind.kind
        since = parse(after.raw["metadata"].get("creationTimestamp"))
        new = status_transitions(since, before.status or {}, after.status or {}, self._now())
        if new.is_new:
            log.info("created")
            self._created.labels(kind).inc()
            if new.end is None and not (after.status or {}).get("replicas"):
                self._awaited.put(after)
        for reason in plan.restarts:
            log.info("restarts: %s", reason)
            self._restarts.labels(kind, _one_of(RESTART_REASONS, reason)).inc()
        if new.started_seconds is not None:
            log.info("runs, %.0f s after it was created", new.started_seconds)
            self._start.labels(kind).observe(new.started_seconds)
        if new.end is not None:
            self._ended(kind, new.end)
            for part, seconds in seconds_by_part(after.status):
                self._spent.labels(kind, part).inc(seconds)

    def _ended(self, kind: str, end: JobEnd) -> None:
        log.info("%s%s", end.outcome.lower(), f": {end.message}" if end.message else "")
        outcome = end.outcome.lower()
        self._finished.labels(kind, outcome, _one_of(_END_REASONS, end.reason)).inc()
        if end.seconds is not None:
            self._life.labels(kind, outcome).observe(end.seconds)


def _one_of(known: frozenset[str] | frozenset[ConditionReason], reason: str) -> str:
    return reason if not reason or reason in known else OTHER


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def verb_and_resource(request: Request) -> tuple[str, str]:
    """The verb and the resource of a request, as a Role has them: `update`, `pods/status`.

    Of what is no resource (`/version`) the resource is "".
    """
    path, _, query = request.path.partition("?")
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else []
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    verb = _VERBS.get(request.method, "get")
    if verb == "get" and len(rest) == 1:
        verb = "watch" if "watch=true" in query else "list"
    return verb, "/".join((rest[0], *rest[2:3])) if rest else ""


class _State(Collector):
    """What is read from the controller at work when somebody asks, instead of being kept."""

    def __init__(
        self,
        controller: FindController,
        problems: ListProblems,
        now: Callable[[], datetime],
        has_job_series: bool,
    ) -> None:
        self._controller, self._problems = controller, problems
        self._now, self._tells_jobs = now, has_job_series

    def collect(self) -> Iterator[Metric]:
        controller = self._controller()
        leads = 0.0 if controller is None else 1.0
        yield _gauge("trainyard_leader", "Whether this process does the work.", leads)
        yield _gauge(
            "trainyard_problems",
            "Rights, definitions and Leases that are out of reach; /readyz says which.",
            float(len(self._problems())),
        )
        if controller is None:
            return
        queue = controller.queue
        yield _gauge("trainyard_queue_depth", "Jobs that are due for a pass.", float(len(queue)))
        yield _gauge(
            "trainyard_queue_oldest_seconds",
            "For how long the job has been due that has waited the longest.",
            queue.oldest_seconds,
        )
        yield from self._jobs(controller)

    def _jobs(self, controller: Controller) -> Iterator[Metric]:
        numbers: Tally[tuple[str, ...]] = Tally()
        waiting: Tally[tuple[str, ...]] = Tally()
        since: dict[tuple[str, ...], datetime] = {}
        each = GaugeMetricFamily(
            "trainyard_job_phase",
            "1 for the phase that each job is in.",
            labels=["job_kind", "job_name", "job_namespace", "phase"],
        )
        for job in _jobs_of(controller):
            phase, kind = _phase(job), job.kind.kind
            numbers[kind, job.namespace, phase] += 1
            each.add_metric([kind, job.name, job.namespace, phase], 1.0)
            if phase in (Phase.PENDING, Phase.RESUMING):
                waiting[kind, job.namespace, _trouble(job)] += 1
                begun = _begun(job)
                if begun is not None:
                    since[kind, job.namespace] = min(begun, since.get((kind, job.namespace), begun))
        yield _family("trainyard_jobs", "Jobs, by the phase they are in.", "phase", numbers)
        yield _family(
            "trainyard_jobs_waiting",
            "Jobs whose replicas do not all run yet, by why if something is wrong.",
            "reason",
            waiting,
        )
        now = self._now()
        oldest = GaugeMetricFamily(
            "trainyard_jobs_waiting_oldest_seconds",
            "For how long the job's replicas have been awaited that has waited the longest.",
            labels=["job_kind", "job_namespace"],
        )
        for labels, moment in sorted(since.items()):
            oldest.add_metric(labels, max(0.0, (now - moment).total_seconds()))
        yield oldest
        if self._tells_jobs:
            yield each
            yield from job_progress_metrics.job_progress_metrics_of(_jobs_of(controller))


def _jobs_of(controller: Controller) -> Iterator[JobRecord]:
    for store in controller.jobs.values():
        for job in store:
            if job.kind.is_job and controller.looks_after(job.namespace):
                yield job


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value)


def _family(name: str, text: str, last: str, numbers: Tally[tuple[str, ...]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["job_kind", "job_namespace", last])
    for labels, number in sorted(numbers.items()):
        family.add_metric(labels, float(number))
    return family


def _phase(job: JobRecord) -> str:
    phase = str((job.status or {}).get("phase") or Phase.PENDING)
    return phase if phase in frozenset(Phase) else Phase.UNKNOWN


def _begun(job: JobRecord) -> datetime | None:
    """When the attempt under way was begun."""
    for attempt in reversed((job.status or {}).get("attempts") or ()):
        return parse(attempt.get("startTime"))
    return parse(job.raw["metadata"].get("creationTimestamp"))


def _trouble(job: JobRecord) -> str:
    """Why it does not run, as its condition says: "" where nothing is wrong."""
    for condition in (job.status or {}).get("conditions") or ():
        if condition.get("type") == ConditionType.RUNNING:
            reason = str(condition.get("reason", ""))
            return "" if reason == ConditionReason.NONE else _one_of(_END_REASONS, reason)
    return ""
