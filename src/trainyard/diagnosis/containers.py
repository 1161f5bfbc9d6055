"""What is wrong with single containers of pods that run."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.client.pods import ContainerView
from trainyard.diagnosis.situation import Cause, Situation


def unready(situation: Situation) -> Iterator[Cause]:
    """Pods that run, and whose readiness or startup probe does not succeed."""
    if situation.job.is_over:
        return
    for pod in situation.pods:
        waiting = [each.name for each in pod.main_containers if _is_unready(each)]
        if not waiting or pod.deleting_since:
            continue
        replica = situation.replica(pod)
        told = (str(e.get("message")) for e in situation.events_about(pod.name, "Unhealthy"))
        yield Cause(
            f"{replica} runs, but its probes do not call it ready",
            (f"container {', '.join(waiting)} is not ready", *tuple(told)[:1]),
            ("look at what the probe asks for; the job itself does not wait for it",),
        )


def half_ended(situation: Situation) -> Iterator[Cause]:
    """Pods that go on although one of their containers has failed."""
    if situation.job.is_over:
        return
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


def _is_unready(container: ContainerView) -> bool:
    return container.is_running and container.obj.get("ready") is False
