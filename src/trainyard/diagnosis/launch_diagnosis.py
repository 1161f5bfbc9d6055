"""Why a launch over ssh has not started: which replicas it waits for, and what they logged."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trainyard.client.log_tails import Tail
from trainyard.client.pod_views import ContainerView, PodView
from trainyard.diagnosis.situation import Cause, Situation
from trainyard.kinds.kind import LAUNCH_TIMEOUT_SECONDS
from trainyard.kinds.shared.reasons import (
    ConditionReason,
    launch_wait_message,
    preflight_difference,
)
from trainyard.kinds.shared.workload import LAUNCHED_PATH
from trainyard.schema.times import duration

_SSHD_PREFIX = "trainyard: sshd: "
_QUOTED_LINES = 6
_ADVICE = (
    (
        r"name cannot be found|name server",
        "replicas find each other by DNS: look at the cluster's, at dnsPolicy and dnsConfig",
    ),
    (
        r"Connection refused",
        "no sshd listens there: look at that replica's log, and at sshd of its image",
    ),
    (
        r"something else than ssh",
        "another container of the pod listens on the port of sshd; let it use another one",
    ),
    (
        r"timed out|No route|unreachable|no answer",
        "no packets come through: look for a NetworkPolicy or firewall between the replicas",
    ),
    (
        r"session|connection was closed|Connection closed",
        "sshd answers and the session fails: look at the login shell and at its start-up files",
    ),
    (
        r"no rank has begun",
        "the launcher itself hangs or has failed: look at its log, and at the options given to it",
    ),
)


def launching(situation: Situation) -> tuple[PodView, ContainerView] | None:
    """The pod and container that launch the others and have not done so yet; None if none does."""
    for pod in situation.pods:
        for container in pod.spec.get("containers") or ():
            view = pod.container(str(container["name"]))
            if view is None or not view.is_running or view.obj.get("started") is not False:
                continue
            if LAUNCHED_PATH in str(container.get("startupProbe")):
                return pod, view
    return None


def pods_to_read(situation: Situation) -> list[str]:
    """Pods whose logs may tell more of a launch that waits, who launches first."""
    found = launching(situation)
    if found is None:
        return []
    leader = found[0]
    return [leader.name, *(p.name for p in _awaited(situation, leader)[:2])]


def not_launched(situation: Situation) -> Iterator[Cause]:
    """All replicas run, and the training has not begun."""
    found = launching(situation)
    if found is None or found[0].deleting_since:
        return
    pod, container = found
    age = situation.ago(_latest_start(situation) or container.running.get("startedAt"))
    message = _wait_message(situation, pod)
    if preflight_difference(message):  # it has started, and has still to say so
        return
    shown = message or "it does not say yet what it waits for"
    limit = situation.job.run_policy.get("launchTimeoutSeconds", LAUNCH_TIMEOUT_SECONDS)
    replica = situation.replica(pod)
    evidence = [f"{replica} launches the training, which may take {limit} s in all"]
    evidence += _sshd_lines(situation)
    if "no rank has begun" in message:
        evidence += [f"| {line}" for line in _probe_lines(situation, pod.name)[-_QUOTED_LINES:]]
    others = [situation.replica(each) for each in _awaited(situation, pod)]
    yield Cause(
        f"its launch has not started for {duration(age)}: {shown}",
        tuple(evidence),
        (
            *_advice(message),
            f"`trainyard logs {situation.job.name} --replica {(others or [replica])[0]}`",
        ),
    )


def differing_hosts(situation: Situation) -> Iterator[Cause]:
    """The training has begun on hosts that are not alike (decision 128)."""
    condition = situation.job.condition("Launched")
    if condition.get("reason") == ConditionReason.HOSTS_DIFFER:
        advice = (
            "give all replicas the same image or environment, and as many GPUs as processes; "
            "a training may live with such differences, or fail or hang by them"
        )
        message = str(condition.get("message"))
        yield Cause("the hosts of its launch are not alike", (message,), (advice,))


def _awaited(situation: Situation, leader: PodView) -> list[PodView]:
    """The other pods that the launch names (decision 110: by type and number)."""
    named = set(re.findall(r"[\w-]+", _wait_message(situation, leader)))
    others = (pod for pod in situation.pods if pod.name != leader.name)
    return [pod for pod in others if situation.replica(pod) in named]


def _wait_message(situation: Situation, pod: PodView) -> str:
    for event in situation.events_about(pod.name, "Unhealthy"):
        if message := launch_wait_message(str(event.get("message") or "")):
            return message
    condition = situation.job.condition("Launched")
    if condition.get("reason") != ConditionReason.LAUNCH_WAITS:
        return ""
    return str(condition.get("message") or "").partition(": ")[2].rstrip(".")


def _latest_start(situation: Situation) -> str:
    """When the last replica came up, before which nothing could be launched."""
    return max(
        (str(c.running.get("startedAt", "")) for p in situation.pods for c in p.main_containers),
        default="",
    )


def _probe_lines(situation: Situation, pod_name: str) -> Sequence[str]:
    return situation.logs.get(pod_name, Tail()).lines


def _sshd_lines(situation: Situation) -> list[str]:
    return [
        f"{situation.replica(name)}: {line.removeprefix('trainyard: ')}"
        for name, tail in situation.logs.items()
        for line in list(
            dict.fromkeys(each for each in tail.lines if each.startswith(_SSHD_PREFIX))
        )[-2:]
    ]


def _advice(message: str) -> tuple[str, ...]:
    return tuple(advice for pattern, advice in _ADVICE if re.search(pattern, message))[:2]
