"""What blocks single pods of a job that has not ended: scheduling, image, volume, node, probes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainyard.client.pod_views import ContainerView, PodView
from trainyard.diagnosis.situation import Cause, Situation, lines_of, listed
from trainyard.kinds.shared.pods.container_roles import sidecars_of
from trainyard.kinds.shared.workload import LAUNCHED_PATH
from trainyard.schema.rules.pod_spec_rules import GRACE_SECONDS
from trainyard.schema.times import duration

_SLACK_SECONDS = 10.0
_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_NORMAL_WAITS = ("", "ContainerCreating", "PodInitializing")
_VOLUME_EVENTS = ("FailedMount", "FailedAttachVolume", "VolumeWarning")
_MISSING = ("Creating", "Pending")


def unschedulable(situation: Situation) -> Iterator[Cause]:
    """Pods that no node takes; those with the same reason are told together."""
    by_reason: dict[str, list[str]] = {}
    for pod in situation.pods:
        text = pod.no_place
        if text is not None and not pod.node:
            by_reason.setdefault(text, []).append(situation.replica(pod))
    for text, replicas in by_reason.items():
        what, advice = _placement(situation, text)
        yield Cause(
            f"{listed(replicas)} cannot be scheduled: {what}",
            (f"PodScheduled is False: {text}",),
            advice,
        )


def _placement(situation: Situation, text: str) -> tuple[str, tuple[str, ...]]:
    """What is missing, and how to get it, from the scheduler's message."""
    if found := re.search(r"queue (\S+) is closed", text):
        return f"queue {found[1]} is closed", (
            f"`trainyard queue open {found[1]}`, or use another queue",
        )
    if found := re.search(r"queue (\S+) allows .* at all", text):
        return f"it asks for more than queue {found[1]} allows at all", (
            "ask for less in resources.requests or with fewer replicas",
            f"use another queue, or have the quota of {found[1]} raised",
        )
    if found := re.search(r"queue (\S+) allows", text):
        return f"the quota of queue {found[1]} is used up", (
            (
                f"`trainyard queue show {found[1]}` tells by which jobs; wait for them, or use "
                "another queue"
            ),
        )
    if found := re.search(r"queue (\S+) does not exist", text):
        return f"queue {found[1]} does not exist", (f"`trainyard queue create {found[1]}`",)
    if found := re.search(r"pod group (\S+) has (\d+) of (\d+) pods", text):
        return f"{found[2]} of the {found[3]} pods that start together are there", (
            "it waits for the others; they are told below if something holds them up",
        )
    if found := re.search(r"waits for other pods of its job: (\d+) start together", text):
        return f"{found[1]} replicas start together, and some have no pod yet", (
            f"`trainyard events {situation.job.name}` tells whether something keeps them from it",
        )
    if found := re.search(r"start the cluster with (--resource \S+(?: --resource \S+)*)", text):
        return text.partition(";")[0], (
            f"`trainyard down`, then `trainyard up {found[1]}` pretends the devices",
            "ask for fewer",
        )
    if "waiting for other pods to end" in text:
        return text.partition(";")[0], (
            "it starts when other jobs have ended; `trainyard list -A` shows them",
        )
    return text.partition(";")[0], _on_cluster(situation, text)


def _on_cluster(situation: Situation, text: str) -> tuple[str, ...]:
    """Phrases of kube-scheduler (pkg/scheduler/framework/plugins)."""
    advice = []
    if "Insufficient" in text or "needs " in text:
        advice.append("ask for less in resources.requests, or wait until others free it")
    if "were unschedulable" in text:
        advice.append("`kubectl uncordon NODE` lets pods onto a node again, once it may have them")
    if found := re.search(r"untolerated taint {([^:}]+)", text):
        taint = f"`kubectl taint node NODE {found[1]}-`"
        advice.append(f"add a toleration to the pod template, or remove the taint: {taint}")
    if "node affinity" in text or "selector" in text or "labels" in text:
        advice.append("correct nodeSelector or affinity of the pod template")
        advice.append("or label a node: `kubectl label node NODE KEY=VALUE`")
    if "persistentvolumeclaim" in text.lower():
        advice.append("create the claim that the pod template names")
    if not advice and not situation.is_local:
        advice.append("`kubectl describe nodes` tells what the nodes have to offer")
    return tuple(advice)


