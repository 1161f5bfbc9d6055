"""The one controller: for every job, compare what is with what should be, and act.

It speaks the Kubernetes API and nothing else, so that it runs the same against the embedded API
server and against a real cluster. It knows no kind from another: the planner does.
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
from trainyard.kube.errors import KubeError
from trainyard.kube.reflector import Reflector, all_synced
from trainyard.kube.resources import NAMESPACES, NODES, PODS, Resource
from trainyard.lifecycle.actions import Action, Plan
from trainyard.lifecycle.observed import Flavor, Observed, Owned, Pod
from trainyard.operator.channel.report_intake import ReportIntake
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.operator_logging import job_log_context
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
    """Watches, cache, queue and executor, wired together."""

    def __init__(self, client: Client, settings: OperatorSettings, host: RuntimeContext) -> None:
        self._client = client
        self._settings = settings
        self._host = host
        self.synced = asyncio.Event()
        """Set once the cluster has been read."""
        self.is_working = False
        self._since: datetime | None = None
        """When it began to work: what pods say before is lost."""
        self._all: list[Reflector[Any]] = []
        self.queue: WorkQueue[JobKey] = WorkQueue(
            host.now,
            retry_min_seconds=settings.retry_min,
            retry_max_seconds=settings.retry_max,
            waited=host.meter.waited,
        )
        self._planner = Planner(settings)
        self._words = LaunchProbeOutput(client, host.now)
        self._keys: dict[str, JobKey] = {}
        self._uids: dict[JobKey, str] = {}
        self._ready_nodes: dict[str, bool] = {}
        self._in_vain: dict[JobKey, tuple[Action, ...]] = {}
        self._kinds = served_kinds(settings)
        apart = bool(settings.namespaces)
        self.jobs: dict[str, ObjectCache[JobRecord]] = {
            kind.kind: ObjectCache(lambda job: job.uid, self._job_changed, by_namespace=apart)
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
                ObjectCache(lambda child: child.owner_uid, self._child_changed, by_namespace=apart),
                decode,
            )
            for resource, decode in watched_resources(settings).items()
        }
        cache = ClusterCache(self.jobs, self.children)
        pods = self.children[PODS].store
        self._doubts = TakeoverResync(client, self.jobs, pods, settings.parallel_writes)
        self._executor = Executor(client, cache, settings, host)
        self.recorder = self._executor.recorder
        self.reports = ReportIntake(host.now, self._wake, settings.lifecycle.progress_seconds)
        if host.diary is not None:
            host.diary.begin(settings)

    async def run(self, ready: asyncio.Event | None = None) -> None:
        """Look after all jobs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.watch())
            await self.synced.wait()
            if ready is not None:
                ready.set()
            await self.work()

    async def watch(self) -> None:
        """Keep the cache up to date until cancelled; `synced` is set once it is whole."""
        async with asyncio.TaskGroup() as group:
            reflectors = self._all = self._reflectors()
            for reflector in reflectors:
                group.create_task(reflector.run())
            await all_synced(reflectors)
            self.synced.set()

    async def work(self) -> None:
        """Act on what `watch` sees until cancelled; may be called again afterwards."""
        self.is_working, self._since = True, self._host.now()
        self._doubts.begin()
        try:
            # Nobody knows here what was done for which job, or at what time it wants to be looked
            # at: another may have worked until now.
            for job in chain.from_iterable(self.jobs.values()):
                self.queue.add(job.key)
            async with asyncio.TaskGroup() as group:
                group.create_task(self.queue.run())
                group.create_task(self.recorder.run())
                for _ in range(self._settings.workers):
                    group.create_task(self._work())
        finally:
            self.is_working = False
            if self._host.drains_events:
                await self._flush_events()

    @property
    def problems(self) -> list[str]:
        """What it is not shown of all that it needs; nodes it can do without."""
        return [each.problem for each in self._all if each.problem and each.resource != NODES]

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
            rng=self._host.rng,
            ended=self._host.meter.watch_ended,
        )
        # Our own kinds may not be installed, and nodes not be shown to us; pods must be seen.
        reflectors = []
        for place in settings.namespaces or (None,):
            reflectors += [
                make(
                    each.resource,
                    each.decode,
                    each.store.part(place),
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
                    self.jobs[kind.kind].part(place),
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
        """The job with that UID, if it is known."""
        return self._keys.get(uid)

    def looks_after(self, namespace: str) -> bool:
        """Whether jobs of the namespace are for this operator."""
        return (
            not self._settings.namespace_selector or self.namespaces.get("", namespace) is not None
        )

    # What changed, and whose pass that calls for.
    def _job_changed(self, job: JobRecord) -> None:
        before = self._uids.get(job.key)
        if before is not None and before != job.uid:
            self._forget_uid(before)
        self._uids[job.key] = job.uid
        self._keys[job.uid] = job.key
        if self.is_working:
            self.queue.add(job.key)
        elif self.jobs[job.key.kind].get(job.namespace, job.name) is None:
            self._forget(job.key)  # no pass will find that it is gone

    def _child_changed(self, child: Pod | Owned) -> None:
        key = self._keys.get(child.owner_uid)
        if self.is_working and key is not None and key.namespace == child.namespace:
            self.queue.add(key)

    def _node_changed(self, node: Node) -> None:
        """A node that reports what it always does, as all do every now and then, is no news."""
        ready = self.nodes.get("", node.name) is not None and node.is_ready
        if self._ready_nodes.get(node.name) is ready:
            return
        if self.nodes.get("", node.name) is None:
            self._ready_nodes.pop(node.name, None)
        else:
            self._ready_nodes[node.name] = ready
        if self.is_working:  # before, all jobs are to be looked at anyway
            for pod in self.children[PODS].store:
                if pod.node == node.name:
                    self._child_changed(pod)

    def _namespace_changed(self, namespace: Namespace) -> None:
        """Its labels have come to fit, or do not any more."""
        if self.is_working:
            for store in self.jobs.values():
                for job in store:
                    if job.namespace == namespace.name:
                        self._job_changed(job)

    def _flavor_changed(self, _: Flavor) -> None:
        """Jobs may wait to be told where their pods run."""
        if self.is_working:
            for owned in self.children[WORKLOADS].store:
                self._child_changed(owned)

    def _wake(self, uid: str) -> None:
        """Its pods have told something."""
        key = self._keys.get(uid)
        if self.is_working and key is not None:
            self.queue.add(key)

    async def _work(self) -> None:
        loop, settings = asyncio.get_running_loop(), self._settings
        while True:
            key = await self.queue.get()
            started, job = loop.time(), self.jobs[key.kind].get(key.namespace, key.name)
            retry_seconds = pause = 0.0
            try:
                with job_log_context(key):
                    retry_seconds = await self._try(key)
            finally:
                # Creating the first pods takes long and does not come again: the status that
                # tells of them need not wait (decision 338).
                if job is None or job.status:
                    pause = (loop.time() - started) * settings.rest_factor
                pause = max(settings.rest_min, min(settings.rest_max, pause))
                self.queue.done(key, rest_seconds=max(retry_seconds, pause))

    async def _try(self, key: JobKey) -> float:
        """One pass, whatever becomes of it; returns the seconds for which to leave the job."""
        started, rest, result = asyncio.get_running_loop().time(), 0.0, "cut off"
        try:
            async with asyncio.timeout(self._settings.pass_timeout):
                result = (await self._pass(key)).name.lower()
        except (KubeError, TimeoutError) as error:
            rest, result = self.queue.retry(key), "error"
            log.warning("%s; trying again in %.1f s", error or "the pass took too long", rest)
        except Exception:
            # A defect met by one job must not stop the others (decision 44).
            rest, result = self.queue.retry(key), "error"
            log.exception("pass failed; trying again in %.1f s", rest)
        finally:
            if self._host.diary is not None:
                self._host.diary.ended(key, result)
        self._host.meter.passed(key, result, asyncio.get_running_loop().time() - started)
        return rest

    async def _pass(self, key: JobKey) -> ReconcileResult:
        """One look at one job."""
        job = self.jobs[key.kind].get(key.namespace, key.name)
        if job is None or job.is_deleting or not self.looks_after(key.namespace):
            # What it owned is the garbage collector's, or another operator's.
            self._forget(key)
            return ReconcileResult.JOB_GONE
        words = await self._words_of(job)
        if self._doubts.about(job) and self._calls_for_anything(job, words):
            await self._doubts.settle(job, self._planner.pod_names(job))
            self.queue.add(key)
            return ReconcileResult.STALE
        made = self._plan(job, words)
        self.queue.wake_at(key, made.wake_at)
        outcome = await self._executor.execute(job, made)
        if outcome is ReconcileResult.JOB_GONE:
            self._forget(key)
            return outcome
        if outcome is ReconcileResult.STALE:
            self._doubts.doubt(job.uid)
            # The newer job arrives by the watch; the retry is for when that takes long.
            self.queue.retry(key)
            return outcome
        if outcome is ReconcileResult.UNCHANGED:
            self.queue.succeeded(key)
        elif self._was_in_vain(key, made):
            self.queue.retry(key)
        else:
            self.queue.succeeded(key)
            # Own writes are in the cache, and may call for more.
            self.queue.add(key)
        return outcome

    def _was_in_vain(self, key: JobKey, made: Plan) -> bool:
        """Whether the very same actions were carried out before, and had no effect."""
        before = self._in_vain.pop(key, None)
        if made.status is not None or not made.actions:
            return False
        self._in_vain[key] = made.actions
        return made.actions == before

    async def _words_of(self, job: JobRecord) -> Mapping[str, str]:
        if not job.kind.launches_over_ssh:
            return {}
        pods = self.children[PODS].store.owned_by(job.namespace, job.uid)
        return await self._words.of(job.uid, pods)

    def _calls_for_anything(self, job: JobRecord, words: Mapping[str, str]) -> bool:
        observed = replace(self._observe(job), words=words)
        made = self._planner.plan(job, observed, self._host.now())
        return made.status is not None or bool(made.actions)

    def _plan(self, job: JobRecord, words: Mapping[str, str]) -> Plan:
        observed, now = replace(self._observe(job), words=words), self._host.now()
        answer: Plan | Exception | None = None
        try:
            answer = self._planner.plan(job, observed, now)
        except Exception as error:
            answer = error
            raise
        finally:
            if self._host.diary is not None and answer is not None:
                self._host.diary.decided(job, observed, now, answer)
        return answer

    def _observe(self, job: JobRecord) -> Observed:
        owned = [
            child
            for resource, children in self.children.items()
            if resource != PODS
            for child in children.store.owned_by(job.namespace, job.uid)
        ]
        pods: tuple[Pod, ...] = tuple(self.children[PODS].store.owned_by(job.namespace, job.uid))
        self._executor.refusals.seen(
            job.uid,
            chain(((PODS, pod.name) for pod in pods), ((o.resource, o.name) for o in owned)),
        )
        return Observed(
            pods=pods,
            owned=tuple(owned),
            refusals=self._executor.refusals.refused_to(job.uid),
            conflicts=self._executor.refusals.taken_from(job.uid),
            lost_nodes=self._lost_nodes(pods),
            flavors={flavor.name: flavor for flavor in self.flavors},
            heard=self.reports.of(job.uid),
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
        self._in_vain.pop(key, None)
        uid = self._uids.pop(key, None)
        if uid is not None:
            self._forget_uid(uid)

    def _forget_uid(self, uid: str) -> None:
        self._keys.pop(uid, None)
        self._planner.forget(uid)
        self._doubts.forget(uid)
        self._words.forget(uid)
        self._executor.refusals.forget(uid)
        self.reports.forget(uid)
