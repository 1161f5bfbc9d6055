"""`trainyard resume`: go on with a paused job."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.cli.pause import switch
from trainyard.cli.target import job_command, jobs_argument, on_target
from trainyard.client.target import Target


@job_command
@on_target
@jobs_argument
async def command(target: Target, jobs: Sequence[str]) -> None:
    """Resume paused jobs; their `resumeSpecs` apply from then on."""
    await switch(target, jobs, paused=False)
