"""Gathering what the diagnosis reads: a job, its pods, its events and the ends of their logs."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from trainyard import diagnosis
from trainyard.client.cluster_target import ClusterTarget
from trainyard.client.job_events import events_of
from trainyard.client.job_lookup import pods_of
from trainyard.client.job_view import Job
from trainyard.client.log_tails import kept_tails, tails
from trainyard.diagnosis import Cause, Situation, first_failure, launch_diagnosis
from trainyard.diagnosis.failure_card import FailureCard, failure_card_of
from trainyard.kube.client import Client
from trainyard.machine.state_folder import is_disk_full
from trainyard.schema.errors import TrainyardError


async def situation_of(client: Client, job: Job, folder: Path | None) -> Situation:
    """What is known of the job by now; `folder` is the embedded cluster's, None on another."""
    found = Situation(
        job,
        await pods_of(client, job),
        await events_of(client, job),
        now=datetime.now(UTC),
        is_local=folder is not None,
        full_disk=str(folder) if folder and is_disk_full(folder) else "",
    )
    wanted = {*launch_diagnosis.pods_to_read(found), *first_failure.pods_to_read(found)}
    present = [pod for pod in found.pods if pod.name in wanted]
    logs = await tails(client, job, present, folder)
    gone = sorted(wanted - logs.keys())
    kept = await kept_tails(folder, job, gone) if folder and gone else {}
    return replace(found, logs={**kept, **logs})


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job is where it is."""

    situation: Situation
    causes: list[Cause]
    """The gravest first: what, how it shows, and advice; none for a job that simply runs."""
    card: FailureCard | None
    """Of a job that has failed: who is to blame, by which exception, and what helps."""

    @property
    def headline(self) -> str:
        """One sentence on where the job stands."""
        return diagnosis.headline(self.situation, self.causes)

    @property
    def warnings(self) -> list[str]:
        """What else the cluster warned of, newest last."""
        return diagnosis.warnings(self.situation, self.causes)


async def explanation_of(target: ClusterTarget, job: Job) -> Explanation:
    """Why the job is where it is."""
    situation = await situation_of(target.client, job, target.folder)
    options = target.options(job.namespace)
    causes = [
        Cause(
            cause.what,
            tuple(_reaching(text, job, options) for text in cause.evidence),
            tuple(_reaching(text, job, options) for text in cause.advice),
        )
        for cause in diagnosis.causes(situation)
    ]
    return Explanation(situation, causes, _card(situation, options))


async def known_card(target: ClusterTarget, job: Job) -> FailureCard | None:
    """The card of a job that has failed; None of any other, and where the cluster is not there any
    more to tell."""
    with contextlib.suppress(TrainyardError):
        situation = await situation_of(target.client, job, target.folder)
        return _card(situation, target.options(job.namespace))
    return None


def _card(situation: Situation, options: str) -> FailureCard | None:
    card = failure_card_of(situation)
    if card is None:
        return None
    return replace(
        card,
        cause=_reaching(card.cause, situation.job, options),
        remedy=_reaching(card.remedy, situation.job, options),
        command=f"{card.command} {options}".rstrip(),
    )


def _reaching(text: str, job: Job, options: str) -> str:
    """A text whose commands about a job, or a pod of it, have the options that reach it."""
    if not options:
        return text
    about = rf"trainyard [a-z]+ {re.escape(job.name)}|kubectl delete pod {re.escape(job.base)}-"
    return re.sub(rf"`((?:{about})[^`]*)`", lambda found: f"`{found[1]} {options}`", text)
