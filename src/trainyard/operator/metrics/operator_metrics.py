"""Counters and histograms of an operator, in the conventions of Prometheus.

https://prometheus.io/docs/practices/naming/ and, for requests and the queue, what client-go and
controller-runtime count. Series must be bounded: no UID is a label, and reasons that others may
write are one of a list. Counters have no label for the namespace, since namespaces come and go and
counters stay; gauges (`gauges/`) do, as they are computed at each scrape. It is called
`job_namespace`, because scrapers add `namespace`, which is that of the operator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from trainyard.kube.resources import PODS, Resource
from trainyard.kube.transport import Request
from trainyard.lifecycle.actions import Plan
from trainyard.operator.metrics.first_pod_latency import FirstPodLatency
from trainyard.operator.metrics.gauges import MetricsSnapshot, collect_gauges
from trainyard.operator.metrics.goodput_counter import goodput_counter
from trainyard.operator.metrics.instrumentation import Instrumentation
from trainyard.operator.metrics.label_values import END_REASONS, RESTART_REASONS, known_or_other
from trainyard.operator.metrics.status_transitions import JobEnd, status_transitions
from trainyard.operator.reconcile.controller import Controller
from trainyard.operator.reconcile.job_records import JobKey, JobRecord
from trainyard.schema.times import parse
from trainyard.version import VERSION

log = logging.getLogger(__name__)

_SHORT_BUCKETS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
_START_BUCKETS = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0)
_LIFETIME_BUCKETS = (
    10.0,
    60.0,
    300.0,
    900.0,
    3600.0,
    14400.0,
    43200.0,
    86400.0,
    259200.0,
    604800.0,
)

NO_ANSWER = "<error>"
"""The code of a request without an answer, as client-go has it."""

FindController = Callable[[], Controller | None]
"""Returns the working controller, or None on a standby."""
ListProblems = Callable[[], list[str]]
"""Returns the problems that `/readyz` lists."""


_JOB_END_COUNTERS: Sequence[Callable[[CollectorRegistry], Callable[[str, JobRecord], None]]] = (
    goodput_counter,
)
"""What registers a counter, and returns what counts a job of a kind that has ended."""


class OperatorMetrics(Instrumentation):
    """Counts and logs what the controller of this process does."""

    def __init__(
        self,
        controller: FindController,
        problems: ListProblems,
        now: Callable[[], datetime],
        *,
        has_job_series: bool = False,
    ) -> None:
        """`has_job_series`: each job has series of its own, by its name."""
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._now = now
        self._first_pod_latency = FirstPodLatency()
        self.registry = registry = CollectorRegistry()
        self._register_job_metrics(registry)
        self._register_reconcile_metrics(registry)
        self._register_request_metrics(registry)
        name, text = "trainyard_build_info", "Which trainyard it is."
        about = Gauge(name, text, ["version"], registry=registry)
        about.labels(VERSION).set(1.0)
        registry.register(_StateCollector(controller, problems, now, has_job_series))
        prometheus_client.ProcessCollector(registry=registry)
        prometheus_client.PlatformCollector(registry=registry)
        prometheus_client.GCCollector(registry=registry)

    def _register_job_metrics(self, registry: CollectorRegistry) -> None:
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
        self._job_end_counters = [counter(registry) for counter in _JOB_END_COUNTERS]
        self._first_pod = Histogram(
            "trainyard_job_first_pod_seconds",
            "Time from a job's creationTimestamp, in whole seconds, to its first pod.",
            ["job_kind"],
            buckets=_START_BUCKETS,
            registry=registry,
        )
        self._start = Histogram(
            "trainyard_job_start_seconds",
            "Time from a job's creationTimestamp, in whole seconds, to when all its replicas ran.",
            ["job_kind"],
            buckets=_START_BUCKETS,
            registry=registry,
        )
        self._life = Histogram(
            "trainyard_job_duration_seconds",
            "Time from when a job started to its end.",
            ["job_kind", "outcome"],
            buckets=_LIFETIME_BUCKETS,
            registry=registry,
        )

    def _register_reconcile_metrics(self, registry: CollectorRegistry) -> None:
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
            buckets=_SHORT_BUCKETS,
            registry=registry,
        )
        self._wait = Histogram(
            "trainyard_queue_wait_seconds",
            "Time that a job that was due waited for its pass.",
            buckets=_SHORT_BUCKETS,
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

    def _register_request_metrics(self, registry: CollectorRegistry) -> None:
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
            buckets=_SHORT_BUCKETS,
            registry=registry,
        )

    def expose(self, accept: str) -> tuple[bytes, str]:
        """All metrics, and the content type: OpenMetrics for a scraper that asks for it."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self.registry), content_type

    def requested(self, request: Request, status: int, seconds: float) -> None:
        """Count a request to the API server; `status` is 0 where it got no answer."""
        verb, resource = verb_and_resource(request)
        self._requests.labels(verb, resource, str(status) if status else NO_ANSWER).inc()
        self._request.labels(verb).observe(seconds)

    def reconcile_finished(self, key: JobKey, result: str, seconds: float) -> None:
        self._passes.labels(key.kind, result).inc()
        self._pass.labels(key.kind).observe(seconds)

    def queue_waited(self, seconds: float) -> None:
        self._wait.observe(seconds)

    def reported(self, code: int) -> None:
        """Count a report of a pod, by the HTTP status of the answer."""
        self._reports.labels(str(code)).inc()

    def watch_ended(self, resource: Resource, why: str) -> None:
        self._watches.labels(resource.full_name, why).inc()

    def event_lost(self, why: str) -> None:
        self._events.labels(why).inc()

    def object_created(self, job: JobRecord, resource: Resource) -> None:
        since = self._first_pod_latency.finish(job) if resource == PODS else None
        if since is not None:
            seconds = (self._now() - since).total_seconds()
            self._first_pod.labels(job.kind.kind).observe(max(0.0, seconds))

    def status_stored(self, before: JobRecord, after: JobRecord, plan: Plan) -> None:
        """Count what a job's new status says for the first time."""
        if not after.kind.is_job:
            return
        kind = after.kind.kind
        since = parse(after.raw["metadata"].get("creationTimestamp"))
        transitions = status_transitions(
            since, before.status or {}, after.status or {}, self._now()
        )
        if transitions.is_new:
            log.info("created")
            self._created.labels(kind).inc()
            if transitions.end is None and not (after.status or {}).get("replicas"):
                self._first_pod_latency.start(after)
        for reason in plan.restarts:
            log.info("restarts: %s", reason)
            self._restarts.labels(kind, known_or_other(RESTART_REASONS, reason)).inc()
        if transitions.started_seconds is not None:
            log.info("runs, %.0f s after it was created", transitions.started_seconds)
            self._start.labels(kind).observe(transitions.started_seconds)
        if transitions.end is not None:
            self._record_end(kind, transitions.end)
            for count in self._job_end_counters:
                count(kind, after)

    def _record_end(self, kind: str, end: JobEnd) -> None:
        log.info("%s%s", end.outcome.lower(), f": {end.message}" if end.message else "")
        outcome = end.outcome.lower()
        self._finished.labels(kind, outcome, known_or_other(END_REASONS, end.reason)).inc()
        if end.seconds is not None:
            self._life.labels(kind, outcome).observe(end.seconds)


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def verb_and_resource(request: Request) -> tuple[str, str]:
    """The verb and resource of a request as a Role names them: `update`, `pods/status`.

    The resource is "" for other paths, such as `/version`.
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


class _StateCollector(Collector):
    """Gauges that are read from the working controller at each scrape."""

    def __init__(
        self,
        find_controller: FindController,
        list_problems: ListProblems,
        now: Callable[[], datetime],
        has_job_series: bool,
    ) -> None:
        self._find_controller, self._list_problems = find_controller, list_problems
        self._now, self._has_job_series = now, has_job_series

    def collect(self) -> Iterator[Metric]:
        controller = self._find_controller()
        leads = 0.0 if controller is None else 1.0
        yield GaugeMetricFamily("trainyard_leader", "Whether this process does the work.", leads)
        yield GaugeMetricFamily(
            "trainyard_problems",
            "Rights, definitions and Leases that are out of reach; /readyz says which.",
            float(len(self._list_problems())),
        )
        if controller is not None:
            yield from collect_gauges(
                MetricsSnapshot(controller, self._now(), self._has_job_series)
            )