def not_starting(situation: Situation) -> Iterator[Cause]:
    """Pods that have a node, and whose containers do not start."""
    for pod in situation.pods:
        if not pod.node or pod.deleting_since:
            continue
        if (cause := _blocked(situation, pod)) is not None:
            yield cause


def _blocked(situation: Situation, pod: PodView) -> Cause | None:
    replica = situation.replica(pod)
    for container in pod.containers:
        waiting = container.waiting
        reason = str(waiting.get("reason") or "")
        if reason in _NORMAL_WAITS:
            continue
        message = str(waiting.get("message") or "")
        if reason == "CrashLoopBackOff":
            return _ends_again_and_again(situation, replica, container)
        evidence = (f"container {container.name} waits: {reason}", *lines_of(message))
        if reason in _IMAGE:
            image = container.obj.get("image") or "of its container"
            return Cause(
                f"{replica} cannot start: the image {image} cannot be pulled",
                evidence,
                ("check the image's name and tag, and imagePullSecrets of the pod template",),
            )
        return Cause(
            f"{replica} cannot start: {message.partition(chr(10))[0] or reason}",
            evidence,
            ("correct what the message names; it may be a Secret or ConfigMap that is missing",),
        )
    return _volumes(situation, pod) or _initialising(situation, pod)


def _ends_again_and_again(situation: Situation, replica: str, container: ContainerView) -> Cause:
    """A sidecar, which its node starts again and again."""
    code = (container.obj.get("lastState") or {}).get("terminated", {}).get("exitCode", "?")
    name = container.name
    return Cause(
        f"container {name} of {replica} ends again and again: with exit code {code} the last time",
        (f"container {name} waits: CrashLoopBackOff",),
        (f"`trainyard logs {situation.job.name} --replica {replica} -c {name}`",),
    )


def _volumes(situation: Situation, pod: PodView) -> Cause | None:
    if not all("waiting" in container.state for container in pod.containers):
        return None
    for event in situation.events_about(pod.name, *_VOLUME_EVENTS):
        return Cause(
            f"{situation.replica(pod)} waits for a volume",
            (f"{event.get('reason')}: {event.get('message')}",),
            ("create the Secret, ConfigMap or claim that the volume refers to",),
        )
    return None


def _initialising(situation: Situation, pod: PodView) -> Cause | None:
    beside = sidecars_of(pod.spec) if pod.phase == "Running" else frozenset()
    for container in pod.init_containers:
        running = container.running if container.name not in beside else {}
        if running and not container.obj.get("started", False):
            replica, name = situation.replica(pod), container.name
            age = duration(situation.ago(running.get("startedAt")))
            return Cause(
                f"{replica} is still preparing: init container {name} runs",
                (f"it has been running for {age}",),
                (f"`trainyard logs {situation.job.name} --replica {replica} -c {name}`",),
            )
    return None


def lost(situation: Situation) -> Iterator[Cause]:
    """Pods whose node has gone, or that the cluster took away (decision 26)."""
    for pod in situation.pods:
        condition = pod.condition("Ready")
        is_lost = pod.status.get("reason") == "NodeLost" and pod.phase != "Failed"
        if is_lost or "Unknown" in (pod.phase, condition.get("status")):
            node = pod.node or "?"
            message = pod.status.get("message") or condition.get("message")
            yield Cause(
                f"{situation.replica(pod)} is lost with its node {node}",
                (str(message or "its node does not answer"),),
                (
                    "after some minutes the pod is deleted by force and replaced, at no cost",
                    f"`kubectl describe node {node}` tells more",
                ),
            )


