"""The controller: watches jobs and what they own, and reconciles a job when something changes.

Reflectors fill the caches; a change puts the job's key into the work queue; workers take keys from
it, have the planner compute a plan from what is observed, and the executor carry that out. The
controller speaks only the Kubernetes API, so that it runs the same against the embedded API server
and a real cluster, and it must not know one kind from another: the planner does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any

from trainyard.kinds.shared import labels
from trainyard.kinds.shared.scheduling.kueue_workload import FLAVORS, WORKLOADS
from trainyard.kube.client import Client, Selection
from trainyard.kube.errors import KubeError, NotFound
from trainyard.kube.reflector import Reflector, wait_until_synced
from trainyard.kube.resources import NAMESPACES, NODES, PODS, Resource
from trainyard.lifecycle.actions import Action, Plan
from trainyard.lifecycle.observed import Flavor, Observed, Owned, Pod
from trainyard.operator.channel.report_intake import ReportIntake
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.operator_logging import job_log_context
from trainyard.operator.reconcile.clock_steps import ClockSteps
from trainyard.operator.reconcile.executor import (
    ChildResource,
    ClusterCache,
    Executor,
    ReconcileResult,
)
from trainyard.operator.reconcile.job_records import JobKey, JobRecord, Namespace, Node
from trainyard.operator.reconcile.launch_probe_output import LaunchProbeOutput
from trainyard.operator.reconcile.object_cache import ObjectCache
from trainyard.operator.reconcile.planner import Planner, served_kinds, watched_resources
from trainyard.operator.reconcile.takeover_resync import TakeoverResync
from trainyard.operator.reconcile.work_queue import WorkQueue
from trainyard.operator.runtime_context import RuntimeContext

log = logging.getLogger(__name__)


class Controller:
    """Wires watches, caches, queue, planner and executor together."""

    def __init__(self, client: Client, settings: OperatorSettings, context: RuntimeContext) -> None:
        self._client = client
        self._settings = settings
        self._context = context
        self.synced = asyncio.Event()
        """Set once the cluster has been read."""
        self.is_working = False
        self._since: datetime | None = None
        """When it began to work; reports that pods sent before are lost."""
        self._all_reflectors: list[Reflector[Any]] = []
        self.queue: WorkQueue[JobKey] = WorkQueue(
            context.now,
            clock_offset=context.clock_offset,
            retry_min_seconds=settings.retry_min,
            retry_max_seconds=settings.retry_max,
            waited=context.instrumentation.queue_waited,
        )
        self._planner = Planner(settings)
        self._clock_steps = ClockSteps(context.clock_offset)
        self._probe_output = LaunchProbeOutput(client, context.now)
        self._keys: dict[str, JobKey] = {}
        self._uids: dict[JobKey, str] = {}
        self._ready_nodes: dict[str, bool] = {}
        self._last_actions: dict[JobKey, tuple[Action, ...]] = {}
        self._kinds = served_kinds(settings)
        by_namespace = bool(settings.namespaces)
        self.jobs: dict[str, ObjectCache[JobRecord]] = {
            kind.kind: ObjectCache(
                lambda job: job.uid, self._job_changed, by_namespace=by_namespace
            )
            for kind in self._kinds
        }
        self.nodes: ObjectCache[Node] = ObjectCache(lambda node: node.name, self._node_changed)
        self.namespaces: ObjectCache[Namespace] = ObjectCache(
            lambda each: each.name, self._namespace_changed
        )
        self.flavors: ObjectCache[Flavor] = ObjectCache(
            lambda flavor: flavor.name, self._flavor_changed
        )
        self.children: dict[Resource, ChildResource] = {
            resource: ChildResource(
                resource,
                ObjectCache(
                    lambda child: child.owner_uid, self._child_changed, by_namespace=by_namespace
                ),
                decode,
            )
            for resource, decode in watched_resources(settings).items()
        }
        cache = ClusterCache(self.jobs, self.children)
        pods = self.children[PODS].store
        self._resync = TakeoverResync(client, self.jobs, pods, settings.parallel_writes)
        self._executor = Executor(client, cache, settings, context)
        self.recorder = self._executor.recorder
        self.reports = ReportIntake(context.now, self._wake, settings.lifecycle.progress_seconds)
        if context.reconcile_log is not None:
            context.reconcile_log.start(settings)

    async def run(self, ready: asyncio.Event | None = None) -> None:
        """Watch and reconcile all jobs until cancelled; `ready` is set once caches are filled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.watch())
            await self.synced.wait()
            if ready is not None:
                ready.set()
            await self.work()

    async def watch(self) -> None:
        """Keep the caches up to date until cancelled; `synced` is set once they are filled."""
        async with asyncio.TaskGroup() as group:
            reflectors = self._all_reflectors = self._reflectors()
            for reflector in reflectors:
                group.create_task(reflector.run())
            await wait_until_synced(reflectors)
            self.synced.set()

    async def work(self) -> None:
        """Reconcile what `watch` sees until cancelled; may be called again afterwards."""
        self.is_working, self._since = True, self._context.now()
        self._resync.start_leading()
        try:
            # Another leader may have worked until now, so this one knows neither what was done
            # for a job nor when its next wake-up is due.
            for job in chain.from_iterable(self.jobs.values()):
                self.queue.add(job.key)
            async with asyncio.TaskGroup() as group:
                group.create_task(self.queue.run())
                group.create_task(self.recorder.run())
                for _ in range(self._settings.workers):
                    group.create_task(self._run_worker())
        finally:
            self.is_working = False
            if self._context.flushes_events:
                await self._flush_events()

    @property
    def problems(self) -> list[str]:
        """Why collections that it needs cannot be watched; it can do without nodes."""
        found = [each.problem for each in self._all_reflectors if each.resource != NODES]
        return [
            f"{each}; `trainyard doctor` says what to apply" if _is_undefined(each) else str(each)
            for each in found
            if each is not None
        ]

    async def _flush_events(self) -> None:
        try:
            async with asyncio.timeout(1.0):
                await self.recorder.flush()
        except (TimeoutError, KubeError):
            log.info("some events could not be sent before the end")

    def _reflectors(self) -> list[Reflector[Any]]:
        settings = self._settings
        make = partial(
            Reflector,
            self._client,
            timing=settings.reflector,
            rng=self._context.rng,
            on_watch_end=self._context.instrumentation.watch_ended,
        )
        # Our kinds may not be installed, and we may lack the right to list nodes; pods are a must.
        reflectors = []
        for place in settings.namespaces or (None,):
            reflectors += [
                make(
                    each.resource,
                    each.decode,
                    each.store.for_namespace(place),
                    namespace=place,
                    which=Selection(labels.JOB_UID),
                    optional=bool(each.resource.group),
                )
                for each in self.children.values()
            ]
            reflectors += [
                make(
                    kind.resource,
                    partial(JobRecord.decode, kind),
                    self.jobs[kind.kind].for_namespace(place),
                    namespace=place,
                    which=Selection(settings.job_selector),
                    optional=True,
                )
                for kind in self._kinds
            ]
        reflectors.append(make(NODES, Node.decode, self.nodes, optional=True))
        if WORKLOADS in self.children:
            reflectors.append(make(FLAVORS, Flavor.decode, self.flavors, optional=True))
        if settings.namespace_selector:
            which = Selection(settings.namespace_selector)
            reflectors.append(make(NAMESPACES, Namespace.decode, self.namespaces, which=which))
        return reflectors

    def key_of(self, uid: str) -> JobKey | None:
        """The key of the job with that UID, or None where no such job is cached."""
        return self._keys.get(uid)

    def looks_after(self, namespace: str) -> bool:
        """Whether this operator is responsible for jobs of the namespace."""
        return (
            not self._settings.namespace_selector or self.namespaces.get("", namespace) is not None
        )

    # Changes that watches show, and the jobs to reconcile because of them.
    def _job_changed(self, job: JobRecord) -> None:
        before = self._uids.get(job.key)
        if before is not None and before != job.uid:
            self._forget_uid(before)
        self._uids[job.key] = job.uid
        self._keys[job.uid] = job.key
        if self.is_working:
            self.queue.add(job.key)
        elif self.jobs[job.key.kind].get(job.namespace, job.name) is None:
            self._forget(job.key)  # no reconcile will find that it is gone

    def _child_changed(self, child: Pod | Owned) -> None:
        key = self._keys.get(child.owner_uid)
        if self.is_working and key is not None and key.namespace == child.namespace:
            self.queue.add(key)

    def _node_changed(self, node: Node) -> None:
        """Only a change of readiness counts: kubelets update their node every few seconds."""
        ready = self.nodes.get("", node.name) is not None and node.is_ready
        if self._ready_nodes.get(node.name) is ready:
            return
        if self.nodes.get("", node.name) is None:
            self._ready_nodes.pop(node.name, None)
        else:
            self._ready_nodes[node.name] = ready
        if self.is_working:  # when work starts, all jobs are queued anyway
            for pod in self.children[PODS].store:
                if pod.node == node.name:
                    self._child_changed(pod)

    def _namespace_changed(self, namespace: Namespace) -> None:
        """Its labels match the selector now, or no longer do."""
        if self.is_working:
            for store in self.jobs.values():
                for job in store:
                    if job.namespace == namespace.name:
                        self._job_changed(job)

    def _flavor_changed(self, _: Flavor) -> None:
        """Jobs that Kueue has admitted may wait for the node labels of a flavor."""
        if self.is_working:
            for owned in self.children[WORKLOADS].store:
                self._child_changed(owned)

    def _wake(self, uid: str) -> None:
        """A pod of the job has reported something new."""
        key = self._keys.get(uid)
        if self.is_working and key is not None:
            self.queue.add(key)

    async def _run_worker(self) -> None:
        loop, settings = asyncio.get_running_loop(), self._settings
        while True:
            key = await self.queue.get()
            started, job = loop.time(), self.jobs[key.kind].get(key.namespace, key.name)
            retry_seconds = pause = 0.0
            try:
                with job_log_context(key):
                    retry_seconds = await self._reconcile_safely(key)
            finally:
                # Creating the first pods takes long and does not come again: the status that
                # tells of them need not wait (decision 338).
                if job is None or job.status:
                    pause = (loop.time() - started) * settings.rest_factor
                pause = max(settings.rest_min, min(settings.rest_max, pause))
                self.queue.done(key, rest_seconds=max(retry_seconds, pause))

    async def _reconcile_safely(self, key: JobKey) -> float:
        """Reconcile; an error is logged and retried. Returns the seconds until a retry, or 0."""
        started, rest, result = asyncio.get_running_loop().time(), 0.0, "cut off"
        try:
            async with asyncio.timeout(self._settings.pass_timeout):
                result = (await self._reconcile(key)).name.lower()
        except (KubeError, TimeoutError) as error:
            rest, result = self.queue.retry(key), "error"
            log.warning("%s; trying again in %.1f s", error or "the pass took too long", rest)
        except Exception:
            # A defect that one job runs into must not stop the others (decision 44).
            rest, result = self.queue.retry(key), "error"
            log.exception("pass failed; trying again in %.1f s", rest)
        finally:
            if self._context.reconcile_log is not None:
                self._context.reconcile_log.log_end(key, result)
        self._context.instrumentation.reconcile_finished(
            key, result, asyncio.get_running_loop().time() - started
        )
        return rest

    async def _reconcile(self, key: JobKey) -> ReconcileResult:
        """Plan for the job as it is cached now, and carry the plan out."""
        job = self.jobs[key.kind].get(key.namespace, key.name)
        if job is None or job.is_deleting or not self.looks_after(key.namespace):
            # The garbage collector, or another operator, sees to what it owned.
            self._forget(key)
            return ReconcileResult.JOB_GONE
        probe_output = await self._probe_output_of(job)
        job = self._clock_steps.adjusted(job)
        if self._resync.needs_resync(job) and self._needs_action(job, probe_output):
            await self._resync.resync(job, self._planner.pod_names(job))
            self.queue.add(key)
            return ReconcileResult.STALE
        plan = self._plan(job, probe_output)
        self.queue.set_wakeup(key, plan.wake_at)
        result = await self._executor.execute(job, plan)
        if result is ReconcileResult.JOB_GONE:
            self._forget(key)
            return result
        if result is ReconcileResult.STALE:
            self._resync.require_resync(job.uid)
            # The watch brings the newer job; the retry is for when that takes long.
            self.queue.retry(key)
            return result
        if result is ReconcileResult.UNCHANGED:
            self.queue.reset_backoff(key)
        elif self._had_no_effect(key, plan):
            self.queue.retry(key)
        else:
            self.queue.reset_backoff(key)
            # Own writes are in the cache, and may require another reconcile.
            self.queue.add(key)
        return result

    def _had_no_effect(self, key: JobKey, plan: Plan) -> bool:
        """Whether the last reconcile carried out the very same actions, without effect."""
        before = self._last_actions.pop(key, None)
        if plan.status is not None or not plan.actions:
            return False
        self._last_actions[key] = plan.actions
        return plan.actions == before

    async def _probe_output_of(self, job: JobRecord) -> Mapping[str, str]:
        if not job.kind.launches_over_ssh:
            return {}
        pods = self.children[PODS].store.owned_by(job.namespace, job.uid)
        return await self._probe_output.probe_output_by_pod(job.uid, pods)

    def _needs_action(self, job: JobRecord, probe_output: Mapping[str, str]) -> bool:
        observed = replace(self._observe(job), probe_output=probe_output)
        plan = self._planner.plan(job, observed, self._context.now())
        return plan.status is not None or bool(plan.actions)

    def _plan(self, job: JobRecord, probe_output: Mapping[str, str]) -> Plan:
        observed = replace(self._observe(job), probe_output=probe_output)
        now = self._context.now()
        answer: Plan | Exception | None = None
        try:
            answer = self._planner.plan(job, observed, now)
        except Exception as error:
            answer = error
            raise
        finally:
            if self._context.reconcile_log is not None and answer is not None:
                self._context.reconcile_log.log_decision(job, observed, now, answer)
        return answer

    def _observe(self, job: JobRecord) -> Observed:
        owned = [
            child
            for resource, children in self.children.items()
            if resource != PODS
            for child in children.store.owned_by(job.namespace, job.uid)
        ]
        pods: tuple[Pod, ...] = tuple(self.children[PODS].store.owned_by(job.namespace, job.uid))
        self._executor.refusals.clear_existing(
            job.uid,
            chain(((PODS, pod.name) for pod in pods), ((o.resource, o.name) for o in owned)),
        )
        return Observed(
            pods=pods,
            owned=tuple(owned),
            refusals=self._executor.refusals.refusals_of(job.uid),
            conflicts=self._executor.refusals.conflicts_of(job.uid),
            lost_nodes=self._lost_nodes(pods),
            flavors={flavor.name: flavor for flavor in self.flavors},
            reports=self.reports.reports_of(job.uid),
            since=self._since,
        )

    def _lost_nodes(self, pods: tuple[Pod, ...]) -> frozenset[str]:
        if not len(self.nodes):  # not permitted to see nodes
            return frozenset()
        return frozenset(
            pod.node
            for pod in pods
            if pod.node and ((node := self.nodes.get("", pod.node)) is None or not node.is_ready)
        )

    def _forget(self, key: JobKey) -> None:
        self.queue.forget(key)
        self._last_actions.pop(key, None)
        uid = self._uids.pop(key, None)
        if uid is not None:
            self._forget_uid(uid)

    def _forget_uid(self, uid: str) -> None:
        self._keys.pop(uid, None)
        self._planner.forget(uid)
        self._clock_steps.forget(uid)
        self._resync.forget(uid)
        self._probe_output.forget(uid)
        self._executor.refusals.forget(uid)
        self.reports.forget(uid)


def _is_undefined(error: KubeError) -> bool:
    """Whether the server does not know the resource at all, so that no object is missing."""
    return isinstance(error, NotFound) and not error.reason
