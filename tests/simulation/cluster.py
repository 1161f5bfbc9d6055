"""The rest of the modelled cluster: scheduler, kubelets, node controller, garbage collector."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from tests.simulation.repeated_failures import FALLOUT
from tests.simulation.server import Change, Key, ModelServer, Obj, Observer, Refused, owner_uid
from tests.simulation.ssh_launches import PROBE_SECONDS, UNREADY, Launch, waits
from trainyard.kinds.kind_registry import JOB_KINDS
from trainyard.schema.times import render

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
NODES = ("node-a", "node-b", "node-c")
JOB_PLURALS = frozenset(kind.plural for kind in JOB_KINDS.values())
BOARDS = "tensorboards"
_IN_PLACE_VARIABLE = "TRAINYARD_HOLD"
OWNER_PLURALS = JOB_PLURALS | {BOARDS}


@dataclass(slots=True)
class WallClock:
    """The time of day: virtual time, and by how much somebody set the clock."""

    loop: asyncio.AbstractEventLoop
    offset: float = 0.0

    def __call__(self) -> datetime:
        return EPOCH + timedelta(seconds=self.loop.time() + self.offset)


Outcome = tuple[float, int]
"""How long a pod's containers run, in seconds, and their exit code."""


class InPlaceControl(Protocol):
    """What the cluster has to know of them; see `holding`."""

    def begin(self, pod: Obj, outcome: Outcome) -> None: ...
    def attempt(self, uid: str) -> int: ...
    def command_ends(self, uid: str, attempt: int, code: int, *, because_of_peer: bool) -> None: ...


