"""How a replica ended: of itself, by a probe, or before it began; and what that means."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainyard.client.events import event_time
from trainyard.diagnosis import exits
from trainyard.diagnosis.exits import Reading
from trainyard.diagnosis.situation import Object, Situation
from trainyard.kinds.shared.workload import RESTARTABLE_CODES
from trainyard.schema.times import parse

_PROBE = re.compile(r"failed (liveness|startup) probe")
_PATIENCE = {
    "liveness": "raise failureThreshold, periodSeconds or timeoutSeconds of its livenessProbe",
    "startup": "give it more time: failureThreshold times periodSeconds of its startupProbe",
}


@dataclass(frozen=True, slots=True)
class Death:
    """The end of one attempt, by the replica that caused it."""

    replica: str
    who: str
    """The replica, and its container if that is not the training container."""
    code: int | None
    ending: str
    """`exit code 3`, or the reason where there is no code."""
    reading: Reading
    words: str
    evidence: tuple[str, ...] = ()
    logs: str = ""
    """Options of `trainyard logs` that show what it wrote."""
    is_accident: bool = False
    """Whether a restart might well have helped."""
    ruling: str = ""
    """Which rule of `podFailurePolicy` decided, and what."""


def of(situation: Situation, failure: Object) -> Death:
    """What ended an attempt of `status.attempts` that a replica ended."""
    name = str(failure["replica"])
    replica = situation.replica(name)
    code, reason = failure.get("exitCode"), str(failure.get("reason") or "")
    # The pod of a launch that took too long did not end of itself.
    of_pod = reason != "LaunchTimeout"
    words = situation.words_of(name) if of_pod else situation.last_words
    probe = _probe(situation, failure)
    reading, evidence = probe or (exits.read(code, reason, words), ())
    init = _init_container(situation, name) if of_pod else ""
    return Death(
        replica=replica,
        who=f"{replica}'s init container {init}" if init else replica,
        code=code,
        ending=f"exit code {code}" if code is not None else reason or "taken away",
        reading=reading,
        words=words,
        evidence=evidence,
        logs=f" --replica {replica}" + (f" -c {init}" if init else ""),
        is_accident=code in RESTARTABLE_CODES and reason != "OOMKilled" and probe is None,
        ruling=str(failure.get("message") or ""),
    )


def _init_container(situation: Situation, pod_name: str) -> str:
    """The init container that failed; empty if it was another container."""
    pod = situation.pod(pod_name)
    if pod is None:
        return situation.job.failed_init_container(situation.replica(pod_name))
    failed = pod.failed_container
    return failed.name if failed and failed.name in pod.init_container_names else ""


def _probe(situation: Situation, failure: Object) -> tuple[Reading, tuple[str, ...]] | None:
    """The probe that had the container ended, and how it had failed."""
    name, began = str(failure["replica"]), parse(failure.get("startTime"))
    for event in situation.events_about(name, "Killing"):
        found = _PROBE.search(str(event.get("message") or ""))
        # Events have whole seconds, attempts have not.
        is_of_this = began is None or event_time(event) >= began.replace(microsecond=0)
        if found is None or not is_of_this:
            continue
        kind = found[1]
        told = (str(e.get("message") or "") for e in situation.events_about(name, "Unhealthy"))
        said = tuple(text for text in told if text.lower().startswith(kind))[:1]
        advice = (f"{_PATIENCE[kind]}, or mend what it asks for",)
        return Reading(f"its {kind} probe failed, so it was ended", advice), said
    return None
