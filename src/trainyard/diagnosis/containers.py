"""What is wrong with single containers of pods that run."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.diagnosis.pods import is_ending
from trainyard.diagnosis.situation import Cause, Object, Situation


def unready(situation: Situation) -> Iterator[Cause]:
    """Pods that run, and whose readiness or startup probe does not succeed."""
    if situation.is_over:
        return
    for pod in situation.pods:
        statuses = (pod.get("status") or {}).get("containerStatuses") or ()
        names = [str(status["name"]) for status in statuses if _is_unready(status)]
        if not names or is_ending(pod):
            continue
        replica, name = situation.replica(pod), pod["metadata"]["name"]
        told = (str(e.get("message")) for e in situation.events_about(name, "Unhealthy"))
        yield Cause(
            f"{replica} runs, but its probes do not call it ready",
            (f"container {', '.join(names)} is not ready", *tuple(told)[:1]),
            ("look at what the probe asks for; the job itself does not wait for it",),
        )


def half_ended(situation: Situation) -> Iterator[Cause]:
    """Pods that go on although one of their containers has failed."""
    if situation.is_over:
        return
    for pod in situation.pods:
        statuses = (pod.get("status") or {}).get("containerStatuses") or ()
        running = [str(s["name"]) for s in statuses if "running" in (s.get("state") or {})]
        for status in statuses:
            ended = (status.get("state") or {}).get("terminated") or {}
            if not ended.get("exitCode") or not running or is_ending(pod):
                continue
            replica, name = situation.replica(pod), status["name"]
            yield Cause(
                f"container {name} of {replica} has ended with exit code {ended['exitCode']}, "
                f"and {', '.join(running)} beside it goes on",
                ("a replica ends, and is restarted, when all containers of its pod have ended",),
                (
                    "end the other with it, or make that an init container, restartPolicy Always",
                    f"`trainyard logs {situation.name} --replica {replica} -c {name}`",
                ),
            )


def _is_unready(status: Object) -> bool:
    return "running" in (status.get("state") or {}) and status.get("ready") is False