@dataclass(slots=True)
class Cluster(Observer):
    """Takes pods from creation to their end. `outcome` says how a pod's containers will end."""

    server: ModelServer
    rng: random.Random
    loop: asyncio.AbstractEventLoop
    outcome: Callable[[Obj], Outcome]
    peers_die: Callable[[Obj], bool]
    """Whether the other replicas of a pod's job end, or hang, when it fails."""
    launch: Callable[[Obj], Launch | None]
    """How a pod that is started now launches others; None: nothing is told of it."""
    is_launched: Callable[[Obj], bool]
    """Whether the pod runs until the one that launches it has ended, and that has not."""
    crashes: Callable[[], list[int]]
    """The exit codes with which the page of a new viewer ends, until it runs."""
    termination_message: Callable[[Obj, int], str]
    """What a pod says that ends with that code by itself."""
    names_oom: bool
    """Whether what ends with 137 was killed for want of memory."""
    in_place_pods: InPlaceControl | None = None
    """What holds the pods of jobs that restart in place."""
    lost: set[str] = field(default_factory=set)
    is_full: bool = False
    """Pods that are kept off a node find no other."""
    doomed: set[str] = field(default_factory=set)
    """UIDs of running pods whose planned end no longer holds."""

    def start(self) -> None:
        """Bring the nodes up."""
        for name in NODES:
            self.server.create("nodes", "", {"metadata": {"name": name}})
            self._set_node(name, ready=True)

    def changed(self, plural: str, change: Change) -> None:
        """React as the cluster's own controllers would, a little later."""
        if plural == "pods":
            self._pod_changed(change)
        if plural in OWNER_PLURALS and change.type == "DELETED":
            self._later(0.01, 5.0, self._collect, change.object["metadata"]["uid"])
        owner = owner_uid(change.object)
        if change.type == "ADDED" and owner:
            self._later(5.0, 30.0, self._collect_orphan, owner)

    # The garbage collector.
    def _collect_orphan(self, owner: str) -> None:
        alive = any(
            key.plural in OWNER_PLURALS and obj["metadata"]["uid"] == owner
            for key, obj in self.server.objects.items()
        )
        if not alive:
            self._collect(owner)

    def _collect(self, owner: str) -> None:
        for key, obj in list(self.server.objects.items()):
            if owner_uid(obj) == owner:
                self.server.delete(key)

    # Scheduler and kubelet.
    def _pod_changed(self, change: Change) -> None:
        uid = change.object["metadata"]["uid"]
        if change.type == "ADDED":
            self._later(0.001, 1.0, self._bind, uid)
        elif change.type == "MODIFIED" and change.old is not None:
            terminating = change.object["metadata"].get("deletionTimestamp")
            if terminating and not change.old["metadata"].get("deletionTimestamp"):
                grace = change.object["metadata"]["deletionGracePeriodSeconds"]
                self._later(0.001, min(grace, 5.0) + 0.002, self._stop, uid)
            limit = change.object["spec"].get("activeDeadlineSeconds")
            if limit is not None and limit != change.old["spec"].get("activeDeadlineSeconds"):
                self._later(0.1, 2.0, self._exceed, uid)

    def _bind(self, uid: str) -> None:
        key, pod = self.find(uid)
        if pod is None or pod["spec"].get("nodeName"):
            return
        avoided = kept_off(pod)
        if avoided and (self.is_full or not set(NODES) - avoided):
            message = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector"
            condition = {"type": "PodScheduled", "status": "False", "message": message}
            self.server.set(key, status={**pod["status"], "conditions": [condition]})
            return
        nodes = [node for node in NODES if node not in self.lost | avoided]
        if not nodes:
            self._later(1.0, 5.0, self._bind, uid)
            return
        condition = {"type": "PodScheduled", "status": "True"}
        status = {**pod["status"], "conditions": [condition]}
        spec = {**pod["spec"], "nodeName": self.rng.choice(nodes)}
        self.server.set(key, spec=spec, status=status)
        self._later(0.001, 2.0, self._run, uid)

    def _run(self, uid: str) -> None:
        key, pod = self._reachable(uid, self._run)
        if pod is None or pod["metadata"].get("deletionTimestamp") or has_ended(pod):
            return
        limit = pod["spec"].get("activeDeadlineSeconds")
        if limit is not None:
            self.loop.call_later(limit, self._exceed, uid)
        is_board = pod["metadata"]["ownerReferences"][0]["kind"] == "TensorBoard"
        outcome = None if is_board else self.outcome(pod)  # that runs for ever
        if not pod["spec"].get("initContainers"):
            self._start(uid, outcome)
            return
        started = render(self.server.now())
        waiting = {"waiting": {"reason": "PodInitializing"}}
        running = {"running": {"startedAt": started}}
        self._set_status(key, pod, "Pending", waiting, running, startTime=started)
        if outcome is not None and outcome[1] and _can_fail(pod) and self.rng.random() < 0.4:
            self._later(0.1, 2.0, self._fail_to_begin, uid, outcome[1])
        else:
            self._later(0.1, 2.0, self._start, uid, outcome)

    def _start(self, uid: str, outcome: Outcome | None) -> None:
        """The main containers run, for as long as `outcome` says."""
        key, pod = self._reachable(uid, self._start, outcome)
        if pod is None or pod["metadata"].get("deletionTimestamp") or has_ended(pod):
            return
        running = {"running": {"startedAt": render(self.server.now())}}
        launch = self.launch(pod)
        self._set_status(key, pod, "Running", running, self._terminated(0))
        if launch is not None and outcome is not None:
            self._begin_launch(key, launch, outcome)
        elif outcome is not None and self.in_place_pods is not None and restarts_in_place(pod):
            self.in_place_pods.begin(pod, outcome)
        elif outcome is not None:
            self.loop.call_later(outcome[0], self._end, uid, outcome[1])
        else:
            self._crash_page(uid, self.crashes())
        if sidecars(pod) and self.rng.random() < 0.3:
            self._later(0.5, 20.0, self._restart_sidecar, uid)

    def _crash_page(self, uid: str, codes: list[int]) -> None:
        """A viewer's page ends, and the kubelet starts it again, once for each code."""
        if codes:
            self._later(0.5, 20.0, self._end_page, uid, codes)

    def _end_page(self, uid: str, codes: list[int]) -> None:
        key, pod = self._reachable(uid, self._end_page, codes)
        if pod is None or has_ended(pod) or pod["metadata"].get("deletionTimestamp"):
            return
        waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
        self._set_status(key, pod, "Running", waiting, self._terminated(0))
        status = self.server.get(key)["status"]
        last = self._terminated(codes[0])
        statuses = [{**each, "lastState": last} for each in status["containerStatuses"]]
        self.server.set(key, status={**status, "containerStatuses": statuses})
        self._later(1.0, 20.0, self._run_page, uid, codes[1:])

    def _run_page(self, uid: str, codes: list[int]) -> None:
        key, pod = self._reachable(uid, self._run_page, codes)
        if pod is None or has_ended(pod) or pod["metadata"].get("deletionTimestamp"):
            return
        running = {"running": {"startedAt": render(self.server.now())}}
        self._set_status(key, pod, "Running", running, self._terminated(0))
        self._crash_page(uid, codes)

    # Launches over ssh: what their startup probes say, and how they go on.
    def _begin_launch(self, key: Key, launch: Launch, outcome: Outcome) -> None:
        uid = self.server.get(key)["metadata"]["uid"]
        self._set_started(key, False)
        seconds = 6000.0 if launch.seconds is None else launch.seconds
        if launch.probe_output:
            for number in range(min(int(seconds / PROBE_SECONDS), 20)):
                self.loop.call_later(
                    2.0 + number * PROBE_SECONDS,
                    self._report_probe_output,
                    uid,
                    launch.probe_output,
                )
        if launch.seconds is None:
            return
        if launch.lacks:
            self.loop.call_later(seconds, self._lack, uid, launch)
            return
        if launch.note:
            self.loop.call_later(seconds, self._report_probe_output, uid, launch.note)
            seconds += PROBE_SECONDS / 2
        self.loop.call_later(seconds, self._launched, uid, outcome)

    def _report_probe_output(self, uid: str, output: str) -> None:
        """A startup probe fails with these words; the kubelet makes an Event of it."""
        key, pod = self.find(uid)
        if pod is None or pod["spec"].get("nodeName") in self.lost or not waits(pod):
            return
        event = {
            "metadata": {"name": f"{key.name}.{self.server.version}"},
            "involvedObject": {"kind": "Pod", "name": key.name, "uid": uid},
            "reason": "Unhealthy",
            "message": f"Startup probe failed: trainyard: {output}\n",
            "lastTimestamp": render(self.server.now()),
        }
        self.server.create("events", key.namespace, event)

    def _launched(self, uid: str, outcome: Outcome) -> None:
        key, pod = self._reachable(uid, self._launched, outcome)
        if pod is not None and waits(pod):
            self._set_started(key, True)
            self.loop.call_later(outcome[0], self._end, uid, outcome[1])

    def _lack(self, uid: str, launch: Launch) -> None:
        key, pod = self._reachable(uid, self._lack, launch)
        if pod is not None and waits(pod) and uid not in self.doomed:
            ended = self._terminated(UNREADY)
            ended["terminated"]["message"] = launch.message(key.name)
            self._set_status(key, pod, "Failed", ended, self._terminated(0))

    def _set_started(self, key: Key, started: bool) -> None:
        status = self.server.get(key)["status"]
        statuses = [{**each, "started": started} for each in status["containerStatuses"]]
        self.server.set(key, status={**status, "containerStatuses": statuses})

    def _fail_to_begin(self, uid: str, code: int) -> None:
        """An init container fails, and the pod with it."""
        key, pod = self._reachable(uid, self._fail_to_begin, code)
        if pod is not None and not has_ended(pod) and not pod["metadata"].get("deletionTimestamp"):
            waiting = {"waiting": {"reason": "PodInitializing"}}
            self._set_status(key, pod, "Failed", waiting, self._terminated(code))

    def _restart_sidecar(self, uid: str) -> None:
        """A sidecar ends, and waits for its next run."""
        key, pod = self._reachable(uid, self._restart_sidecar)
        if pod is None or pod["status"].get("phase") != "Running":
            return
        statuses = [
            status
            if status["name"] not in sidecars(pod)
            else {
                "name": status["name"],
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": self._terminated(1),
            }
            for status in pod["status"]["initContainerStatuses"]
        ]
        self.server.set(key, status={**pod["status"], "initContainerStatuses": statuses})

    def _end(self, uid: str, code: int, *, because_of_peer: bool = False) -> None:
        key, pod = self._reachable(uid, self._end, code)
        if pod is None or has_ended(pod) or (uid in self.doomed and not because_of_peer):
            return
        if code == 0 and self.is_launched(pod):
            self._later(0.1, 2.0, self._end, uid, code)
            return
        self._terminate(key, pod, code, message=FALLOUT if because_of_peer else None)
        if code and self.peers_die(pod):
            self.take_peers_along(pod)

    def end(self, uid: str, code: int, message: str) -> None:
        """A pod ends with that code, as soon as its node can tell."""
        key, pod = self._reachable(uid, self.end, code, message)
        if pod is not None and not has_ended(pod):
            self._terminate(key, pod, code, message=message)
            if code and self.peers_die(pod):
                self.take_peers_along(pod)

    def _end_with_peer(self, uid: str, attempt: int) -> None:
        held = self.in_place_pods
        # One that had yet to begin may be held by now.
        if held is not None and (attempt := attempt or held.attempt(uid)):
            held.command_ends(uid, attempt, 1, because_of_peer=True)
        else:
            self._end(uid, 1, because_of_peer=True)

    def _exceed(self, uid: str) -> None:
        key, pod = self._reachable(uid, self._exceed)
        if pod is not None and not has_ended(pod):
            self._terminate(key, pod, 137, reason="DeadlineExceeded")

    def _stop(self, uid: str) -> None:
        key, pod = self._reachable(uid, self._stop)
        if pod is None:
            return
        if not has_ended(pod) and pod["status"].get("containerStatuses"):
            self._terminate(key, pod, 143)
        self.server.delete(key, grace=0)

    def take_peers_along(self, pod: Obj) -> None:
        """The other replicas of a job end or hang."""
        for peer in list(self.server.owned("pods", owner_uid(pod))):
            uid = peer["metadata"]["uid"]
            if uid != pod["metadata"]["uid"] and not has_ended(peer):
                self.doomed.add(uid)
                if self.rng.random() < 0.8:  # the others hang
                    attempt = (
                        self.in_place_pods.attempt(uid) if self.in_place_pods is not None else 0
                    )
                    self._later(0.01, 3.0, self._end_with_peer, uid, attempt)

    def _terminate(
        self, key: Key, pod: Obj, code: int, reason: str = "", message: str | None = None
    ) -> None:
        phase = "Failed" if code else "Succeeded"
        more = {"reason": reason} if reason else {}
        begins = pod["status"]["phase"] == "Pending" and "initContainerStatuses" in pod["status"]
        if begins and _can_fail(pod):
            waiting = {"waiting": {"reason": "PodInitializing"}}
            self._set_status(key, pod, phase, waiting, self._terminated(code), **more)
        else:
            ended = self._terminated(code)
            message = self.termination_message(pod, code) if message is None else message
            if message and code:
                ended["terminated"]["message"] = message
            self._set_status(key, pod, phase, ended, self._terminated(0), **more)

    def _terminated(self, code: int) -> Obj:
        return {
            "terminated": {
                "exitCode": code,
                "reason": "Completed" if code == 0 else self._reason(code),
                "finishedAt": render(self.server.now()),
            }
        }

    def _reason(self, code: int) -> str:
        return "OOMKilled" if code == 137 and self.names_oom else "Error"

    def _set_status(
        self, key: Key, pod: Obj, phase: str, state: Obj, init: Obj | None = None, **more: Any
    ) -> None:
        """`state` is that of the main containers, `init` that of init containers.

        Sidecars run until the pod has ended, and then end with whatever code.
        """
        status = {**pod["status"], "phase": phase, **more}
        status["containerStatuses"] = [
            {"name": container["name"], "state": state, "ready": "running" in state}
            for container in pod["spec"]["containers"]
        ]
        if inits := pod["spec"].get("initContainers"):
            beside: Obj = {"running": {"startedAt": render(self.server.now())}}
            if phase in ("Succeeded", "Failed"):
                beside = self._terminated(self.rng.choice((0, 143, 137)))
            status["initContainerStatuses"] = [
                {"name": each["name"], "state": beside if each["name"] in sidecars(pod) else init}
                for each in inits
            ]
        self.server.set(key, status=status)

    # What befalls pods and nodes from outside.
    def evict(self, pod: Obj, *, delete: bool) -> None:
        """By the kubelet (the pod stays, Failed), or through the API (it is deleted)."""
        key, pod_now = self.find(pod["metadata"]["uid"])
        if pod_now is None or has_ended(pod_now) or pod_now["metadata"].get("deletionTimestamp"):
            return
        target = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI" if delete else "TerminationByKubelet",
        }
        conditions = [*pod_now["status"].get("conditions", []), target]
        if delete:
            self.server.set(key, status={**pod_now["status"], "conditions": conditions})
            self.server.delete(key)
        else:
            self._terminate(
                key,
                {**pod_now, "status": {**pod_now["status"], "conditions": conditions}},
                137,
                reason="Evicted",
            )

    def lose_node(self, name: str) -> None:
        """The node stops to answer; its pods are deleted a little later, and stay terminating."""
        if name in self.lost or len(self.lost) == len(NODES) - 1:
            return
        self.lost.add(name)
        self._set_node(name, ready=False)
        self._later(2.0, 40.0, self._taint, name)

    def restore_node(self, name: str) -> None:
        """The node answers again."""
        if name in self.lost:
            self.lost.discard(name)
            self._set_node(name, ready=True)

    def _taint(self, name: str) -> None:
        if name not in self.lost:
            return
        for pod in self.server.all("pods"):
            if pod["spec"].get("nodeName") == name:
                self.evict_by_taint(pod)

    def evict_by_taint(self, pod: Obj) -> None:
        """As the node controller does with the pods of a node that is gone."""
        key, _ = self.find(pod["metadata"]["uid"])
        target = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
        }
        conditions = [*pod["status"].get("conditions", []), target]
        self.server.set(key, status={**pod["status"], "conditions": conditions})
        self.server.delete(key)

    def _set_node(self, name: str, *, ready: bool) -> None:
        condition = {"type": "Ready", "status": "True" if ready else "Unknown"}
        self.server.set(Key("nodes", "", name), status={"conditions": [condition]})

    def _reachable(
        self, uid: str, again: Callable[..., None], *args: Any
    ) -> tuple[Key, Obj | None]:
        """The pod, unless it is gone or on a lost node; then `again` is called later."""
        key, pod = self.find(uid)
        if pod is not None and pod["spec"].get("nodeName") in self.lost:
            self._later(5.0, 10.0, again, uid, *args)
            return key, None
        return key, pod

    def find(self, uid: str) -> tuple[Key, Obj | None]:
        """The pod with that UID, if it is there."""
        for key, obj in self.server.objects.items():
            if key.plural == "pods" and obj["metadata"]["uid"] == uid:
                return key, obj
        return Key("pods", "", ""), None

    def _later(self, low: float, high: float, what: Callable[..., None], *args: Any) -> None:
        self.loop.call_later(self.rng.uniform(low, high), _quietly, what, *args)


