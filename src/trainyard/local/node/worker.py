"""One pod on this node, from its binding to its end.

The worker is level-triggered: each step looks at the pod as wanted and at its containers as they
are, does what is due, and says when to look again. Containers' ends, changes of the pod and the
results of probes only wake it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any

from trainyard.kube.errors import NotFound
from trainyard.local.node import cgroups, recovery, start_request, status
from trainyard.local.node.allocation import Node, Place
from trainyard.local.node.fields import NotReady
from trainyard.local.node.probes import Prober, run_hook
from trainyard.local.node.status import Run
from trainyard.local.node.stopping import Stopper
from trainyard.local.objects import Deletion
from trainyard.schema import times
from trainyard.schema.errors import TrainyardError
from trainyard.shim import logs

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0


class PodWorker:
    """Runs one pod; ``run()`` returns when the pod object is gone."""

    def __init__(self, node: Node, pod: dict[str, Any], known: dict[str, Any] | None) -> None:
        """``known``: what the shim already has of this pod, after a restart of the agent."""
        self._node = node
        self.pod = pod
        self._known = known
        spec = pod["spec"]
        self.runs = [Run(c, init=True) for c in spec.get("initContainers", ())]
        self.runs += [Run(c) for c in spec["containers"]]
        self._place = Place(node, pod, self._warn)
        self._wake = asyncio.Event()
        self._gone = self._is_removed = False
        self._over = ""
        self._reason = self._message = ""
        self._stopping: asyncio.Task[None] | None = None
        self._prober = Prober(node.shim, self._probed)
        self._stopper = Stopper(node.shim, self.uid, self._prober, self._is_cut_short)
        self._warned: set[tuple[str, str]] = set()
        self._started_at = time.time_ns()
        self._recover(pod.get("status", {}))

    # -- news ---------------------------------------------------------------------------------

    @property
    def is_told(self) -> bool:
        """Whether the pod's end has been written to the registry."""
        return bool(self._over) and not self._wake.is_set()

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])

    def pod_changed(self, pod: dict[str, Any]) -> None:
        self.pod = pod
        self._wake.set()

    def pod_gone(self) -> None:
        self._gone = True
        self._wake.set()

    def is_over(self, container: str) -> bool:
        """Whether a container will write nothing more to the log of its current run."""
        return self._gone or not any(r.active for r in self.runs if r.name == container)

    def is_running(self, container: str) -> bool:
        return any(r.phase == "running" for r in self.runs if r.name == container)

    def log_path(self, container: str, attempt: int) -> str:
        return self._place.log_path(container, attempt)

    def container_event(self, event: dict[str, Any]) -> None:
        """``started`` or ``exited`` from the shim."""
        run = next((r for r in self.runs if r.name == event["name"]), None)
        if run is None or run.attempt != event["attempt"] or run.phase == "terminated":
            return
        if event["state"] == "exited":
            self._exited(run, event)
        elif event["state"] == "running" and run.phase != "running":
            self._started(run, event)
        self._wake.set()

    def _started(self, run: Run, event: dict[str, Any], *, is_new: bool = True) -> None:
        """It runs; not `is_new`: as it did under an earlier agent, which has told so."""
        run.phase, run.reason, run.message = "running", "", ""
        run.started_at = event["startedAt"]
        if is_new:
            run.started = "startupProbe" not in run.spec
            run.ready = run.started and "readinessProbe" not in run.spec
            self._event("Normal", "Started", f"Started container {run.name}")
        if self._over:
            return
        self._prober.start(self.uid, self._place.address, run)
        if is_new and (hook := run.spec.get("lifecycle", {}).get("postStart")):
            self._prober.spawn(self._post_start(run, hook))

    def _exited(self, run: Run, event: dict[str, Any]) -> None:
        run.phase, run.ready, run.started = "terminated", False, False
        run.code = event["code"] if event["code"] is not None else 255
        run.signal = event["signal"]
        run.started_at, run.finished_at = event["startedAt"], event["finishedAt"]
        run.reason, run.message = self._termination(run, event)
        self._prober.stop(run.name)

    def _termination(self, run: Run, event: dict[str, Any]) -> tuple[str, str]:
        if event["error"]:
            self._event("Warning", "Failed", f"container {run.name}: {event['error']}")
            return "ContainerCannotRun", event["error"]
        reason = ""
        if run.code and cgroups.was_out_of_memory(run.cgroups):
            reason = "OOMKilled"
        if text := self._place.termination_message(run.name):
            return reason, text
        policy = run.spec.get("terminationMessagePolicy", "File")
        if run.code and policy == "FallbackToLogsOnError":
            return reason, logs.last_lines(self.log_path(run.name, run.attempt))
        return reason, ""

    def _probed(self, run: Run, outcome: str, message: str) -> None:
        """A probe's verdict; see Prober."""
        if outcome == "started":
            run.started = True
            run.ready = "readinessProbe" not in run.spec
        elif outcome in ("ready", "unready"):
            run.ready = outcome == "ready"
        elif outcome == "failing" and self._stopping is None:
            self._event("Warning", "Unhealthy", message)
        elif outcome == "failed":
            is_restarted = run.sidecar or self._restart_policy() != "Never"
            text = f"Container {run.name} failed {message}"
            ending = ", will be restarted" if is_restarted else ""
            self._event("Normal", "Killing", f"{text}{ending}")
            self._prober.spawn(self._stop_one(run))
        self._wake.set()

    # -- the loop -----------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            if self._over and self._known is not None:
                await self._place.release(self.runs)  # it ended just before the earlier agent did
            while not self._gone:
                self._wake.clear()
                delay = await self._pass()
                if self._is_removed:
                    return
                if not self._wake.is_set():
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), delay)
        finally:
            await self._prober.close()
            if self._stopping is not None:
                self._stopping.cancel()
        if not self._over:
            await self._place.release(
                self.runs
            )  # the object is gone, by force: nothing of it may go on

    async def _pass(self) -> float | None:
        """One step, and its outcome written down; a failure is told and tried again."""
        try:
            delay = await self._step()
            await self._publish()
            if self._over and self._is_deleted():
                await self._remove()
                self._is_removed = True
            return delay
        except (TrainyardError, OSError) as error:
            self._warn("NodeError", f"{error}")
        except Exception:
            name = self.pod["metadata"]["name"]
            _log.exception("pod %s: a defect of the node agent; trying again", name)
        return _RETRY_SECONDS

    async def _step(self) -> float | None:
        """Do what is due; returns the seconds after which to look again at the latest."""
        if self._over:
            return None
        if self._should_stop():
            if not any(run.active for run in self.runs):
                await self._finish("Failed" if self._reason or not self._all_ok() else "Succeeded")
            elif self._stopping is None:
                self._stopping = asyncio.create_task(self._stop_all())
            return self._deadline_in()
        phase = status.phase_of(self.runs, self._restart_policy())
        if phase in ("Succeeded", "Failed"):
            if not any(run.active for run in self.runs):
                await self._finish(phase)
            elif self._stopping is None:
                self._stopping = asyncio.create_task(self._stop_all())
            return None
        if not self._place.address:
            await self._place.take()
        delay = await self._run_containers()
        due = [seconds for seconds in (delay, self._deadline_in()) if seconds is not None]
        return min(due, default=None)

    def _all_ok(self) -> bool:
        return all(run.succeeded for run in self.runs if not run.sidecar)

    def _is_deleted(self) -> bool:
        return bool(self.pod["metadata"].get("deletionTimestamp"))

    def _restart_policy(self) -> str:
        return str(self.pod["spec"].get("restartPolicy", "Always"))

    def _grace_seconds(self) -> float:
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        if self._reason == "DeadlineExceeded":
            return self._node.settings.deadline_grace
        wanted = metadata.get("deletionGracePeriodSeconds")
        return float(spec.get("terminationGracePeriodSeconds", 30) if wanted is None else wanted)

    def _deadline_in(self) -> float | None:
        limit: float | None = self.pod["spec"].get("activeDeadlineSeconds")
        if limit is None or self._reason:
            return None
        return max(0.0, limit - (time.time_ns() - self._started_at) / 1e9)

    def _should_stop(self) -> bool:
        left = self._deadline_in()
        if left is not None and left <= 0:
            self._reason = "DeadlineExceeded"
            self._message = "Pod was active on the node longer than the specified deadline"
        return bool(self._reason) or self._is_deleted()

    # -- starting -----------------------------------------------------------------------------

    async def _run_containers(self) -> float | None:
        """Start and restart what is due, init containers one after the other."""
        delays = []
        for run in self.runs:
            if not run.init:
                break
            if delay := await self._keep_running(run, init=True):
                delays.append(delay)
            if not (run.started if run.sidecar else run.succeeded):
                return min(delays, default=None)
        for run in self.runs:
            delay = None if run.init else await self._keep_running(run, init=False)
            if delay is not None:
                delays.append(delay)
        return min(delays, default=None)

    async def _keep_running(self, run: Run, *, init: bool) -> float | None:
        """Start the container if it is to run now; or how long until then."""
        if run.active or (run.phase == "terminated" and not self._restarts(run, init=init)):
            return None
        now = time.monotonic()
        if run.phase == "terminated":
            self._prepare_restart(run, now)
        if run.retry_at > now:
            return run.retry_at - now
        try:
            await self._place.start(run)
        except NotReady as error:
            run.phase, run.reason, run.message = "waiting", error.reason, str(error)
            self._warn(error.reason, str(error))
            run.retry_at = now + _RETRY_SECONDS
            return _RETRY_SECONDS
        except start_request.CannotStart as error:
            self._refuse(run, str(error))
        return None

    def _restarts(self, run: Run, *, init: bool) -> bool:
        policy = "Always" if run.sidecar else self._restart_policy()
        if init and not run.sidecar and run.code == 0:
            return False
        return policy == "Always" or (policy == "OnFailure" and run.code != 0)

    def _prepare_restart(self, run: Run, now: float) -> None:
        settings = self._node.settings
        lived = (run.finished_at - run.started_at) / 1e9
        longest = settings.restart_delay_limit
        run.delay = settings.restart_delay if lived > 600 or not run.delay else run.delay * 2
        run.delay = min(run.delay, longest)
        run.previous = run.termination()
        run.retry_at = now + run.delay
        run.attempt += 1
        run.phase, run.reason = "waiting", "CrashLoopBackOff"
        run.message = f"back-off {run.delay:.0f}s restarting failed container={run.name}"
        self._event("Warning", "BackOff", run.message)

    def _refuse(self, run: Run, message: str) -> None:
        now = time.time_ns()
        run.phase, run.reason, run.message = "terminated", "ContainerCannotRun", message
        run.code, run.signal, run.started_at, run.finished_at = 128, 0, now, now
        self._warn("Failed", message)
        self._wake.set()

    async def _post_start(self, run: Run, hook: dict[str, Any]) -> None:
        problem = await run_hook(self._node.shim, self.uid, self._place.address, run, hook)
        if problem:
            self._event("Warning", "FailedPostStartHook", problem)
            await self._stop_one(run)

    # -- stopping -----------------------------------------------------------------------------

    async def _stop_all(self) -> None:
        active = ", ".join(run.name for run in self.runs if run.active)
        self._event("Normal", "Killing", f"Stopping container {active}")
        await self._stopper.stop_all(self.runs, self._place.address, self._grace_seconds())
        self._stopping = None
        self._wake.set()

    async def _stop_one(self, run: Run) -> None:
        await self._stopper.stop(run, self._place.address, self._grace_seconds())

    def _is_cut_short(self) -> bool:
        """A second delete may shorten the grace period to nothing."""
        return self._gone or self.pod["metadata"].get("deletionGracePeriodSeconds") == 0

    async def _finish(self, phase: str) -> None:
        self._over = phase
        await self._place.release(self.runs)

    async def _remove(self) -> None:
        metadata = self.pod["metadata"]
        with contextlib.suppress(NotFound):
            await self._node.registry.delete(
                "pods",
                metadata["namespace"],
                metadata["name"],
                Deletion(grace_seconds=0, uid=metadata["uid"]),
            )

    # -- status -------------------------------------------------------------------------------

    async def _publish(self) -> None:
        if self._gone:
            return
        phase = self._over or status.phase_of(self.runs, self._restart_policy())
        if not self._over and phase in ("Succeeded", "Failed"):
            phase = "Running"  # something is still being stopped
        now = time.time_ns()

        def change(pod: dict[str, Any]) -> dict[str, Any] | None:
            if pod["metadata"]["uid"] != self.uid:
                return None
            pod["status"] = status.pod_status(
                self.runs,
                old=pod.get("status", {}),
                phase=phase,
                reason=self._reason,
                message=self._message,
                addresses=(self._place.address, self._node.settings.host_ip),
                start_time=self._started_at,
                now=now,
            )
            return pod

        metadata = self.pod["metadata"]
        try:
            await self._node.registry.update(
                "pods", metadata["namespace"], metadata["name"], change, subresource="status"
            )
        except NotFound:
            self._gone = True

    def _event(self, kind: str, reason: str, message: str) -> None:
        self._node.events.emit(self.pod, kind, reason, message)

    def _warn(self, reason: str, message: str) -> None:
        """A Warning event, once for each text."""
        if (reason, message) not in self._warned:
            self._warned.add((reason, message))
            self._event("Warning", reason, message)

    # -- after a restart of the agent -------------------------------------------------------------

    def _recover(self, old: dict[str, Any]) -> None:
        """Go on where an earlier agent stopped, from the pod's status and what the shim has."""
        if old.get("startTime"):
            self._started_at = times.nanoseconds(old["startTime"])
        if old.get("phase") in ("Succeeded", "Failed"):
            self._over = old["phase"]
        self._reason, self._message = old.get("reason", ""), old.get("message", "")
        statuses = [*old.get("initContainerStatuses", ()), *old.get("containerStatuses", ())]
        for run in self.runs:
            if seen := next((s for s in statuses if s["name"] == run.name), None):
                recovery.restore(run, seen)
        if self._known is not None:
            self._place.adopt(self._known["address"])
        for found in (self._known or {}).get("containers", ()):
            self._take_over(next(r for r in self.runs if r.name == found["name"]), found)
        for run in self.runs:
            if run.active and not self._is_known(run):
                self._lose(run)

    def _take_over(self, run: Run, found: dict[str, Any]) -> None:
        """Go on with a container that the shim knows of."""
        if found["attempt"] < run.attempt:
            return
        has_run = run.phase == found["state"] == "running" and found["attempt"] == run.attempt
        self._place.restore(run, found)
        if has_run:
            self._started(run, found, is_new=False)
        else:
            run.attempt, run.phase = found["attempt"], "starting"
            self.container_event(found)

    def _is_known(self, run: Run) -> bool:
        containers = (self._known or {}).get("containers", ())
        return any((c["name"], c["attempt"]) == (run.name, run.attempt) for c in containers)

    def _lose(self, run: Run) -> None:
        """Running when last seen, unknown now: its outcome may be in a file, else it is lost."""
        record = logs.exit_record(self.log_path(run.name, run.attempt))
        if record is not None:
            self._exited(run, record)
        else:
            recovery.lose(run)

    def shim_lost(self) -> None:
        """The shim is dead, and every container with it."""
        for run in self.runs:
            if run.active:
                self._lose(run)
        self._wake.set()
