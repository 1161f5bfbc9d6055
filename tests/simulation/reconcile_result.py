"""What one reconcile reports, beside what it had observed, as the judges of texts read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from tests.simulation import job_policies
from tests.simulation.server import Obj
from trainyard.kinds.shared import labels
from trainyard.lifecycle.actions import Create, Delete, Event, Patch, Plan
from trainyard.lifecycle.observed import Container, Observed, Pod

ENDS = ("Succeeded", "Failed")
STOPPED = "Stopped"
"""Why a replica is told as Failed that only the end of its job has stopped."""


@dataclass(frozen=True)
class ReconcileResult:
    """One reconcile of a job: `before` and `after` are its status, `after` as it wants it."""

    job: Obj
    before: Obj
    after: Obj
    observed: Observed
    plan: Plan
    now: datetime

    @classmethod
    def of(cls, job: Obj, observed: Observed, plan: Plan, now: datetime) -> ReconcileResult:
        before = job.get("status") or {}
        after = before if plan.status is None else plan.status
        return cls(job, before, after, observed, plan, now)

    @property
    def spec(self) -> Obj:
        spec: Obj = self.job["spec"]
        return spec

    @property
    def phase(self) -> str:
        return str(self.after.get("phase", ""))

    @property
    def ends_now(self) -> bool:
        """Whether this pass is the one that ends the job."""
        before = self.before
        had_ended = before.get("phase") in ENDS and "completionTime" in before
        return self.phase in ENDS and not (self.account(before).get("ended") or had_ended)

    @property
    def events(self) -> Sequence[Event]:
        return self.plan.events

    # Replicas, as the status tells them.

    @cached_property
    def entries(self) -> Mapping[str, Obj]:
        """By pod name."""
        return _entries(self.after)

    @cached_property
    def known(self) -> Mapping[str, Obj]:
        """Those of which an earlier status told a pod."""
        return {name: e for name, e in _entries(self.before).items() if e.get("uid")}

    @cached_property
    def counts(self) -> Counter[str]:
        """Replicas by phase, counted by hand."""
        return Counter(entry["phase"].lower() for entry in self.entries.values())

    @property
    def total(self) -> int:
        return len(self.entries)

    @property
    def well(self) -> int:
        """How many run or have completed."""
        return self.counts["running"] + self.counts["succeeded"]

    @cached_property
    def failed(self) -> Sequence[str]:
        """Replicas that are told as failed by themselves."""
        return [
            name
            for name, entry in self.entries.items()
            if entry.get("reason") != STOPPED
            and (entry["phase"] == "Failed" or self._was_cleaned_up(entry))
        ]

    def _was_cleaned_up(self, entry: Mapping[str, Any]) -> bool:
        """After its end, which was a failure."""
        return self.phase in ENDS and entry["phase"] == "Deleted" and "reason" in entry

    # Pods, as they were seen.

    @cached_property
    def pods(self) -> Mapping[str, Pod]:
        uid = self.job["metadata"]["uid"]
        return {
            p.name: self._with_reported_end(p) for p in self.observed.pods if p.owner_uid == uid
        }

    def _with_reported_end(self, pod: Pod) -> Pod:
        """With the end that it has told itself, as one that waits for its next attempt."""
        result = self.observed.reports.in_place.get(pod.name)
        if pod.phase != "Running":
            return pod
        if result is None:  # another controller has heard it
            code, message = self._known_code(pod), ""
        elif (result.uid, result.attempt) != (pod.uid, pod.attempt) or not result.ended:
            return pod
        else:
            code, message = result.code, result.message
        if not code:
            return pod
        ended = [
            replace(c, state="Terminated", reason="Error", exit_code=code, message=message)
            for c in pod.containers
        ]
        return replace(pod, phase="Failed", containers=tuple(ended))

    def _known_code(self, pod: Pod) -> int:
        """With which an earlier status says that a pod has failed which is to restart in place."""
        entry = self.known.get(pod.name) or {}
        in_place = (self.spec.get("runPolicy") or {}).get("restartMode") == "InPlace"
        if not in_place or (entry.get("uid"), entry.get("phase")) != (pod.uid, "Failed"):
            return 0
        return next(iter(self._codes_in_status(entry)), 0)

    @cached_property
    def creates(self) -> Mapping[str, Create]:
        """Creations of pods, by name."""
        return {
            a.name: a
            for a in self.plan.actions
            if isinstance(a, Create) and a.resource.plural == "pods"
        }

    def goes(self, pod: str) -> bool:
        """Whether the pod is on its way out, or is deleted now."""
        seen = self.pods.get(pod)
        deleted = {a.uid for a in self.plan.actions if isinstance(a, Delete)}
        return seen is None or seen.deleting is not None or seen.uid in deleted

    @cached_property
    def goes_on(self) -> Mapping[str, int]:
        """Pods that are given another attempt now, and which."""
        found: dict[str, int] = {}
        for action in self.plan.actions:
            if isinstance(action, Patch) and isinstance(action.patch, dict):
                notes = (action.patch.get("metadata") or {}).get("annotations") or {}
                found |= {action.name: int(notes[labels.ATTEMPT])} if notes else {}
        return found

    def wanted(self, pod: str) -> int:
        """The attempt that a replica is to have."""
        return _wanted(self.after, pod)

    def attempt_of(self, pod: str) -> int:
        """Of a pod that is created now."""
        annotations = self.creates[pod].manifest()["metadata"]["annotations"]
        return int(annotations[labels.ATTEMPT])

    def ended_with(self, pod: str, code: int | None, init: str = "") -> bool:
        """Whether the pod was seen to end so; if it is gone, an earlier status told it."""
        seen = self.pods.get(pod)
        if seen is None:
            entry = self.known.get(pod, {})
            return entry.get("phase") in ENDS and (
                code in self._codes_in_status(entry) or code is None
            )
        if code is None:
            return seen.phase == "Failed" or self.gave_up(seen)
        return any(_ended_with(each, code, init) for each in seen.containers)

    def gave_up(self, seen: Pod) -> bool:
        """Whether it runs, and was to have launched the others by now, or hangs."""
        policy = self.spec.get("runPolicy") or {}
        acts = (policy.get("hang") or {}).get("action", "Explain") != "Explain"
        if acts and any(r.pod == seen.name for r in self.observed.reports.ranks):
            return True
        limit = timedelta(
            seconds=(self.spec.get("runPolicy") or {}).get("launchTimeoutSeconds", 600)
        )
        return any(
            c.started is False and c.since is not None and self.now - c.since >= limit
            for c in seen.containers
        )

    def _codes_in_status(self, entry: Obj) -> Sequence[int]:
        """Of its main containers; of others only where none of those has ended."""
        types = self.spec.get("replicaSpecs") or [self.spec["worker"]]
        specs = [(type_.get("template") or {}).get("spec") or {} for type_ in types]
        inits = {each["name"] for spec in specs for each in spec.get("initContainers") or ()}
        codes = {c["name"]: c["exitCode"] for c in entry["containers"] if "exitCode" in c}
        return [codes[name] for name in codes if name not in inits] or [*codes.values()]

    def was_taken(self, pod: str) -> bool:
        """Whether somebody or something else took the pod away, or it vanished."""
        seen = self.pods.get(pod)
        if seen is None:
            return pod in self.known
        return (
            seen.deleting is not None
            or bool(seen.disruption)
            or bool(seen.reason)
            or seen.phase == "Unknown"
            or seen.node in self.observed.lost_nodes
            or any(c.reason in ("ContainerStatusUnknown", "Unknown") for c in seen.containers)
        )

    def leaves_its_node(self, pod: str) -> bool:
        """Whether the pod runs on a node that its job avoids since the check before its start."""
        found, seen = self.after.get("nodeCheck") or {}, self.pods.get(pod)
        bad = {e["replica"]: e["node"] for e in found.get("badNodes") or () if e.get("avoided")}
        return seen is not None and found["attempt"] == seen.attempt and bad.get(pod) == seen.node

    def finds_no_node(self, pod: str) -> bool:
        """Whether the pod is kept off nodes, and has found no other for two minutes."""
        seen = self.pods.get(pod)
        if seen is None or seen.created is None or seen.node:
            return False
        if "trainyard.dev/avoids" not in dict(seen.annotations):
            return False
        return bool(seen.unschedulable) and self.now - seen.created >= timedelta(seconds=120)

    # The account.

    def raised(self) -> set[str]:
        """Replicas of which another attempt is wanted than before."""
        return {n for n in self.entries if _wanted(self.after, n) > _wanted(self.before, n)}

    @cached_property
    def apart(self) -> set[str]:
        """Pods of replicas that restart alone in a job whose others restart together."""
        types = job_policies.apart(self.job)
        tasks = (task for task in self.after["tasks"] if task["type"] in types)
        return {entry["name"] for task in tasks for entry in task["replicas"]}

    def account(self, status: Obj) -> Obj:
        internal: Obj = status.get("internal") or {}
        return internal


class Text(NamedTuple):
    """One text that was reported. `place` is `Running=True`, `event Restart` and the like.

    `reason` is an event's type, Normal or Warning. Not `is_new`: it stood there before.
    """

    place: str
    reason: str
    message: str
    is_new: bool


def texts_of(result: ReconcileResult) -> Iterator[Text]:
    """All conditions and events of a pass."""
    before = {(c.get("type"), c.get("status")): c for c in result.before.get("conditions") or ()}
    for condition in result.after.get("conditions") or ():
        was = before.get((condition["type"], condition["status"]), {})
        place, message = f"{condition['type']}={condition['status']}", condition["message"]
        yield Text(place, condition["reason"], message, was.get("message") != message)
    for event in result.events:
        yield Text(f"event {event.reason}", event.type, event.message, is_new=True)


def _entries(status: Obj) -> Mapping[str, Obj]:
    return {
        entry["name"]: entry
        for task in status.get("tasks") or ()
        for entry in task.get("replicas") or ()
    }


def _ended_with(container: Container, code: int, init: str) -> bool:
    if container.exit_code != code:
        return False
    return container.name == init if init else not container.is_init


def _wanted(status: Obj, name: str) -> int:
    internal: dict[str, Any] = status.get("internal") or {}
    record = (internal.get("replicas") or {}).get(name) or {}
    return int(record.get("attempt", internal.get("floor", 1)))