def _quietly(what: Callable[..., None], *args: Any) -> None:
    with contextlib.suppress(Refused):  # it went away in between
        what(*args)


def _can_fail(pod: Obj) -> bool:
    """Whether it has an init container whose failure is the pod's: a sidecar starts again."""
    return len(sidecars(pod)) < len(pod["spec"].get("initContainers") or ())


def sidecars(pod: Obj) -> set[str]:
    """Init containers that run beside the others."""
    inits = pod["spec"].get("initContainers") or ()
    return {each["name"] for each in inits if each.get("restartPolicy") == "Always"}


def has_ended(pod: Obj) -> bool:
    """Whether all of its containers have."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def restarts_in_place(pod: Obj) -> bool:
    """Whether what holds a pod is its first process."""
    variables = pod["spec"]["containers"][0].get("env") or ()
    return any(each["name"] == _IN_PLACE_VARIABLE for each in variables)


def kept_off(pod: Obj) -> set[str]:
    """Nodes that all terms of the pod's affinity exclude by name."""
    by_node = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = by_node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [
        {
            name
            for field in term.get("matchFields") or ()
            if (field["key"], field["operator"]) == ("metadata.name", "NotIn")
            for name in field["values"]
        }
        for term in required.get("nodeSelectorTerms") or ()
    ]
    return set.intersection(*terms) if terms else set()
