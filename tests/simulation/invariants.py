"""What must hold in every run, checked against what really happened in the modelled cluster.

The monitor reads stored objects only, by its own eyes: it shares no decision with the code that
it judges.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.queueing.kueue import PLURAL as WORKLOADS
from tests.queueing.kueue import finished, reserved, true
from tests.simulation import (
    blocker_judges as blocker_judges,  # registers its judges
)
from tests.simulation import (
    diagnosis_judges,
    elastic,
    goodput_checks,
    job_policies,
    reconcile_checks,
    repeated_failures,
    restart_budgets,
    status_checks,
    viewer_judges,
)
from tests.simulation.cluster import BOARDS, JOB_PLURALS, kept_off, sidecars
from tests.simulation.diagnosing import Diagnosed
from tests.simulation.kueue_queues import KNOWN_SECONDS
from tests.simulation.network import Call, Sent
from tests.simulation.reconcile_result import ReconcileResult
from tests.simulation.server import Change, Key, ModelServer, Obj, Observer, owner_uid
from tests.simulation.truth import (
    JobTruth,
    PodTruth,
    ended_pods,
    has_fatal_end,
    most_incidents,
    survived_fatal_ends,
    truth_of,
)
from tests.simulation.viewer_judges import Shown
from trainyard.kinds.shared import labels
from trainyard.schema.times import parse

TERMINAL = frozenset({"Succeeded", "Failed"})
ACTIVE = frozenset({"Pending", "Running", "Unknown", "Succeeded", "Failed", "Paused"})
TRANSITIONS: dict[str, frozenset[str]] = {
    "": frozenset({"Pending", "Paused", "Running", "Failed", "Succeeded", "Unknown"}),
    "Pending": ACTIVE - {"Pending"},
    "Running": ACTIVE - {"Running"},
    "Unknown": ACTIVE - {"Unknown"},
    # Succeeded where all replicas had ended well by the time it was resumed.
    "Paused": frozenset({"Resuming", "Failed", "Succeeded"}),
    "Resuming": ACTIVE,
    "Succeeded": frozenset(),
    "Failed": frozenset(),
}


RELIED_ON = frozenset({"services", "secrets", "configmaps", "podgroups"})
"""Pods that start before these would fail, or not start together."""
GIVEN_UP = "(LaunchTimeout)"
"""In the text about a launch that took too long, as far as a pass could see; it has its judge."""
NODE_NEWS_SECONDS = 5.0
"""Within this time a controller knows of a node that answers again."""


class Violation(AssertionError):
    """An invariant does not hold; the message says which, when and for what."""


@dataclass(slots=True)
class Monitor(Observer):
    """Collects violations; the first one ends the run."""

    server: ModelServer
    loop: asyncio.AbstractEventLoop
    jobs: dict[str, JobTruth] = field(default_factory=dict)
    boards: dict[str, Key] = field(default_factory=dict)
    """All TensorBoards that ever were, by UID."""
    violations: list[str] = field(default_factory=list)
    controller_deletes: set[str] = field(default_factory=set)
    """UIDs of pods that a controller has asked to delete."""
    lost_nodes: dict[str, float] = field(default_factory=dict)
    """Nodes that do not answer, with the moment until which a controller may think so."""
    answered_creates: dict[int, dict[Key, str]] = field(default_factory=dict)
    asked_for: dict[Key, str] = field(default_factory=dict)
    """What pods rely on and a controller has tried to create, with its owner, until it is there."""
    forged: dict[str, Obj] = field(default_factory=dict)
    """Statuses by the UIDs of jobs, as they were before somebody else wrote into them."""
    is_forging: bool = False
    is_queued: bool = False
    """All jobs are handed to Kueue."""
    unqueued: dict[str, float] = field(default_factory=dict)
    """When others last changed the Workloads of a job, by its UID."""
    clock_is_steady: bool = True
    """Nobody has set the wall clock back."""
    broken: asyncio.Event = field(default_factory=asyncio.Event)
    texts: Counter[str] = field(default_factory=Counter)
    """Texts of diagnoses that were judged, by the rows that judged them."""

    def fail(self, text: str) -> None:
        """Note a violation; the run ends."""
        self.violations.append(f"t={self.loop.time():.3f}: {text}")
        self.broken.set()

    # What the cluster's objects go through.
    def changed(self, plural: str, change: Change) -> None:
        """Follow every change."""
        if change.type == "ADDED":
            self.asked_for.pop(Key(plural, "default", change.object["metadata"]["name"]), None)
        if plural in JOB_PLURALS:
            self._job_changed(Key(plural, "default", change.object["metadata"]["name"]), change)
        elif plural == "nodes":
            self._node_changed(change.object)
        elif plural == BOARDS and change.type == "ADDED":
            metadata = change.object["metadata"]
            self.boards[metadata["uid"]] = Key(BOARDS, "default", metadata["name"])
        elif plural == WORKLOADS:
            self._workload_changed(change)
        elif plural == "pods":
            job = self.jobs.get(owner_uid(change.object))
            if job is not None:
                self._pod_changed(job, change)

    def _workload_changed(self, change: Change) -> None:
        """What is not admitted any more loses its pods, at no cost, as if it were paused."""
        job = self.jobs.get(owner_uid(change.object))
        was = change.old is not None and true(change.old, "Admitted")
        is_out = change.type == "DELETED" or true(change.object, "Evicted")
        if job is not None and was and (is_out or finished(change.object)):
            self.unqueued[owner_uid(change.object)] = self.loop.time()
            job.vague = job.was_paused = True

    def _node_changed(self, node: Obj) -> None:
        name, conditions = node["metadata"]["name"], (node.get("status") or {}).get("conditions")
        if conditions and conditions[0]["status"] != "True":
            self.lost_nodes[name] = float("inf")
            for uid, job in self.jobs.items():
                if self._misses_a_pod(uid):
                    self._endanger(job)
        elif name in self.lost_nodes:
            self.lost_nodes[name] = self.loop.time() + NODE_NEWS_SECONDS

    def _job_changed(self, key: Key, change: Change) -> None:
        uid = change.object["metadata"]["uid"]
        if change.type == "ADDED":
            self.jobs[uid] = JobTruth(key)
            return
        job = self.jobs[uid]
        if change.type == "DELETED":
            job.deleted = True
            return
        assert change.old is not None
        if change.object["spec"] != change.old["spec"]:
            job.vague = True
            job.was_paused |= _is_paused(change.object) or _is_paused(change.old)
        old, new = change.old.get("status") or {}, change.object.get("status") or {}
        if self.is_forging:
            self.forged.setdefault(uid, old)
            return
        if old != new:
            real = self.forged.pop(uid, None)
            if real is not None:
                self._put_right(job, real, new)
                return
            self._status_changed(job, old, new, change.object)
            if old.get("phase") != new.get("phase") or change.version % 3 == 0:
                self._judge_diagnosis(job, change.object)

    def _judge_diagnosis(self, job: JobTruth, stored: Obj) -> None:
        """What its user would be told now."""
        seen = Diagnosed.of(stored, self.server, job, frozenset(self.lost_nodes))
        for problem in diagnosis_judges.untrue(seen, self.texts):
            self.fail(f"{job.key.name}: {problem}")

    def _put_right(self, job: JobTruth, real: Obj, new: Obj) -> None:
        """After somebody wrote into the status: the next one follows the last that was ours."""
        before, after = real.get("phase", ""), new.get("phase", "")
        # Pending it is as well until it first runs after a pause; nothing tells which it was.
        resumes = after == "Resuming" and before in ("Pending", "Unknown")
        resumes &= "startTime" not in new and bool(new["internal"].get("resumed"))
        follows = before == after or after in TRANSITIONS.get(before, frozenset())
        if not follows and not resumes:
            self.fail(f"{job.key.name}: phase {before}, then forged, then {after}")
        if after in TERMINAL and _conditions(new) != {**_conditions(real), **_conditions(new)}:
            self.fail(f"{job.key.name}: conditions {_conditions(new)}, before {_conditions(real)}")

    def _status_changed(self, job: JobTruth, old: Obj, new: Obj, obj: Obj) -> None:
        before, after = old.get("phase", ""), new.get("phase", "")
        if before != after and after not in TRANSITIONS.get(before, frozenset()):
            self.fail(f"{job.key.name}: phase {before or '(none)'} → {after}")
        if (before, after) == ("Paused", "Succeeded") and _is_paused(obj):
            self.fail(f"{job.key.name}: succeeded while it is paused")
        was, is_ = _conditions(old), _conditions(new)
        for type_ in ("Completed", "Failed"):
            if was.get(type_) == "True" and is_.get(type_) != "True":
                self.fail(f"{job.key.name}: condition {type_} was True, is {is_.get(type_)}")
        if (after in TERMINAL) != (is_.get("Completed") == "True"):
            self.fail(f"{job.key.name}: phase {after}, Completed {is_.get('Completed')}")
        if (after == "Failed") != (is_.get("Failed") == "True"):
            self.fail(f"{job.key.name}: phase {after}, condition Failed {is_.get('Failed')}")
        self._check_budget(job, new, obj)
        self._moves(job, old.get("nodeCheck") or {}, new.get("nodeCheck") or {})
        lost = self._misses_a_pod(obj["metadata"]["uid"])  # which rules take for a disruption
        fails = status_checks.failed_by_rule(new) and not status_checks.failed_by_rule(old)
        if fails and not lost and not has_fatal_end(job, obj):
            self.fail(f"{job.key.name}: failed by a rule that nothing has matched")
        for problem in (
            *status_checks.contradictions(old, new, obj),
            *restart_budgets.misspent(job, old, new, obj),
            *elastic.miscounts(old, new, obj),
            *repeated_failures.ended_in_vain(job, old, new, obj),
            *goodput_checks.misaccounted(old, new, obj, steady=self.clock_is_steady),
        ):
            self.fail(f"{job.key.name}: {problem}")

    def _moves(self, job: JobTruth, old: Obj, new: Obj) -> None:
        """What leaves a node that is avoided since, or finds no other, is taken away."""
        leaves = [each["replica"] for each in new.get("badNodes") or () if each.get("avoided")]
        is_new = (old.get("attempt"), old.get("state")) != (new.get("attempt"), new.get("state"))
        if leaves and is_new:
            job.disturbances[job.attempt] += 1
            for truth in job.pods.values():
                truth.disturbed |= truth.name in leaves and not truth.gone
        if "avoidanceEnded" in new and "avoidanceEnded" not in old:
            job.disturbances[job.attempt] += 1

    def _check_budget(self, job: JobTruth, new: Obj, obj: Obj) -> None:
        if (new.get("backoffCount") or 0) > _limit(obj):
            self.fail(f"{job.key.name}: backoffCount above the limit of {_limit(obj)}")

    def _pod_changed(self, job: JobTruth, change: Change) -> None:
        pod = change.object
        uid = pod["metadata"]["uid"]
        if change.type == "ADDED":
            self._pod_added(job, pod)
            return
        truth = job.pods[uid]
        if change.type == "DELETED":
            truth.gone = True
            if uid not in self.controller_deletes and truth.own_end is None:
                self._disturb(job, truth)
            return
        assert change.old is not None
        if truth_of(pod).attempt != truth.attempt:  # it goes on where it is
            truth.gone = True
            job.pods[f"{uid} {truth.attempt}"] = job.pods.pop(uid)  # in the order of their times
            self._pod_added(job, pod)
            return
        phase, was = pod["status"].get("phase"), change.old["status"].get("phase")
        taken = pod["metadata"].get("deletionTimestamp") is not None
        if taken and not truth.disturbed and uid not in self.controller_deletes:
            self._disturb(job, truth)
        if phase in TERMINAL and was not in TERMINAL:
            if pod["status"].get("reason") in ("Evicted", "DeadlineExceeded"):
                self._disturb(job, truth)
            elif not taken and truth.own_end is None:
                self._ended_by_itself(job, truth, _exit_code(pod), _message(pod))
                if truth.own_end and self._misses_a_pod(owner_uid(pod)):
                    self._endanger(job)

    def attempt_ended(self, pod: Obj, code: int, message: str) -> None:
        """An attempt has failed by itself in a pod that is held."""
        job = self.jobs.get(owner_uid(pod))
        if job is not None:
            self._ended_by_itself(job, job.pods[pod["metadata"]["uid"]], code, message)
            if self._misses_a_pod(owner_uid(pod)):
                self._endanger(job)

    def _ended_by_itself(self, job: JobTruth, truth: PodTruth, code: int, message: str) -> None:
        truth.own_end, truth.message = code, message
        if not truth.own_end:
            job.completions[job.attempt] += not truth.apart
            return
        truth.action = job_policies.of_exit(self._stored(job), truth.own_end)
        if truth.apart:
            return
        if truth.action == job_policies.IGNORE:
            job.disturbances[job.attempt] += 1
            return
        job.failures[job.attempt] += 1
        job.fatal[job.attempt] += truth.action == job_policies.FAIL_JOB

    def _stored(self, job: JobTruth) -> Obj:
        return self.server.objects.get(job.key) or {"spec": {}, "kind": ""}

    def _restarts_alone(self, job: JobTruth, pod: PodTruth) -> bool:
        """Whether the replica does, and nobody has paused or resized the job."""
        one_by_one = pod.apart or job_policies.restarts_one_by_one(self._stored(job))
        return one_by_one and not job.vague

    def _misses_a_pod(self, uid: str) -> bool:
        """Whether a node that does not answer has a pod of the job."""
        lost = {node for node, until in self.lost_nodes.items() if self.loop.time() < until}
        return any(pod["spec"].get("nodeName") in lost for pod in self.server.owned("pods", uid))

    def _disturb(self, job: JobTruth, truth: PodTruth) -> None:
        truth.disturbed = True
        self._endanger(job)

    def _endanger(self, job: JobTruth) -> None:
        """A pod was taken away, or its node: that may be why others fail, and be what it costs."""
        job.disturbances[job.attempt] += 1
        if job_policies.of_disruptions(self._stored(job)) & {"Count", "Restart"}:
            job.countable += 1

    def _pod_added(self, job: JobTruth, pod: Obj) -> None:
        truth = truth_of(pod)
        truth.apart = truth.type in job_policies.apart(self._stored(job))
        for other in job.pods.values():
            if (other.type, other.index) == (truth.type, truth.index):
                if not other.gone:
                    self.fail(f"two pods for {truth.type}-{truth.index} of {job.key.name}")
                if truth.attempt == other.attempt:
                    continue  # the request came late, and the pod goes
                other.replaced = True
                is_fatal = other.action == job_policies.FAIL_JOB and not other.disturbed  # unseen
                if is_fatal and self._restarts_alone(job, truth):
                    self.fail(f"{other.name} has failed {job.key.name}, and is created again")
        job.pods[truth.uid] = truth
        if not truth.apart and truth.attempt > job.attempt:
            job.attempt = truth.attempt

    # What the controller reports.
    def check_reconcile(self, result: ReconcileResult) -> None:
        """A reconcile has decided what to report."""
        restarts = [e.message for e in result.events if e.reason == "Restart"]
        given_up = [text for text in restarts if GIVEN_UP in text or restart_budgets.HUNG in text]
        job = self.jobs[result.job["metadata"]["uid"]]
        job.countable += len(given_up)  # by what it had seen
        if given_up:
            job.given_up.add(job.attempt)
        job.hung |= set(restart_budgets.hung(result))
        if result.plan.status is not None or result.events:
            for problem in reconcile_checks.untrue(result, times=self.clock_is_steady):
                self.fail(f"{result.job['metadata']['name']}: {problem}")

    def check_viewer(self, shown: Shown) -> None:
        """A reconcile has decided what to report of a viewer."""
        for problem in viewer_judges.untrue(shown):
            self.fail(f"{shown.viewer['metadata']['name']}: {problem}")

    # What the controller asks for.
    def sent(self, sent: Sent) -> None:
        """A write was sent."""
        call = sent.call
        if call.key.plural in RELIED_ON and call.method == "POST":
            key = Key(call.key.plural, "default", call.body["metadata"]["name"])
            # Pods do without what they report by, and without the evidence of a hang.
            spared = key.name.endswith("-channel") or "-hang-" in key.name
            if key not in self.server.objects and not spared:
                self.asked_for[key] = owner_uid(call.body)
        if call.key.plural == "pods" and call.method == "POST":
            self._pod_creation_sent(sent)
        if call.key.plural == "pods" and call.method == "DELETE":
            self._pod_deletion_sent(sent)
        if call.key.plural == WORKLOADS and call.subresource == "status":
            self._workload_status_sent(call)

    def _workload_status_sent(self, call: Call) -> None:
        """Quota is given back when its pods are gone, but for those that have come just now."""
        stored = self.server.objects.get(call.key)
        if stored is None or "admission" not in call.body["status"]:
            return
        ready = self.server.now() - timedelta(seconds=KNOWN_SECONDS)
        for pod in self.server.owned("pods", owner_uid(stored)):
            if (parse(pod["metadata"]["creationTimestamp"]) or ready) < ready:
                self.fail(
                    f"{call.key.name} gives quota back, and {pod['metadata']['name']} is there"
                )

    def _pod_creation_sent(self, sent: Sent) -> None:
        call = sent.call
        uid = owner_uid(call.body)
        owner = self.boards.get(uid) or (self.jobs[uid].key if uid in self.jobs else None)
        if owner is None:
            self.fail(f"pod {call.body['metadata']['name']} of an owner that never was")
            return
        stored = self.server.objects.get(owner)
        if stored is None or stored["metadata"]["uid"] != uid:
            return  # deleted a moment ago; the garbage collector takes what comes late
        if uid in self.jobs and self._status(stored).get("phase") in TERMINAL:
            self.fail(f"pod creation after the end of {owner.name}")
        if uid in self.jobs and self.is_queued:
            self._check_admission(uid, owner.name)
        if uid in self.boards:
            return  # a viewer has read its logs by the time that its Service comes
        for missing in (key for key, of in self.asked_for.items() if of == uid):
            self.fail(f"pod creation for {owner.name}, whose {missing.plural} do not come to be")
        if not self._status(stored).get("internal") and uid not in self.forged:
            self.fail(f"pod creation for {owner.name}, which has no status that accounts for it")
        self._check_avoidance(self._status(stored), call.body)
        key = Key("pods", "default", call.body["metadata"]["name"])
        known = self.answered_creates.get(sent.incarnation, {}).get(key)
        current = self.server.objects.get(key)
        if current is not None and current["metadata"]["uid"] == known:
            self.fail(f"pod {key.name} was created, and is asked for again")

    def _check_avoidance(self, status: Obj, pod: Obj) -> None:
        """A pod is asked for while its job avoids nodes."""
        avoided = set((status.get("nodeCheck") or {}).get("avoided") or ())
        internal, name = status.get("internal") or {}, pod["metadata"]["name"]
        record = (internal.get("replicas") or {}).get(name) or {}
        wanted = record.get("attempt", internal.get("floor", 1))
        attempt = int(pod["metadata"]["annotations"][labels.ATTEMPT])
        if attempt == wanted and not avoided <= kept_off(pod):
            self.fail(f"pod {name} is created, and not kept off {sorted(avoided)}")

    def _check_admission(self, uid: str, name: str) -> None:
        """A pod is asked for; only the controller gives quota back."""
        recent = self.unqueued.get(uid, -KNOWN_SECONDS) + KNOWN_SECONDS > self.loop.time()
        if not recent and not any(map(reserved, self.server.owned(WORKLOADS, uid))):
            self.fail(f"pod creation for {name}, which holds no quota")

    def _status(self, job: Obj) -> Obj:
        """As the controller wrote it."""
        status: Obj = self.forged.get(job["metadata"]["uid"], job.get("status") or {})
        return status

    def _pod_deletion_sent(self, sent: Sent) -> None:
        key = sent.call.key
        pod = self.server.objects.get(Key("pods", "default", key.name))
        wanted = ((sent.call.body or {}).get("preconditions") or {}).get("uid")
        if wanted is None:
            self.fail(f"pod {key.name} is deleted without a UID")
        if pod is None or pod["metadata"]["uid"] != wanted:
            return
        job = self.jobs.get(owner_uid(pod))
        if job is None:
            return
        self.controller_deletes.add(wanted)
        stored = self.server.objects.get(job.key)
        if stored is not None and not self._is_deletion_due(job, stored, pod):
            self.fail(f"pod {key.name} is deleted before the status says why")
        if stored is not None and self._is_deletion_needless(job, stored, pod):
            self.fail(f"pod {key.name} is deleted, though its elastic job needs it as it is")

    def _is_deletion_needless(self, job: JobTruth, stored: Obj, pod: Obj) -> bool:
        status, truth = self._status(stored), job.pods[pod["metadata"]["uid"]]
        is_kept = (
            elastic.survivors_stay(stored)
            and not job.was_paused
            and (truth.name, truth.attempt) not in job.hung
            and status.get("phase") not in TERMINAL
            and not stored["metadata"].get("deletionTimestamp")
            and pod["metadata"]["name"] in _replica_names(status)
            and pod["spec"].get("nodeName") not in self.lost_nodes
        )
        return is_kept and elastic.is_needless(stored, pod, status.get("internal") or {})

    def _is_deletion_due(self, job: JobTruth, stored: Obj, pod: Obj) -> bool:
        status = self._status(stored)
        internal = status.get("internal") or {}
        truth = job.pods[pod["metadata"]["uid"]]
        record = (internal.get("replicas") or {}).get(truth.name) or {}
        return (
            status.get("phase") in TERMINAL
            or bool(internal.get("paused") or internal.get("held"))
            or pod["metadata"].get("deletionTimestamp") is not None
            or truth.attempt < record.get("attempt", internal.get("floor", 1))
            or truth.name not in _replica_names(status)
        )

    def created(self, sent: Sent, obj: Obj) -> None:
        """A creation was answered with success."""
        key = Key(sent.call.key.plural, "default", obj["metadata"]["name"])
        self.answered_creates.setdefault(sent.incarnation, {})[key] = obj["metadata"]["uid"]

    # What must hold once everything has calmed down.
    def check_end(self) -> None:
        """After faults have stopped and the jobs have had the time to end."""
        for uid, job in self.jobs.items():
            stored = self.server.objects.get(job.key)
            if job.deleted or stored is None or stored["metadata"]["uid"] != uid:
                self._check_nothing_left(uid, job)
                continue
            phase = (stored.get("status") or {}).get("phase")
            if phase in TERMINAL:
                self._check_clean_up(uid, job, stored)
            elif _is_paused(stored):
                if phase != "Paused":
                    self.fail(f"{job.key.name}: paused, but phase {phase}")
                if any(True for _ in self.server.owned("pods", uid)):
                    self.fail(f"{job.key.name}: paused, but has pods")
                if any(True for _ in self.server.owned("podgroups", uid)):
                    self.fail(f"{job.key.name}: paused, but has a PodGroup")
            else:
                self.fail(f"{job.key.name}: has not ended, phase {phase}")
            self._check_workloads(uid, job, stored)
            self._check_counts(job, stored)
            pods = {pod["metadata"]["name"]: pod for pod in self.server.owned("pods", uid)}
            for problem in status_checks.differences(stored, pods):
                self.fail(f"{job.key.name}: {problem}")
        for uid, key in self.boards.items():
            self._check_board(uid, key)

    def _check_workloads(self, uid: str, job: JobTruth, stored: Obj) -> None:
        """No quota is kept by a job that is paused or over.

        A job that had ended when it was paused keeps its Workload, which is Finished (decision
        171).
        """
        is_over = (stored.get("status") or {}).get("phase") in TERMINAL
        for workload in self.server.owned(WORKLOADS, uid):
            if not (is_over and finished(workload)):
                self.fail(f"{job.key.name}: Workload {workload['metadata']['name']} is left")

    def _check_board(self, uid: str, key: Key) -> None:
        """It outlives the end of its job and a pause, and goes with the job."""
        board = self.server.objects.get(key)
        phases = [pod["status"].get("phase") for pod in self.server.owned("pods", uid)]
        if board is None or board["metadata"]["uid"] != uid:
            if phases:
                self.fail(f"a pod outlives the TensorBoard {key.name}")
        elif self.jobs[owner_uid(board)].deleted:
            self.fail(f"the TensorBoard {key.name} outlives its job")
        elif phases != ["Running"]:
            self.fail(f"the pods of TensorBoard {key.name} are {phases}")
        elif (board.get("status") or {}).get("phase") != "Running":
            self.fail(f"the TensorBoard {key.name} is told as {board.get('status')}")

    def _check_nothing_left(self, uid: str, job: JobTruth) -> None:
        for key, obj in self.server.objects.items():
            if owner_uid(obj) == uid:
                self.fail(f"{key.plural}/{key.name} outlives its job {job.key.name}")

    def _check_clean_up(self, uid: str, job: JobTruth, stored: Obj) -> None:
        spec = stored["spec"]
        policy = (spec.get("runPolicy") or spec).get("cleanUpPolicy", "None")
        phases = [pod["status"].get("phase") for pod in self.server.owned("pods", uid)]
        live = [phase for phase in phases if phase not in TERMINAL]
        if policy == "All" and phases:
            self.fail(f"{job.key.name}: cleanUpPolicy All left {len(phases)} pods")
        if policy == "Unfinished" and live:
            self.fail(f"{job.key.name}: cleanUpPolicy Unfinished left {live}")
        if stored["status"]["phase"] == "Failed" and live:
            self.fail(f"{job.key.name}: failed, but pods go on: {live}")

    def _check_counts(self, job: JobTruth, stored: Obj) -> None:
        """Counted restarts equal those that really happened, where that can be told exactly."""
        if stored["metadata"]["uid"] not in self.forged:
            self._judge_diagnosis(job, stored)
        status = stored.get("status") or {}
        pods = list(job.pods.values())
        if stored["kind"] == "GenericJob":
            for task in status.get("tasks") or ():
                of_type = [pod for pod in pods if pod.type == task["type"]]
                counted = task.get("restartCount", 0)
                self._compare(job, f"restarts of {task['type']}", counted, ended_pods(of_type))
            return
        if stored["kind"] == "ColossalAIJob":  # tells restarts per type only
            tasks = status.get("tasks") or ()
            check_reconcile = (task["restartCount"] for task in tasks if task["type"] == "launcher")
            started = {pod.attempt for pod in pods if pod.type == "launcher"}
            real = self._incidents(job, stored, started)
            self._compare(job, "restarts of launcher", next(check_reconcile, 0), real)
            return
        counted = status.get("backoffCount") or 0
        if job_policies.restarts_one_by_one(stored):
            self._compare(job, "backoffCount", counted, _counted(stored, ended_pods(pods)))
            return
        started = {pod.attempt for pod in pods if not pod.apart}
        alone = ended_pods([pod for pod in pods if pod.apart])
        together = self._incidents(job, stored, started)
        real = (together[0] + alone[0], together[1] + alone[1])
        self._compare(job, "backoffCount", counted, _counted(stored, real))

    def _incidents(self, job: JobTruth, stored: Obj, certain: set[int]) -> tuple[int, int]:
        """How many attempts ended by a failure: for certain (among those), and at most."""
        over = range(1, job.attempt)
        for attempt in survived_fatal_ends(job, certain):
            self.fail(f"{job.key.name}: a rule failed attempt {attempt}, and another came")
        least = sum(1 for a in over if a in certain and job.failures[a] and not job.disturbances[a])
        stay = elastic.survivors_stay(stored)
        failed = sum(most_incidents(job, a, survivors_stay=stay) for a in over if job.failures[a])
        # Under Always a replica that completed costs one too; a failure after it, another one.
        most = failed + sum(job.completions[a] for a in over)
        # An incident that was counted at the very end has no pods to show for it.
        internal = (stored.get("status") or {}).get("internal") or {}
        return least, most + max(0, internal.get("attempt", 1) - job.attempt)

    def _compare(self, job: JobTruth, what: str, counted: int, real: tuple[int, int]) -> None:
        least, most = real[0], real[1] + job.countable
        if not (0 if job.vague else least) <= counted <= most:
            self.fail(f"{job.key.name}: {what} is {counted}, really {least} to {most}")


def _counted(job: Obj, real: tuple[int, int]) -> tuple[int, int]:
    """How many restarts may be counted, of so many at least and at most."""
    return (0, real[1]) if restart_budgets.refills(job) else real


def _exit_code(pod: Obj) -> int:
    status = pod["status"]
    main = [each for each in status["containerStatuses"] if "terminated" in each["state"]]
    beside = sidecars(pod)  # which are ended with their pod
    inits = [e for e in status.get("initContainerStatuses") or () if e["name"] not in beside]
    ended = main or [each for each in inits if "terminated" in each["state"]]
    return max(int(each["state"]["terminated"]["exitCode"]) for each in ended)


def _message(pod: Obj) -> str:
    ended = (each["state"].get("terminated") or {} for each in pod["status"]["containerStatuses"])
    return next((each["message"] for each in ended if "message" in each), "")


def _conditions(status: Obj) -> dict[str, str]:
    return {c["type"]: c["status"] for c in status.get("conditions") or ()}


def _replica_names(status: Obj) -> set[str]:
    return {
        replica["name"]
        for task in status.get("tasks") or ()
        for replica in task.get("replicas") or ()
    }


def _is_paused(job: Obj) -> bool:
    pause: Any = ((job["spec"].get("runMode") or {}).get("pause")) or {}
    return bool(pause.get("enabled"))


def _limit(job: Obj) -> int:
    return int((job["spec"].get("runPolicy") or {}).get("backoffLimit", 3))
