"""What the Python API raises beside the errors of the rooms below it.

::

    trainyard.Error                 the text is meant for the user as it stands
    ├── trainyard.InvalidManifest   a manifest breaks a rule; ``problems`` are all of them
    ├── trainyard.CommandError      what was asked for cannot be done
    │   ├── trainyard.JobNotFound   there is no job of the name
    │   ├── trainyard.JobFailed     a job has failed, or never comes where it was waited for
    │   ├── trainyard.WaitTimeout   it has not come there in time; a TimeoutError too
    │   └── trainyard.CaptureError  a function cannot be carried to replicas
    └── trainyard.KubeError         the API server refused, or cannot be reached
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.client.cluster_target import CommandError as CommandError
from trainyard.client.job_lookup import JobNotFound as JobNotFound
from trainyard.client.job_view import Job
from trainyard.kube.errors import KubeError as KubeError

if TYPE_CHECKING:
    from trainyard.diagnosis.failure_card import FailureCard


class JobFailed(CommandError):
    """A job has failed, or ended otherwise than it was waited for; `job` is how it was then.

    `card` says of one that failed who is to blame, by which exception, and what helps.
    """

    def __init__(self, text: str, job: Job, card: FailureCard | None = None) -> None:
        super().__init__(text if card is None else f"{text}\n{_card_text(card)}")
        self.job, self.card, self.object = job, card, str(job)
        self.fix = card.remedy if card else ""


def _card_text(card: FailureCard) -> str:
    who = f"{card.who} failed ({card.ending}): " if card.who else ""
    place = f"{card.place}: {card.source}" if card.place else ""
    lines = (f"{who}{card.reason}", place, card.cause, f"→ {card.remedy}" if card.remedy else "")
    return "\n".join(f"  {line}" for line in lines if line)


class WaitTimeout(CommandError, TimeoutError):
    """What was waited for has not come in time."""


class CaptureError(CommandError):
    """A function cannot be carried to replicas; the text says what of it, and what to do."""


class RemoteTraceback(Exception):
    """Where an exception was raised in a replica: the cause of the one that is raised here."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"
