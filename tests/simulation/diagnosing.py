"""What `explain`, the failure card and `run`'s verdict say of a job at one moment.

They are shown the objects that the modelled server stores, as their users are, and are judged by
what really happened (`diagnosis_judges`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from tests.simulation.server import ModelServer, Obj
from tests.simulation.truth import JobTruth, PodTruth
from trainyard import diagnosis
from trainyard.api.run_output import summary
from trainyard.client.job_view import Job
from trainyard.client.pod_views import PodView
from trainyard.diagnosis import Cause, Situation
from trainyard.diagnosis.failure_card import FailureCard, failure_card_of
from trainyard.kinds.kind_registry import JOB_KINDS
from trainyard.schema.times import parse

SECONDS = 60.0
"""What `run` took, in its verdict."""


class Said(NamedTuple):
    """One text, and where it stands: `cause`, `evidence`, `advice`, `card.reason`."""

    place: str
    text: str


@dataclass(frozen=True)
class Diagnosed:
    """One job, with what was said of it."""

    situation: Situation
    truth: JobTruth
    lost: frozenset[str]
    """Nodes that do not answer, or did not a moment ago."""

    @classmethod
    def of(
        cls, stored: Obj, server: ModelServer, truth: JobTruth, lost: frozenset[str]
    ) -> Diagnosed:
        uid = stored["metadata"]["uid"]
        pods = [PodView(pod) for pod in server.owned("pods", uid)]
        about = {uid, *(pod.uid for pod in pods)}
        events = [e for e in server.all("events") if e["involvedObject"].get("uid") in about]
        job = Job(JOB_KINDS[stored["kind"]], stored)
        return cls(Situation(job, pods, events, now=server.now()), truth, lost)

    @property
    def job(self) -> Obj:
        return dict(self.situation.job.obj)

    @property
    def spec(self) -> Obj:
        spec: Obj = self.job["spec"]
        return spec

    @property
    def status(self) -> Obj:
        return self.job.get("status") or {}

    @property
    def account(self) -> Obj:
        return self.status.get("internal") or {}

    @property
    def phase(self) -> str:
        return str(self.status.get("phase") or "Pending")

    @property
    def now(self) -> datetime:
        return self.situation.now

    @cached_property
    def entries(self) -> Mapping[str, Obj]:
        """Replicas as the status tells them, by their short names."""
        base = self.situation.job.base
        tasks = self.status.get("tasks") or ()
        found = [entry for task in tasks for entry in task.get("replicas") or ()]
        return {entry["name"].removeprefix(f"{base}-"): entry for entry in found}

    def count(self, *phases: str) -> int:
        """Replicas that are told to be in one of these, counted by hand."""
        return sum(entry["phase"] in phases for entry in self.entries.values())

    def pods_of(self, replica: str) -> Sequence[PodTruth]:
        """All pods that it ever had, in the order of their times."""
        name = f"{self.situation.job.base}-{replica}"
        return [pod for pod in self.truth.pods.values() if pod.name == name]

    def condition(self, kind: str) -> Obj:
        held = self.status.get("conditions") or ()
        return next((each for each in held if each["type"] == kind), {})

    @property
    def messages(self) -> Sequence[str]:
        """Lines of all conditions."""
        held = self.status.get("conditions") or ()
        return [line for each in held for line in str(each.get("message") or "").split("\n")]

    @cached_property
    def words(self) -> set[str]:
        """All lines that pods of the job ever wrote before they ended."""
        return {
            line.strip()
            for pod in (*self.truth.pods.values(), *self._present)
            for line in pod.message.split("\n")
        }

    @property
    def _present(self) -> Iterator[PodTruth]:
        for pod in self.situation.pods:
            for container in pod.containers:
                if container.termination_message:
                    yield PodTruth(
                        pod.name, pod.uid, "", 0, 0, message=container.termination_message
                    )

    @cached_property
    def last_attempt(self) -> Obj:
        """That a replica ended last."""
        told = [a for a in self.status.get("attempts") or () if a.get("replica")]
        ended = [a for a in told if a.get("endTime")]
        return max(ended, key=lambda each: str(each["endTime"]), default={})

    @property
    def wait(self) -> timedelta | None:
        """Until the next replica is to start, where one waits."""
        records = (self.account.get("replicas") or {}).values()
        told = [self.account.get("notBefore"), *(each.get("notBefore") for each in records)]
        later = [at for each in told if (at := parse(each)) is not None and at > self.now]
        return min(later) - self.now if later else None


def said_of(seen: Diagnosed) -> Iterator[Said]:
    """Every text of a diagnosis."""
    situation = seen.situation
    found = diagnosis.causes(situation)
    yield Said("headline", diagnosis.headline(situation, found))
    for cause in found:
        yield from _of_cause(cause)
    for text in diagnosis.warnings(situation, found):
        yield Said("warning", text)
    card = failure_card_of(situation)
    if card is not None:
        yield from _of_card(card)
    for line in summary(situation.job, None, seconds=SECONDS):
        yield Said("verdict", line)


def _of_cause(cause: Cause) -> Iterator[Said]:
    yield Said("cause", cause.what)
    for text in cause.evidence:
        yield Said("evidence", text)
    for text in cause.advice:
        yield Said("advice", text)


def _of_card(card: FailureCard) -> Iterator[Said]:
    who = f"{card.who} failed ({card.ending})" + (f"; {card.peers}" if card.peers else "")
    parts = {
        "card.job": card.job,
        "card.outcome": card.outcome,
        "card.who": who if card.who else "",
        "card.reason": card.reason,
        "card.place": card.place,
        "card.source": card.source,
        "card.cause": card.cause,
        "advice": card.remedy,
        "command": card.command,
    }
    for place, text in parts.items():
        if text:
            yield Said(place, text)


COMMAND = re.compile(r"`((?:trainyard|kubectl) [^`]+)`")


def commands_in(said: Said) -> Iterator[str]:
    """The commands that a text advises."""
    if said.place == "command":
        yield said.text
    else:
        yield from COMMAND.findall(said.text)
