"""Messages of conditions and events that tell what happened to which replica, and why.

The wording of the documented ones is fixed: scripts match on it (decision 34). The others are ours.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from datetime import datetime

from trainyard.kinds.shared.reasons import NO_ROOM, without_torchrun_report
from trainyard.kinds.shared.workload import Workload
from trainyard.lifecycle.internal_status import Repeat
from trainyard.lifecycle.observed import Conflict, Pod, Refusal
from trainyard.lifecycle.replica_state import Exit
from trainyard.lifecycle.replica_view import Replica

INITIALIZED = "The job has been initialized successfully."
LAUNCHED = "The launch has started."
TO_BE_LAUNCHED = "The launch starts once all replicas run."
RUNNING = "All pods are running normally or have completed successfully."
STILL_RUNNING = "The job is still running."
NOT_FINISHED = "The job has not finished."
NO_FAILURE = "No replica has failed."
FINISHED = "The job has finished successfully."
ALL_FINISHED = "The job has finished successfully"
"""Of ReplicaFailure, in the words that one kind's document has for it."""
PAUSED = "The job is paused: its pods are deleted."
RESUMED = "The job has been resumed."
ADMITTED = "Kueue has admitted the job again: its replicas start anew, at no cost."
SPEC_DRIFT = (
    "The spec has changed after creation. Pods that run keep what they were created with; "
    "create the job anew to be sure of what runs."
)
NO_GANG = (
    "The job asks for scheduler.t9kScheduler, and this cluster has no scheduler that places pods "
    "all or none. Install one (Kueue, Volcano, scheduler-plugins) and start the operator anew, or "
    "name it in the operator's setting `gangScheduler`, or remove `spec.scheduler`."
)
# Decision 34. A whole termination message has up to 4096 bytes, too many for a condition:
# https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
LAST_LINES = 5
LAST_CHARACTERS = 800
_KILLED = 128 + signal.SIGKILL
_NAMED = 8
"""As many pods are named in one text; more would not fit into an event's 1024 characters."""


def replica_failure(replica: Replica) -> str:
    """`Pod[…] exited with error code 137 (OOMKilled): last lines`."""
    end = replica.exit or Exit()
    if end.ruling is not None and end.ruling.taken:
        return taken_away(replica)
    if end.code is None:
        text = f"Pod[{replica.name}] failed"
    else:
        text = f"Pod[{replica.name}] exited with error code {end.code}"
    details = [end.reason] if end.reason and end.reason != "Error" else []
    if end.code == _KILLED and not details:
        details = ["SIGKILL"]  # after which no program can say why
    if end.init_container:
        details.append(f"init container {end.init_container}")
    if details:
        text += f" ({', '.join(details)})"
    lines = last_lines(without_torchrun_report(end.message))
    if re.search(NO_ROOM, lines) and "left on device" not in lines:
        lines += "\n(It could not write for want of room: a volume or the disk is full.)"
    return f"{text}: {lines}" if lines else text


def taken_away(replica: Replica) -> str:
    """Of a replica that was taken away."""
    end = replica.exit or Exit()
    return f"Pod[{replica.name}] was taken away ({end.reason or 'Deleted'})"


def last_lines(message: str) -> str:
    """The end of a termination message."""
    lines = [line for line in message.strip().splitlines() if line.strip()]
    return "\n".join(lines[-LAST_LINES:])[-LAST_CHARACTERS:]


def job_failure(workload: Workload, replica: Replica) -> str:
    """Why a job failed of which this replica was the last hope."""
    end = replica.exit or Exit()
    what = f"failed ({end.reason})" if end.reason else "failed"
    if end.ruling is not None and end.ruling.taken:
        what = f"was taken away ({end.reason})"
    elif end.code is not None:
        what = f"failed with exit code {end.code}"
    return f"{workload.kind} {workload.name} has failed: {replica.name} {what}"


