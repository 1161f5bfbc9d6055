"""Gathering what the diagnosis reads: a job, its pods, its events and the ends of their logs."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from trainyard import diagnosis
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


async def explanation_of(client: Client, job: Job, folder: Path | None) -> Explanation:
    """Why the job is where it is; `folder` as above."""
    situation = await situation_of(client, job, folder)
    return Explanation(situation, diagnosis.causes(situation), failure_card_of(situation))


async def failure_card(client: Client, job: Job, folder: Path | None) -> FailureCard | None:
    """The card of a job that has failed, None of any other; `folder` as above."""
    return failure_card_of(await situation_of(client, job, folder))


async def known_card(client: Client, job: Job, folder: Path | None) -> FailureCard | None:
    """The same; None also where the cluster is not there any more to tell."""
    with contextlib.suppress(TrainyardError):
        return await failure_card(client, job, folder)
    return None
