"""One pod on this node, from its binding to its end.

The worker is level-triggered: each reconcile compares the wanted pod with its containers, does what
is due, and returns when to look again. Changes of the pod, ends of containers and results of probes
only wake it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from trainyard.embedded.node.containers import cgroups, start_request
from trainyard.embedded.node.containers.container_environment import NotReady
from trainyard.embedded.node.containers.container_probes import Prober, ProbeTarget, run_hook
from trainyard.embedded.node.containers.container_stopper import ContainerStopper
from trainyard.embedded.node.pods import pod_status
from trainyard.embedded.node.pods.pod_object import PodObject
from trainyard.embedded.node.pods.pod_resources import NodeContext, PodResources
from trainyard.embedded.node.pods.pod_status import ContainerRun
from trainyard.embedded.node.volumes.host_folders import PodRefused
from trainyard.kube.embedded_contract import GRACE_IS_OVER
from trainyard.podruntime import log_reader
from trainyard.podruntime.protocol import ContainerState, PodState
from trainyard.schema import times
from trainyard.schema.errors import TrainyardError
from trainyard.schema.rules.pod_spec_rules import grace_seconds

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
_START_SECONDS = 0.5
"""How long a status waits for containers to start, to save a write (decision 355)."""


class _WakeUp(asyncio.Event):
    """Set when the worker has something to reconcile."""

    async def wait_at_most(self, seconds: float | None) -> None:
        """Return once it is set, or after so many seconds; None waits without a limit."""
        # asyncio.wait_for() swallows a cancellation that comes together with the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait()


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
        self.runs += _added_ephemeral(pod, self.runs)
        self.resources = PodResources(node, pod, self._object.warn)
        self._wake = _WakeUp()
        self._is_gone = self._is_done = False
        self._terminal_phase = ""
        self._reason = self._message = ""
        self._stopped: tuple[int, ...] = ()
        self._stop_task: asyncio.Task[None] | None = None
        self._prober = Prober(self._on_probe)
        self._stopper = ContainerStopper(self._prober, self._is_killed_now, self._report_kill)
        self._recover(pod.get("status", {}))

    # -- observations -----------------------------------------------------------------------

    @property
    def is_end_written(self) -> bool:
        """Whether the pod's end has been written to the registry."""
        return bool(self._terminal_phase) and not self._wake.is_set()

    @property
    def pod(self) -> dict[str, Any]:
        """The newest version of the pod that was observed."""
        return self._object.latest

    def pod_changed(self, pod: dict[str, Any], *, is_gone: bool) -> None:
        """Take in the API's version of the pod; `is_gone`: the object was deleted."""
        if is_gone:
            self._is_gone = True
        else:
            self._object.latest = self.resources.pod = pod
            self.runs += _added_ephemeral(pod, self.runs)
        self._wake.set()

    def has_log_ended(self, container: str) -> bool:
        """Whether a container will write nothing more to the log of its current run."""
        return self._is_gone or not any(r.is_active for r in self.runs if r.name == container)

    def is_running(self, container: str) -> bool:
        return any(r.phase == "running" for r in self.runs if r.name == container)

    def container_changed(self, event: ContainerState) -> None:
        """A container has started or ended."""
        run = next((r for r in self.runs if r.name == event.name), None)
        if run is None or run.attempt != event.attempt or run.phase == "terminated":
            return
        if event.state == "exited":
            self._on_exit(run, event)
        elif event.state == "running" and run.phase != "running":
            self._on_start(run, event)
        self._wake.set()

    def _on_start(self, run: ContainerRun, event: ContainerState, *, is_new: bool = True) -> None:
        """A container runs; not `is_new`: it ran under an earlier agent, which wrote the events."""
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
        """Write an event for each container that reached its limit of processes, once a run."""
        for run in self.runs:
            if run.is_active and not run.is_pids_limit_reported:
                self._report_pids_limit_of(run)

    def set_stopped_processes(self, stopped: tuple[int, ...]) -> None:
        """Take in which observed processes a signal has stopped (process ids in the pod)."""
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
            return reason, self.resources.cut_message(text)
        policy = run.spec.get("terminationMessagePolicy", "File")
        if run.exit_code and policy == "FallbackToLogsOnError":
            text = log_reader.last_lines(self.resources.log_path(run))
            return reason, self.resources.cut_message(text)
        return reason, start_request.layer_full_message(run.spec) if event.full else ""

    def _on_probe(self, run: ContainerRun, outcome: str, message: str) -> None:
        """Take in the result of a probe; see Prober."""
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
        """Run the pod until it has ended or its object is gone; then nothing of it goes on."""
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
        """One step, and the status after it; a failure becomes an event and is tried again."""
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
        """Do what is due; returns the seconds until the next step at the latest, None: no limit."""
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
        """Stop what still runs; once nothing does, the pod has ended with this phase."""
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
        return max(0.0, limit - self._object.age_seconds)

    def _should_stop(self) -> bool:
        left = self._seconds_to_deadline()
        if left is not None and left <= 0:
            self._reason = "DeadlineExceeded"
            self._message = "Pod was active on the node longer than the specified deadline"
        return bool(self._reason or self._object.terminal_phase) or self._object.is_deleted

    # -- starting -----------------------------------------------------------------------------

    async def _run_containers(self) -> float | None:
        """Start and restart what is due, init containers one after the other.

        Ephemeral ones come first: they may be there to find out why an init container hangs.
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
        """Start the container if it is due; returns the seconds until it is, None: not waiting."""
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
        """Stop a container within `grace` seconds; None: the grace period of the pod."""
        wanted = self._grace_seconds() if grace is None else grace
        await self._stopper.stop(self._probe_target(run), wanted)

    def _report_kill(self, container: str) -> None:
        text = f"Container {container} {GRACE_IS_OVER}, and is killed"
        self._object.emit_event("Killing", text)

    def _probe_target(self, run: ContainerRun) -> ProbeTarget:
        return ProbeTarget(self._node.runtime, self._object.uid, self.resources.address, run)

    def _is_killed_now(self) -> bool:
        """Whether a second delete has shortened the grace period to zero."""
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
        fields = pod_status.PodStatusFields(
            phase, *why, *addresses, self._object.started_at, self._stopped
        )
        self._is_gone = not await self._object.write_status(self.runs, fields)

    # -- after a restart of the agent -------------------------------------------------------------

    def _recover(self, old: dict[str, Any]) -> None:
        """Continue after an earlier agent, from the pod's status and the runtime's containers."""
        if old.get("startTime"):
            self._object.adopt(times.nanoseconds(old["startTime"]))
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
        """Continue with a container that the runtime knows."""
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
        """End a run that the runtime does not know; its exit code may be in a file."""
        record = log_reader.exit_record(self.resources.log_path(run))
        if record is not None:
            self._on_exit(run, record)
            return
        pod_status.mark_lost(run, time.time_ns())
        if run.is_main and not pod_status.will_restart(run, self._object.restart_policy):
            self._reason, self._message = pod_status.NODE_LOST
            self._object.emit_event(*pod_status.NODE_LOST, "Warning")

    def runtime_gone(self) -> None:
        """The runtime has died, and every container with it."""
        for run in self.runs:
            if run.is_active:
                self._recover_lost_container(run)
        self._wake.set()


def _added_ephemeral(pod: Mapping[str, Any], runs: Iterable[ContainerRun]) -> list[ContainerRun]:
    """The pod's ephemeral containers, as ``kubectl debug`` adds them, that are not in ``runs``."""
    known = {run.name for run in runs}
    return [
        ContainerRun(_with_command(each), is_ephemeral=True)
        for each in pod["spec"].get("ephemeralContainers", ())
        if each["name"] not in known
    ]


def _with_command(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """No image is pulled, so one that names no command gets a shell (decision 267)."""
    if container.get("command") or container.get("args"):
        return container
    return {**container, "command": ["sh"]}
