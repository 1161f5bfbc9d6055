"""One pod on this node, from its binding to its end.

The worker is level-triggered: each step looks at the pod as wanted and at its containers as they
are, does what is due, and says when to look again. Containers' ends, changes of the pod and the
results of probes only wake it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from trainyard.embedded.node.containers import cgroups, start_request
from trainyard.embedded.node.containers.container_environment import NotReady
from trainyard.embedded.node.containers.container_probes import Prober, ProbeTarget, run_hook
from trainyard.embedded.node.containers.container_stopper import ContainerStopper
from trainyard.embedded.node.pods import ephemeral, pod_status
from trainyard.embedded.node.pods.pod_object import PodObject
from trainyard.embedded.node.pods.pod_resources import NodeContext, PodResources
from trainyard.embedded.node.pods.pod_status import ContainerRun
from trainyard.embedded.node.pods.wakeup import WakeUp
from trainyard.embedded.node.volumes.host_folders import PodRefused
from trainyard.podruntime import log_reader
from trainyard.podruntime.protocol import ContainerState, PodState
from trainyard.schema import times
from trainyard.schema.errors import TrainyardError
from trainyard.schema.rules.pod_spec_rules import grace_seconds

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
_START_SECONDS = 0.5  # decision 355


class PodWorker:
    """Runs one pod; ``run()`` returns when the pod has ended and its status says so, or when the
    pod object is gone."""

    def __init__(self, node: NodeContext, pod: dict[str, Any], known: PodState | None) -> None:
        """``known``: what the runtime already has of this pod, after a restart of the agent."""
        self._node = node
        self._object = PodObject(node.api, node.events, pod)
        self._runtime_state = known
        spec = pod["spec"]
        self.runs = [ContainerRun(c, is_init=True) for c in spec.get("initContainers", ())]
        self.runs += [ContainerRun(c) for c in spec["containers"]]
        self.runs += ephemeral.added(pod, self.runs)
        self.resources = PodResources(node, pod, self._object.warn)
        self._wake = WakeUp()
        self._is_gone = self._is_done = False
        self._terminal_phase = ""
        self._reason = self._message = ""
        self._stopped: tuple[int, ...] = ()
        self._stop_task: asyncio.Task[None] | None = None
        self._prober = Prober(self._on_probe)
        self._stopper = ContainerStopper(self._prober, self._is_killed_now)
        self._recover(pod.get("status", {}))

    # -- news ---------------------------------------------------------------------------------

    @property
    def is_end_written(self) -> bool:
        """Whether the pod's end has been written to the registry."""
        return bool(self._terminal_phase) and not self._wake.is_set()

    @property
    def pod(self) -> dict[str, Any]:
        """The pod as it was told of last."""
        return self._object.latest

    def pod_changed(self, pod: dict[str, Any], *, is_gone: bool) -> None:
        if is_gone:
            self._is_gone = True
        else:
            self._object.latest = self.resources.pod = pod
            self.runs += ephemeral.added(pod, self.runs)
        self._wake.set()

    def has_log_ended(self, container: str) -> bool:
        """Whether a container will write nothing more to the log of its current run."""
        return self._is_gone or not any(r.is_active for r in self.runs if r.name == container)

    def is_running(self, container: str) -> bool:
        return any(r.phase == "running" for r in self.runs if r.name == container)

    def container_changed(self, event: ContainerState) -> None:
        """It has started or ended."""
        run = next((r for r in self.runs if r.name == event.name), None)
        if run is None or run.attempt != event.attempt or run.phase == "terminated":
            return
        if event.state == "exited":
            self._on_exit(run, event)
        elif event.state == "running" and run.phase != "running":
            self._on_start(run, event)
        self._wake.set()

    def _on_start(self, run: ContainerRun, event: ContainerState, *, is_new: bool = True) -> None:
        """It runs; not `is_new`: as it did under an earlier agent, which has told so."""
        run.phase, run.reason, run.message = "running", "", ""
        run.started_at, run.pid, run.gpus = event.started_at, event.pid, event.gpus
        if is_new:
            run.has_started = "startupProbe" not in run.spec
            run.is_ready = (
                run.has_started and not run.is_ephemeral and "readinessProbe" not in run.spec
            )
            self._object.emit_event("Started", f"Started container {run.name}")
        if self._terminal_phase:
            return
        self._prober.start(self._probe_target(run))
        if is_new and (hook := run.spec.get("lifecycle", {}).get("postStart")):
            self._prober.spawn(self._post_start(run, hook))

    def _on_exit(self, run: ContainerRun, event: ContainerState) -> None:
        has_run = run.phase == "running"
        run.phase, run.is_ready, run.has_started = "terminated", False, False
        run.exit_code = 255 if event.code is None else event.code
        run.signal = event.signal
        run.started_at, run.finished_at = event.started_at, event.finished_at
        run.reason, run.message = self._termination(run, event, has_run)
        if event.full:
            self._object.emit_event(
                "LayerFull", start_request.layer_full_message(run.spec), "Warning"
            )
        if not run.is_pids_limit_reported:
            self._report_pids_limit_of(run)
        self._prober.stop(run.name)

    def report_pids_limit(self) -> None:
        """That a container has as many processes as it may, once a run; it goes on all the same."""
        for run in self.runs:
            if run.is_active and not run.is_pids_limit_reported:
                self._report_pids_limit_of(run)

    def set_stopped_processes(self, stopped: tuple[int, ...]) -> None:
        """Which of its observed processes a signal has stopped."""
        if stopped != self._stopped:
            self._stopped = stopped
            self._wake.set()

    def _report_pids_limit_of(self, run: ContainerRun) -> None:
        if cgroups.pids_limit_hits(run.cgroups):
            run.is_pids_limit_reported = True
            limit = self._node.settings.pids_limit
            self._object.emit_event(
                "PidsLimitReached",
                f"container {run.name} may have {limit} processes and threads and wanted more; "
                "trainyard up or run --pids-limit N allows another number",
                "Warning",
            )

    def _termination(
        self, run: ContainerRun, event: ContainerState, has_run: bool
    ) -> tuple[str, str]:
        if event.error:
            self._object.emit_event("Failed", f"container {run.name}: {event.error}", "Warning")
            return "" if has_run else "ContainerCannotRun", event.error
        reason = ""
        if run.exit_code and cgroups.had_oom_kill(run.cgroups):
            reason = "OOMKilled"
        if text := self.resources.termination_message(run.name):
            return reason, text
        policy = run.spec.get("terminationMessagePolicy", "File")
        if run.exit_code and policy == "FallbackToLogsOnError":
            return reason, log_reader.last_lines(self.resources.log_path(run))
        return reason, start_request.layer_full_message(run.spec) if event.full else ""

    def _on_probe(self, run: ContainerRun, outcome: str, message: str) -> None:
        """A probe's verdict; see Prober."""
        if outcome == "started":
            run.has_started = True
            run.is_ready = "readinessProbe" not in run.spec
        elif outcome in ("ready", "unready"):
            run.is_ready = outcome == "ready"
        elif outcome == "failing" and self._stop_task is None:
            self._object.emit_event("Unhealthy", message, "Warning")
        elif outcome == "failed":
            is_restarted = run.is_sidecar or self._object.restart_policy != "Never"
            text = f"Container {run.name} failed {message}"
            ending = ", will be restarted" if is_restarted else ""
            self._object.emit_event("Killing", f"{text}{ending}")
            probe = run.spec[message.partition(" ")[0] + "Probe"]
            grace = probe.get("terminationGracePeriodSeconds")
            self._prober.spawn(self._stop_one(run, grace))
        self._wake.set()

    # -- the loop -----------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            if self._terminal_phase and self._runtime_state is not None:
                # It ended just before the earlier agent did.
                await self.resources.release(self.runs)
            while not self._is_gone:
                self._wake.clear()
                delay = await self._reconcile()
                if self._is_done:
                    return
                await self._wake.wait_at_most(delay)
        finally:
            await self._prober.close()
            if self._stop_task is not None:
                self._stop_task.cancel()
        if not self._terminal_phase:
            # The object is gone, by force: nothing of it may go on.
            await self.resources.release(self.runs)

    async def _reconcile(self) -> float | None:
        """One step, and its outcome written down; a failure is told and tried again."""
        try:
            delay = await self._step()
            if any(run.phase == "starting" for run in self.runs):
                await self._wake.wait_at_most(_START_SECONDS)
            await self._write_status()
            if self._terminal_phase and self._object.is_deleted:
                await self._object.remove()
                self._is_done = True
            elif self._terminal_phase and not self._wake.is_set():
                self._is_done = True
            return delay
        except (TrainyardError, OSError) as error:
            self._object.warn("NodeError", f"{error}")
        except Exception:
            name = self._object.latest["metadata"]["name"]
            _log.exception("pod %s: a defect of the node agent; trying again", name)
        return _RETRY_SECONDS

    async def _step(self) -> float | None:
        """Do what is due; returns the seconds after which to look again at the latest."""
        if self._terminal_phase:
            return None
        if self._should_stop():
            counted = [r for r in self.runs if not (r.is_sidecar or r.is_ephemeral)]
            is_failed = self._reason or not all(r.has_succeeded for r in counted)
            await self._stop_or_finish(
                self._object.terminal_phase or ("Failed" if is_failed else "Succeeded")
            )
            return self._seconds_to_deadline()
        phase = pod_status.pod_phase(self.runs, self._object.restart_policy)
        if phase in pod_status.ENDED:
            await self._stop_or_finish(phase)
            return None
        if not self.resources.address:
            await self.resources.set_up_network()
        delay = await self._run_containers()
        due = [seconds for seconds in (delay, self._seconds_to_deadline()) if seconds is not None]
        return min(due, default=None)

    async def _stop_or_finish(self, phase: str) -> None:
        """Stop what still runs; once nothing does, the pod is over."""
        if not any(run.is_active for run in self.runs):
            self._terminal_phase = phase
            await self.resources.release(self.runs)
        elif self._stop_task is None:
            self._stop_task = asyncio.create_task(self._stop_all())

    def _grace_seconds(self) -> float:
        metadata, spec = self._object.latest["metadata"], self._object.spec
        wanted = metadata.get("deletionGracePeriodSeconds")
        return float(grace_seconds(spec) if wanted is None else wanted)

    def _seconds_to_deadline(self) -> float | None:
        limit: float | None = self._object.spec.get("activeDeadlineSeconds")
        if limit is None or self._reason:
            return None
        return max(0.0, limit - (time.time_ns() - self._object.started_at) / 1e9)

    def _should_stop(self) -> bool:
        left = self._seconds_to_deadline()
        if left is not None and left <= 0:
            self._reason = "DeadlineExceeded"
            self._message = "Pod was active on the node longer than the specified deadline"
        return bool(self._reason or self._object.terminal_phase) or self._object.is_deleted

    # -- starting -----------------------------------------------------------------------------

    async def _run_containers(self) -> float | None:
        """Start and restart what is due, init containers one after the other.

        Before them come ephemeral ones, which may be there to see why those do not get on.
        """
        delays = [await self._start_if_due(run) for run in self.runs if run.is_ephemeral]
        for run in self.runs:
            if run.is_ephemeral:
                continue
            delays.append(await self._start_if_due(run))
            if run.is_init and not (run.has_started if run.is_sidecar else run.has_succeeded):
                break
        return min((delay for delay in delays if delay is not None), default=None)

    async def _start_if_due(self, run: ContainerRun) -> float | None:
        """Start the container if it is to run now; or how long until then."""
        if run.is_active:
            return None
        now = time.monotonic()
        if run.phase == "terminated":
            if not pod_status.will_restart(run, self._object.restart_policy):
                return None
            pod_status.schedule_restart(run, self._node.settings, now)
            self._object.emit_event("BackOff", run.message, "Warning")
        if run.retry_at > now:
            return run.retry_at - now
        try:
            await self.resources.start_container(run)
        except NotReady as error:
            run.phase, run.reason, run.message = "waiting", error.reason, str(error)
            self._object.warn(error.reason, str(error))
            run.retry_at = now + _RETRY_SECONDS
            return _RETRY_SECONDS
        except PodRefused as error:
            pod_status.mark_refused(run, str(error), time.time_ns())
            self._object.warn("Failed", str(error))
            self._wake.set()
        return None

    async def _post_start(self, run: ContainerRun, hook: dict[str, Any]) -> None:
        if problem := await run_hook(self._probe_target(run), hook):
            self._object.emit_event("FailedPostStartHook", problem, "Warning")
            await self._stop_one(run)

    # -- stopping -----------------------------------------------------------------------------

    async def _stop_all(self) -> None:
        active = ", ".join(run.name for run in self.runs if run.is_active)
        self._object.emit_event("Killing", f"Stopping container {active}")
        targets = [self._probe_target(run) for run in self.runs]
        try:
            await self._stopper.stop_all(targets, self._grace_seconds())
        except Exception:
            _log.exception("pod %s cannot be stopped; trying again", self.pod["metadata"]["name"])
            await asyncio.sleep(_RETRY_SECONDS)
        finally:
            self._stop_task = None
            self._wake.set()

    async def _stop_one(self, run: ContainerRun, grace: float | None = None) -> None:
        """Within `grace` seconds; None: those of the pod."""
        wanted = self._grace_seconds() if grace is None else grace
        await self._stopper.stop(self._probe_target(run), wanted)

    def _probe_target(self, run: ContainerRun) -> ProbeTarget:
        return ProbeTarget(self._node.runtime, self._object.uid, self.resources.address, run)

    def _is_killed_now(self) -> bool:
        """A second delete may shorten the grace period to nothing."""
        return (
            self._is_gone or self._object.latest["metadata"].get("deletionGracePeriodSeconds") == 0
        )

    async def _write_status(self) -> None:
        if self._is_gone:
            return
        phase = self._terminal_phase or pod_status.pod_phase(self.runs, self._object.restart_policy)
        if not self._terminal_phase and phase in pod_status.ENDED:
            phase = "Running"  # something is still being stopped
        addresses = (self.resources.address, self._node.settings.host_ip)
        why = (self._reason, self._message)
        told = pod_status.PodStatusFields(
            phase, *why, *addresses, self._object.started_at, self._stopped
        )
        self._is_gone = not await self._object.write_status(self.runs, told)

    # -- after a restart of the agent -------------------------------------------------------------

    def _recover(self, old: dict[str, Any]) -> None:
        """Go on where an earlier agent stopped, from the pod's status and what the runtime has."""
        if old.get("startTime"):
            self._object.started_at = times.nanoseconds(old["startTime"])
        if old.get("phase") in pod_status.ENDED:
            self._terminal_phase = old["phase"]
        self._reason, self._message = old.get("reason", ""), old.get("message", "")
        kinds = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        statuses = [seen for kind in kinds for seen in old.get(kind, ())]
        for run in self.runs:
            if seen := next((s for s in statuses if s["name"] == run.name), None):
                pod_status.restore_run(run, seen)
        if self._runtime_state is not None:
            self.resources.adopt_network(self._runtime_state.address)
        for found in self._runtime_state.containers if self._runtime_state else ():
            self._adopt_container(next(r for r in self.runs if r.name == found.name), found)
        for run in self.runs:
            known = self._runtime_state.containers if self._runtime_state else ()
            if run.is_active and (run.name, run.attempt) not in (
                (c.name, c.attempt) for c in known
            ):
                self._recover_lost_container(run)

    def _adopt_container(self, run: ContainerRun, found: ContainerState) -> None:
        """Go on with a container that the runtime knows of."""
        if found.attempt < run.attempt:
            return
        has_run = run.phase == found.state == "running" and found.attempt == run.attempt
        self.resources.restore_container(run, found)
        if has_run:
            self._on_start(run, found, is_new=False)
        else:
            run.attempt, run.phase = found.attempt, "starting"
            self.container_changed(found)

    def _recover_lost_container(self, run: ContainerRun) -> None:
        """Running when last seen, unknown now: its outcome may be in a file, else it is lost."""
        record = log_reader.exit_record(self.resources.log_path(run))
        if record is not None:
            self._on_exit(run, record)
        else:
            pod_status.mark_lost(run, time.time_ns())

    def runtime_gone(self) -> None:
        """The runtime is dead, and every container with it."""
        for run in self.runs:
            if run.is_active:
                self._recover_lost_container(run)
        self._wake.set()