def same_again(repeat: Repeat) -> str:
    """It fails in a row by one lasting cause."""
    return (
        f"Failure {repeat.times} in a row by {repeat.text}, with nothing gained in between: "
        "a restart will not help."
    )


def failed_in_vain(workload: Workload, replica: Replica, repeat: Repeat) -> str:
    """The judge of restarts ends the job."""
    return f"{job_failure(workload, replica)}. {same_again(repeat)}"


def failed_by_rule(workload: Workload, replica: Replica) -> str:
    """A rule of `podFailurePolicy` fails the job."""
    ruling = replica.exit.ruling if replica.exit else None
    assert ruling is not None
    return f"{job_failure(workload, replica)}; {ruling.decides}"


def has_failed(workload: Workload) -> str:
    """Where why it failed has been lost."""
    return f"{workload.kind} {workload.name} has failed."


def restart(replica: Replica, restarted: int, seconds: float, budget: str) -> str:
    """What is restarted, when, and what it cost."""
    what = "it" if restarted == 1 else f"{restarted} replicas"
    when = f" in {seconds:g} s" if seconds > 0 else ""
    end = replica.exit or Exit()
    rule = f": {end.ruling.decides}" if end.ruling else ""
    if end.free and end.ruling is None:
        return f"{taken_away(replica)}; {what} will be created again{when}, at no cost."
    if end.free:
        return f"{replica_failure(replica)}\nRestarting {what}{when}, at no cost{rule}."
    if end.code == 0:
        return f"Pod[{replica.name}] has completed; {what} will run again{when} ({budget})."
    return f"{replica_failure(replica)}\nRestarting {what}{when} ({budget}){rule}."


def followed_membership_change(replica: Replica, restarted: int, seconds: float) -> str:
    """Of replicas that ended because the members of their elastic job changed."""
    what = "it" if restarted == 1 else f"{restarted} replicas"
    when = f" in {seconds:g} s" if seconds > 0 else ""
    return (
        f"{replica_failure(replica)}\n"
        f"The members of the job had changed: {what} will be created again{when}, at no cost."
    )


def name_taken(conflict: Conflict) -> str:
    """A name that somebody else's object holds; more advice may follow."""
    return (
        f"cannot create {conflict.resource.plural} {conflict.name}: the name is held by "
        f"{conflict.owner}; delete that object"
    )


def name_taken_for_job(conflict: Conflict) -> str:
    """Where the name comes from that of the job."""
    return f"{name_taken(conflict)}, or give the job another name"


def refused(refusal: Refusal) -> str:
    """A creation that the server refuses."""
    return (
        f"the server refuses to create {refusal.resource.plural} {refusal.name} "
        f"({refusal.code}): {refusal.message}"
    )


def unschedulable(pod: Pod) -> str:
    """A pod for which the scheduler finds no node."""
    return f"Pod[{pod.name}] cannot be scheduled: {pod.unschedulable}"


def evicted(why: str) -> str:
    """A queue has taken back the admission of a job."""
    return f"The job loses its pods, at no cost, until Kueue admits it again: it {why}"


def flavors_unknown(names: Sequence[str]) -> str:
    """The admission names what the controller is not shown."""
    return (
        f"Kueue has admitted the job to {', '.join(names)}: no such ResourceFlavor is known, so "
        "that its pods cannot be placed. It is gone, or the operator may not list ResourceFlavors."
    )


def invalid(kind: str, name: str, problems: str) -> str:
    """A spec that breaks rules."""
    return f"{kind} {name} is invalid: {problems}"


def overdue(workload: Workload) -> str:
    """The job's deadline has passed."""
    return (
        f"{workload.kind} {workload.name} has failed: it was active longer than its deadline of "
        f"{workload.active_deadline_seconds} s."
    )


def hung(workload: Workload, why: str) -> str:
    """A hang that ends the job."""
    return f"{workload.kind} {workload.name} has failed: it hangs; {why}"


