"""One simulated run: the real controller, the modelled cluster, and the scenario's faults."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import logging
import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

import orjson

from tests.simulation import job_policies, ssh_launches
from tests.simulation.cluster import JOB_PLURALS, NODES, Cluster, WallClock
from tests.simulation.in_place_pods import InPlacePods
from tests.simulation.invariants import TERMINAL, Monitor, Violation
from tests.simulation.kueue_queues import Queues
from tests.simulation.network import CRASHES, Call, Conditions, Fault, WatchFault, Wire
from tests.simulation.node_checks import Checkers
from tests.simulation.pod_reports import ADDRESS, PROGRESS_SECONDS, Reporters, reports
from tests.simulation.reconcile_result import ReconcileResult
from tests.simulation.scenario import FAULTS_END, Scenario, draw
from tests.simulation.server import Key, ModelServer, Obj, Refused, owner_uid
from tests.simulation.viewer_judges import Shown
from tests.simulation.virtual_time import StuckError, virtual_loop
from trainyard.kinds.kind_registry import JOB_KINDS
from trainyard.kube.client import Client
from trainyard.lifecycle.actions import Plan
from trainyard.lifecycle.observed import Observed
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.reconcile.controller import Controller
from trainyard.operator.reconcile.job_records import JobKey, JobRecord
from trainyard.operator.reconcile.reconcile_log import ReconcileLog, Sink
from trainyard.operator.runtime_context import RuntimeContext

TIME_LIMIT = 4 * 3600.0
CALM_SECONDS = 220.0
"""Longer than any wait of the controller's but for a restart, that for a silent watch included."""
LEAST_CALLS = 50
MOST_CALLS = 5000
"""More than any run needs: a controller that goes round in circles."""