def stuck_terminating(situation: Situation) -> Iterator[Cause]:
    """Pods that should be gone by now."""
    for pod in situation.pods:
        deleting = pod.deleting_since
        # The time already includes the grace period.
        late = situation.ago(deleting) if deleting else 0.0
        if late <= _SLACK_SECONDS:
            continue
        grace = pod.metadata.get("deletionGracePeriodSeconds", GRACE_SECONDS)
        evidence = [f"it should have ended {duration(late)} ago, after a grace of {grace} s"]
        if finalizers := pod.metadata.get("finalizers"):
            evidence.append(f"finalizers: {', '.join(finalizers)}")
        yield Cause(
            f"{situation.replica(pod)} is stuck while it terminates, and its successor waits",
            tuple(evidence),
            (
                (
                    "it will be deleted by force after some minutes; by hand: "
                    f"`kubectl delete pod {pod.name} --force --grace-period=0`"
                ),
            ),
        )


def waiting_for_peers(situation: Situation) -> Iterator[Cause]:
    """Some replicas run and wait for others, which are not there yet."""
    if situation.job.is_debugged:
        return
    states = _replica_phases(situation)
    running = [name for name, phase in states if phase == "Running"]
    missing = [f"{name} ({phase})" for name, phase in states if phase in _MISSING]
    is_enough = situation.job.is_elastic and situation.job.phase == "Running"
    if not running or not missing or is_enough:
        return
    what = f"{len(running)} of {len(states)} replicas run"
    if situation.job.kind.launches_over_ssh:
        what += " and wait for the sshd of their peers, before the launch"
    elif situation.job.kind.training_containers:
        what += " and wait for their peers at the rendezvous"
    yield Cause(
        what,
        (f"not running yet: {listed(missing)}",),
        (f"`trainyard events {situation.job.name}` tells what happened to the others",),
    )


def starting(situation: Situation) -> Iterator[Cause]:
    """Nothing is wrong: replicas just take their time."""
    missing = [f"{name} ({phase})" for name, phase in _replica_phases(situation)]
    if missing and situation.job.phase == "Pending":
        yield Cause(f"its replicas are being started: {listed(missing)}")


def _replica_phases(situation: Situation) -> list[tuple[str, str]]:
    return [
        (situation.replica(replica["name"]), str(replica.get("phase") or "Creating"))
        for replica in situation.job.replicas
    ]


def unready(situation: Situation) -> Iterator[Cause]:
    """Pods that run, and whose readiness or startup probe does not succeed."""
    for pod in situation.pods:
        waiting = [
            each.name
            for each in pod.main_containers
            if _is_unready(each) and not _launches(pod, each)
        ]
        if not waiting or pod.deleting_since:
            continue
        replica = situation.replica(pod)
        messages = (str(e.get("message")) for e in situation.events_about(pod.name, "Unhealthy"))
        yield Cause(
            f"{replica} runs, but its probes do not call it ready",
            (f"container {', '.join(waiting)} is not ready", *tuple(messages)[:1]),
            ("look at what the probe asks for; the job itself does not wait for it",),
        )


def half_ended(situation: Situation) -> Iterator[Cause]:
    """Pods that go on although one of their containers has failed."""
    for pod in situation.pods:
        running = [each.name for each in pod.main_containers if each.is_running]
        for container in pod.main_containers:
            if not container.exit_code or not running or pod.deleting_since:
                continue
            replica, name = situation.replica(pod), container.name
            yield Cause(
                f"container {name} of {replica} has ended with exit code {container.exit_code}, "
                f"and {', '.join(running)} beside it goes on",
                ("a replica ends, and is restarted, when all containers of its pod have ended",),
                (
                    "end the other with it, or make that an init container, restartPolicy Always",
                    f"`trainyard logs {situation.job.name} --replica {replica} -c {name}`",
                ),
            )


def _launches(pod: PodView, container: ContainerView) -> bool:
    """Whether its startup probe is ours, of which `launch_diagnosis` tells."""
    given = (c for c in pod.spec.get("containers") or () if c.get("name") == container.name)
    return any(LAUNCHED_PATH in str(each.get("startupProbe")) for each in given)


def _is_unready(container: ContainerView) -> bool:
    return container.is_running and container.obj.get("ready") is False