def launch_waits(probe_output: str) -> str:
    """All replicas run, and the training has not begun."""
    return f"The launch has not started: {probe_output or 'its pod does not say why'}."


def hosts_differ(differences: str) -> str:
    """The training has begun on replicas that are not alike."""
    return f"The launch has started, but its hosts differ: {differences}."


def preflight_failed(missing: str) -> str:
    """It did not begin, since hosts lack what it needs."""
    return f"The launch has not started: its preflight failed; {missing}."


def launch_overdue(workload: Workload, probe_output: str) -> str:
    """It never began."""
    return (
        f"the launch has not started within launchTimeoutSeconds "
        f"({workload.launch_timeout_seconds}): {probe_output or 'its pod does not say why'}"
    )


def resized(before: int, after: int) -> str:
    """An elastic job changes its size."""
    return f"The job changes its size from {before} to {after} replicas."


def created(workload: Workload) -> str:
    """The job is seen for the first time."""
    return f"A {workload.kind} has been created: {workload.name}"


def new_replica(pod: str, attempt: int, *, grown: bool) -> str:
    """A replica's pod; `attempt` counts from 1. `grown`: it came as the job grew."""
    if attempt == 1:
        return f"Create the replica[{pod}] for the first time."
    if grown:  # it may have been there before the job shrank
        return f"Create the replica[{pod}], attempt {attempt}: the job has grown."
    return f"Create the replica[{pod}] again, attempt {attempt}."


def new_replicas(attempts: Sequence[tuple[str, int]]) -> str:
    """Several pods of one pass, each with its attempt; they are named where they are few."""
    number = f"Create {len(attempts)} replicas"
    if all(attempt == 1 for _, attempt in attempts):
        return f"{number} for the first time."
    if len(attempts) > _NAMED:
        return f"{number}."
    return f"{number}: {', '.join(f'{pod} (attempt {attempt})' for pod, attempt in attempts)}."


def in_place(attempts: Sequence[tuple[str, int]]) -> str:
    """Several pods go on with another attempt."""
    if len(attempts) > _NAMED:
        return f"Start {len(attempts)} replicas again in their pods."
    named = ", ".join(f"{pod} (attempt {attempt})" for pod, attempt in attempts)
    return f"Start {len(attempts)} replicas again in their pods: {named}."


def not_in_place(pods: Sequence[str], *, is_lost: bool) -> str:
    """Why new pods come instead."""
    why = "cannot go on" if is_lost else "did not answer in time"
    which = f"{len(pods)} pods" if len(pods) > _NAMED else ", ".join(pods)
    return f"The replicas get new pods: {which} {why}."


def budget(spent: int, limit: int) -> str:
    """How much of a restart policy's limit is used."""
    return f"{spent} of {limit} restarts"


def began_running(now: datetime) -> str:
    """As documented: `2024-08-02 07:03:59.69 UTC`."""
    shown = f"{now:%Y-%m-%d %H:%M:%S}.{now.microsecond // 10000:02d} UTC"
    return f"The job began running at {shown}"


def queue_limit(workload: Workload, replica: Replica) -> str:
    """A queue's maxDuration ended the job."""
    return (
        f"{workload.kind} {workload.name} has failed: its queue removed {replica.name}, "
        "which ran longer than the queue's maxDuration allows."
    )


def progress(replicas: int, well: int, failed: int) -> str:
    """How many run or have completed; in the documented words when all do."""
    if well == replicas:
        return RUNNING
    text = f"{well} of {replicas} replicas are running or have completed"
    return f"{text}; {failed} {'has' if failed == 1 else 'have'} failed." if failed else f"{text}."


def stopped(number: int) -> str:
    """Of replicas that did not fail, but are told as failed: the end of the job stopped them."""
    was = "was" if number == 1 else "were"
    return f"No replica has failed by itself; {number} {was} stopped."