@dataclass(slots=True)
class Report:
    """What a run amounted to."""

    seed: int
    calls: int = 0
    replicas: int = 0
    crashes: int = 0
    virtual_seconds: float = 0.0
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Faults that happened, with the phase of the first job at that moment."""
    phases: tuple[str, ...] = ()
    texts: Counter[str] = field(default_factory=Counter, repr=False)
    """Texts of diagnoses that were judged, by the rows that judged them."""
    digest: str = ""
    """Of everything that was stored, in order: equal digests are equal runs."""

    @property
    def faults(self) -> int:
        """How many faults happened."""
        return sum(self.hits.values())


def simulate(
    seed: int, *, without: Collection[str] = (), sink: Sink | None = None, replayable: bool = False
) -> Report:
    """Run one seed to its end; raises `Violation`, with the seed in its text.

    `without` leaves elements of the scenario out; `sink` takes in the log of every reconcile,
    `replayable` in full.
    """
    logging.getLogger("trainyard").setLevel(logging.CRITICAL)
    with virtual_loop() as loop:
        written: ReconcileLog | None = None
        if sink is not None:
            written = ReconcileLog(sink, lambda: round(loop.time(), 6), replayable=replayable)
        run = Run(draw(seed).without(without), loop, written)
        try:
            loop.run_until_complete(run.play())
        except (Violation, StuckError) as violation:
            if written:
                written.log_incident("violation", text=str(violation))
            raise Violation(f"seed {seed}: {violation}") from None
        return run.report


class Listener(ReconcileLog):
    """Has the monitor judge every reconcile; `written` keeps the log, if there is to be one."""

    def __init__(self, monitor: Monitor, written: ReconcileLog | None) -> None:
        self._monitor = monitor
        self._written = written

    def start(self, settings: OperatorSettings) -> None:
        """See ReconcileLog."""
        if self._written:
            self._written.start(settings)

    def log_decision(
        self, job: JobRecord, observed: Observed, now: datetime, answer: Plan | Exception
    ) -> None:
        """See ReconcileLog."""
        if self._written:
            self._written.log_decision(job, observed, now, answer)
        if isinstance(answer, Plan) and job.kind.is_viewer:
            self._monitor.check_viewer(Shown.of(dict(job.raw), observed, answer))
        elif isinstance(answer, Plan):
            self._monitor.check_reconcile(ReconcileResult.of(dict(job.raw), observed, answer, now))

    def log_request(self, job: JobRecord, what: str, ended: str) -> None:
        """See ReconcileLog."""
        if self._written:
            self._written.log_request(job, what, ended)

    def log_end(self, key: JobKey, how: str) -> None:
        """See ReconcileLog."""
        if self._written:
            self._written.log_end(key, how)


class Process(NamedTuple):
    """One controller, which works once it is its turn."""

    wire: Wire
    turn: asyncio.Event
    task: asyncio.Task[None]
    controller: Controller


async def _look_after(controller: Controller, turn: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(controller.watch())
        await turn.wait()
        await controller.synced.wait()
        await controller.work()


class Run:
    """A scenario being played."""

    def __init__(
        self,
        scenario: Scenario,
        loop: asyncio.AbstractEventLoop,
        reconcile_log: ReconcileLog | None,
    ) -> None:
        self.scenario = scenario
        self.loop = loop
        self.reconcile_log = reconcile_log
        self.clock = WallClock(loop)
        self.rng = random.Random(scenario.seed ^ 0x5EED)
        self.server = ModelServer(self.clock, random.Random(scenario.seed ^ 0xA11))
        self.cluster = Cluster(
            self.server,
            random.Random(scenario.seed ^ 0xC105),
            loop,
            lambda pod: scenario.outcome(self.faults_last, self._owner(pod), pod),
            self._peers_die,
            self._launch,
            self._is_launched,
            self._crashes,
            scenario.messages.of,
            names_oom=scenario.launches is not None,
        )
        self.monitor = Monitor(self.server, loop)
        self.server.observers += [self.monitor, self.cluster]
        self.queues: Queues | None = None
        if scenario.queue is not None:
            rng = random.Random(scenario.seed ^ 0x0EE)
            self.queues = Queues(self.server, rng, loop, copy.deepcopy(scenario.queue))
            self.server.observers.append(self.queues)
            self.monitor.is_queued = True
        self.conditions = Conditions(self._fate, self._touch)
        self.report = Report(scenario.seed)
        self.faults_last = True
        self.incarnation = 0
        self.call_number = 0
        self.controller: asyncio.Task[None] | None = None
        self.leader: Controller | None = None
        self.standby: Process | None = None
        self.keys = [_key(job) for job in scenario.jobs]
        self.settings = scenario.settings
        self.reporters: Reporters | None = None
        self.checkers: Checkers | None = None
        if reports(scenario.seed):
            self.settings = replace(
                self.settings, channel_address=ADDRESS, progress_seconds=PROGRESS_SECONDS
            )
            rng = random.Random(scenario.seed ^ 0x401D)
            self.cluster.in_place_pods = InPlacePods(
                self.cluster,
                rng,
                lambda: self.leader,
                self.monitor.attempt_ended,
                self.monitor.fail,
            )
            self.reporters = Reporters(self.server, scenario.seed, self.monitor.fail, loop)
            self.server.observers.append(self.reporters)
            self.checkers = Checkers(
                self.cluster, scenario.seed, lambda: self.leader, self.monitor.fail
            )

    async def play(self) -> None:
        """The whole run."""
        self.cluster.start()
        if self.queues:
            self.queues.start()
        self._start_controller()
        reporting = self.reporters and self.loop.create_task(self.reporters.run(FAULTS_END))
        checking = self.checkers and self.loop.create_task(self.checkers.run(FAULTS_END))
        for step in self.scenario.numbered.values():
            await self._sleep_until(step.at)
            if self.reconcile_log:
                self.reconcile_log.log_incident(step.what, argument=step.argument)
            with contextlib.suppress(Refused):
                getattr(self, f"step_{step.what}")(step.argument)
        await self._sleep_until(FAULTS_END)
        if reporting:
            await reporting
        if checking:
            await checking
        self._stop_faults()
        await self._wait_for_the_end()
        await self._wait_for_calm()
        while not self._is_all_over():  # it seemed so, by a status that somebody else had written
            await self._wait_for_the_end()
            await self._wait_for_calm()
        while self.call_number < LEAST_CALLS:  # a controller that starts again changes nothing
            self._crash()
            await self._sleep_until(self.loop.time() + 60.0)
        self.monitor.check_end()
        self._check()
        self._finish()

    def _owner(self, pod: Obj) -> Obj | None:
        """The job that a pod belongs to, while that is there."""
        uid = owner_uid(pod)
        jobs = (self.server.objects.get(key) for key in self.keys)
        return next((job for job in jobs if job and job["metadata"]["uid"] == uid), None)

    def _peers_die(self, pod: Obj) -> bool:
        """A process group that nobody can rejoin falls apart; other replicas go on.

        The launch of an elastic job forms a new group of those that are left.
        """
        job = self._owner(pod)
        if job is None:
            return False
        elastic = (job["spec"].get("elastic") or {}).get("enabled", False)
        return (
            self.scenario.peers_die
            and job["kind"] != "GenericJob"
            and "torchrunConfig" not in job["spec"]
            and not elastic
            and not job_policies.restarts_one_by_one(job)
            and not job_policies.apart(job)
        )

    def _launch(self, pod: Obj) -> ssh_launches.Launch | None:
        launches = self.scenario.launches
        if launches is None or not ssh_launches.launches(pod):
            return None
        return launches.draw(self.faults_last)

    def _is_launched(self, pod: Obj) -> bool:
        """Its sshd ends when the launch does, or with the job."""
        job = self._owner(pod)
        is_over = job is None or (job.get("status") or {}).get("phase") in TERMINAL
        if is_over or self.scenario.launches is None or not ssh_launches.is_over_ssh(job or {}):
            return False
        pods = list(self.server.owned("pods", owner_uid(pod)))
        if ssh_launches.launches(pod) or (job or {})["spec"].get("runMode", {}).get("debug"):
            return False
        leaders = [each for each in pods if ssh_launches.launches(each)]
        return not any(each["status"].get("phase") in TERMINAL for each in leaders)

    def _crashes(self) -> list[int]:
        boards = self.scenario.boards
        return boards.draw() if boards and self.faults_last else []

    # Time.
    async def _sleep_until(self, moment: float) -> None:
        while self.loop.time() < moment:
            self._check()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(moment - self.loop.time()):
                    await self.monitor.broken.wait()

    def _check(self) -> None:
        if self.monitor.violations:
            raise Violation(self.monitor.violations[0])

    async def _wait_for_the_end(self) -> None:
        while not self._is_all_over():
            await self._sleep_until(self.loop.time() + 5.0)

    async def _wait_for_calm(self) -> None:
        """Until nothing has changed for longer than any wait of the controller's."""
        version = -1
        while version != self.server.version or any(map(_is_terminating, self._pods())):
            version = self.server.version
            await self._sleep_until(self.loop.time() + CALM_SECONDS)
            if self.loop.time() > TIME_LIMIT + 20 * CALM_SECONDS:
                self.monitor.fail("the cluster does not come to rest")
                self._check()

    def _pods(self) -> list[Obj]:
        return self.server.all("pods")

    def _is_all_over(self) -> bool:
        return self.loop.time() >= TIME_LIMIT or all(map(self._is_over, self.keys))

    def _is_over(self, key: Key) -> bool:
        job = self.server.objects.get(key)
        phase = ((job or {}).get("status") or {}).get("phase")
        return job is None or phase in TERMINAL or phase == "Paused"

    def _stop_faults(self) -> None:
        self.faults_last = False
        if self.queues:
            self.queues.kueue.ready_seconds = None
            self.queues.restore()
        self.conditions.lag.clear()
        for node in NODES:
            self.cluster.restore_node(node)
        for key, obj in list(self.server.objects.items()):
            if "squatter" in (obj["metadata"].get("labels") or {}):
                self.server.delete(key)

    def _finish(self) -> None:
        report = self.report
        report.calls = self.call_number
        report.virtual_seconds = self.loop.time()
        report.replicas = sum(map(_replicas, self.scenario.jobs))
        report.texts = self.monitor.texts
        report.phases = tuple(self._phase(key) for key in self.keys)
        digest = hashlib.blake2s()
        for plural in sorted(self.server.log):
            for change in self.server.log[plural]:
                # Keys are random; all else is not.
                status = change.object.get("status")
                digest.update(orjson.dumps([*change[:2], change.object["metadata"], status]))
        report.digest = digest.hexdigest()

    def _phase(self, key: Key) -> str:
        job = self.server.objects.get(key)
        if job is None:
            return "(absent)"
        return (job.get("status") or {}).get("phase") or "(new)"

    # The controller.
    def _start_controller(self) -> None:
        """One that begins with nothing, or one that has stood by and watched until now."""
        self.incarnation += 1
        process = self.standby or self._begin_process(self.incarnation)
        self.standby = None
        self.wire, self.controller = process.wire, process.task
        self.leader = process.controller
        self.wire.stands_by = False
        process.turn.set()
        if self.scenario.has_standby:
            self.standby = self._begin_process(self.incarnation + 1)

    def _begin_process(self, incarnation: int) -> Process:
        wire = Wire(
            self.server,
            self.conditions,
            random.Random(self.scenario.seed * 1000 + incarnation),
            incarnation,
            self._crash,
            self.monitor.sent,
            self.monitor.created,
            stands_by=True,
        )
        jitter = random.Random(incarnation)
        client = Client(wire, jitter=jitter.random)
        # The monitor knows jobs only; pods of other owners would all be strays to it.
        settings = OperatorSettings(lifecycle=self.settings)
        listener = Listener(self.monitor, self.reconcile_log)
        controller = Controller(
            client, settings, RuntimeContext(self.clock, jitter, reconcile_log=listener)
        )
        if self.reporters:
            self.reporters.controllers.append(controller)
        turn = asyncio.Event()
        task = self.loop.create_task(_look_after(controller, turn))
        return Process(wire, turn, task, controller)

    def _crash(self) -> None:
        self.report.crashes += 1
        if self.controller is not None:
            self.wire.is_dead = True
            self.controller.cancel()
            self.controller = self.leader = None
        self.loop.call_later(self.rng.uniform(0.01, 20.0), self._restart)

    def _restart(self) -> None:
        if self.controller is None:
            self._start_controller()

    def _fate(self, call: Call) -> Fault:
        self.call_number += 1
        if self.call_number == MOST_CALLS:
            self.monitor.fail(f"the controller has made {MOST_CALLS} requests")
        if not self.faults_last:
            return Fault.NONE
        fault = self.scenario.call_faults.get(self.call_number)
        if fault is None and self.rng.random() < self.scenario.fault_rate:
            fault = self.rng.choice((Fault.LOST_REQUEST, Fault.LOST_RESPONSE, Fault.SLOW))
        if fault is None or not _fits(fault, call) or (fault in CRASHES and not self.controller):
            return Fault.NONE
        self._hit(fault)
        if self.reconcile_log:
            what = f"{call.method} {call.key.plural}/{call.key.name}"
            self.reconcile_log.log_incident(fault, request=self.call_number, call=what)
        return fault

    def _hit(self, fault: str) -> None:
        self.report.hits[str(fault), self._phase(self.keys[0])] += 1

    def _touch(self, key: Key) -> None:
        with contextlib.suppress(Refused):
            self.server.patch(
                key, {"metadata": {"annotations": {"touched": str(self.call_number)}}}
            )

    # What users do.
    def step_submit(self, number: int) -> None:
        """A job is created."""
        key = self.keys[number]
        self.server.create(key.plural, key.namespace, self.scenario.jobs[number])

    def step_pause(self, number: int) -> None:
        """A job is paused."""
        self._set_paused(number, True)

    def step_resume(self, number: int) -> None:
        """A job is resumed."""
        self._set_paused(number, False)

    def _set_paused(self, number: int, paused: bool) -> None:
        patch = {"spec": {"runMode": {"pause": {"enabled": paused}}}}
        self.server.patch(self.keys[number], patch)

    def step_scale(self, argument: tuple[int, int]) -> None:
        """An elastic job is given another size."""
        number, size = argument
        patch = {"spec": {"elastic": {"expectedReplicas": size}}}
        self.server.patch(self.keys[number], patch)

    def step_delete(self, number: int) -> None:
        """A job is deleted."""
        self.server.delete(self.keys[number])

    def step_forge(self, argument: tuple[int, str, bool]) -> None:
        """Somebody writes another phase into a job's status, and turns conditions round."""
        number, phase, thoroughly = argument
        status = self.server.get(self.keys[number]).get("status")
        if not status or status.get("phase") == phase:
            return
        forged = {**status, "phase": phase}
        if thoroughly and phase in TERMINAL:
            kinds = ("Failed",) if phase == "Failed" else ("Completed",)
            others = [c for c in status.get("conditions") or () if c["type"] not in kinds]
            time = {"lastTransitionTime": others[0]["lastTransitionTime"]} if others else {}
            messages = {"status": "True", "reason": "Forged", "message": "Believe it."}
            forged["conditions"] = [*others, *({"type": k, **messages, **time} for k in kinds)]
        self._hit("forged phase")
        self.monitor.is_forging = True
        self.server.set(self.keys[number], status=forged)
        self.monitor.is_forging = False

    def step_squat(self, number: int) -> None:
        """Somebody else's object holds a name that the job will want."""
        key = self.keys[number]
        metadata = {"name": f"{key.name}-worker-0", "labels": {"squatter": "yes"}}
        self.server.create("services", key.namespace, {"metadata": metadata, "spec": {}})
        self._hit("name taken")

    # What befalls the queue.
    def step_stop_queue(self, seconds: float) -> None:
        """The queue is stopped for a while."""
        if self.queues:
            self._hit("queue stopped")
            self.queues.stop(seconds)

    def step_deactivate(self, seconds: float) -> None:
        """Somebody deactivates a Workload for a while."""
        if self.queues:
            self._hit("Workload deactivated")
            self.queues.deactivate(seconds)

    def step_delete_workload(self, _: float) -> None:
        """Somebody deletes a Workload."""
        if self.queues:
            self._hit("Workload deleted")
            self.queues.delete()

    # What befalls the cluster.
    def step_crash(self, _: None) -> None:
        """The controller dies between two calls."""
        if self.controller is not None:
            self._hit("crash between calls")
            self._crash()

    def step_break_watch(self, argument: tuple[WatchFault, str, float]) -> None:
        """Watches lag, break off, fall silent, or are told that they are too old."""
        fault, plural, seconds = argument
        self._hit(fault)
        if fault is WatchFault.STALE:
            self.conditions.lag[plural] = seconds
            self.loop.call_later(seconds * 2, self.conditions.lag.pop, plural, None)
        elif fault is WatchFault.SILENT:
            self.conditions.silenced_at[plural] = self.loop.time()
        else:
            if fault is WatchFault.EXPIRED:
                self.server.forget_history()
            self.conditions.generation += 1
            self.server.wake_watches()

    def step_evict(self, delete: bool) -> None:
        """A running pod is evicted."""
        pod = self._some_pod()
        if pod is not None:
            self._hit("eviction")
            self.cluster.evict(pod, delete=delete)

    def step_delete_pod(self, _: None) -> None:
        """A pod is deleted from outside."""
        pod = self._some_pod()
        if pod is not None:
            self._hit("deletion from outside")
            self.server.delete(Key("pods", "default", pod["metadata"]["name"]))

    def step_lose_node(self, argument: tuple[str, float]) -> None:
        """A node stops to answer for a while."""
        name, seconds = argument
        self._hit("node loss")
        self.cluster.lose_node(name)
        self.loop.call_later(seconds, self.cluster.restore_node, name)

    def step_set_clock(self, seconds: float) -> None:
        """The wall clock jumps."""
        self._hit("clock jump")
        self.clock.offset += seconds
        self.monitor.clock_is_steady &= seconds > 0

    def _some_pod(self) -> Obj | None:
        pods = self._pods()
        return self.rng.choice(pods) if pods else None


def _key(job: Obj) -> Key:
    return Key(JOB_KINDS[job["kind"]].plural, "default", job["metadata"]["name"])


def _is_terminating(pod: Obj) -> bool:
    return pod["metadata"].get("deletionTimestamp") is not None


def _replicas(job: Obj) -> int:
    types = job["spec"].get("replicaSpecs") or [job["spec"]["worker"]]
    return sum(type_["replicas"] for type_ in types)


def _fits(fault: Fault, call: Call) -> bool:
    """Whether a fault can happen to a request."""
    if fault is Fault.CONFLICT:
        return call.method == "PUT" and call.key.plural in JOB_PLURALS
    if fault is Fault.REFUSED:
        return call.method == "POST" and call.key.plural != "events"
    if fault in (Fault.LATE_WRITE, Fault.CRASH_LATE, Fault.CRASH_AFTER):
        return call.is_write
    return True
