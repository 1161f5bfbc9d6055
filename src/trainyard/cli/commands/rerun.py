"""`trainyard rerun`: a job that was recorded, once more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from trainyard.api.commands import Where, ask
from trainyard.api.errors import CommandError
from trainyard.api.recorded_jobs import Repetition, parse_path
from trainyard.cli.job_options import complete_job_names
from trainyard.cli.options import where_options
from trainyard.composition.cluster_shape import ClusterShape
from trainyard.machine.state_folder import find_cluster
from trainyard.schema import yaml_parser

if TYPE_CHECKING:
    from trainyard.api.async_client import AsyncClient
    from trainyard.api.job_following import SubmissionContext
    from trainyard.manifest.reader import ReadResult


@click.command()
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change a field: spec.replicaSpecs[0].replicas=4. Repeatable.",
)
@click.option("--name", default="", help="Of the new job; by default the old one's with a number.")
@click.option("--submit", "submits", is_flag=True, help="Do not follow it, even if run was used.")
@where_options
@click.argument("job", metavar="JOB", shell_complete=complete_job_names)
def command(
    job: str,
    changes: tuple[str, ...],
    name: str,
    submits: bool,
    place: tuple[str | None, str | None, str | None],
) -> int:
    """Do what a job did once more, under a new name; say what is different by now.

    JOB is the name of a job that is there, or was recorded on this machine (trainyard history):
    the last one of that name, NAME~1 the one before, or the name of a record. It is run, or
    submitted, as the first one was.
    """
    set_to = dict(parse_set(text) for text in changes)
    where = Where(*place)
    again = ask(where, lambda client: client.repetition(job, set_to, name), cluster="any")
    for text in again.differences:
        click.echo(f"warning: {text}", err=True)
    if submits or again.how != "run":
        ask(where, lambda client: _submit(client, again))
        return 0
    return _run(_RecordedSource(again), place)


def parse_set(text: str) -> tuple[str, Any]:
    """``spec.replicaSpecs[0].replicas=4`` as path and value; raises CommandError."""
    path, sign, value = text.partition("=")
    try:
        parse_path(path)
    except CommandError:
        sign = ""
    if not sign:
        raise CommandError(
            f"--set {text}: write PATH=VALUE, such as spec.replicaSpecs[0].replicas=4"
        )
    parsed = next(yaml_parser.parse(value), None)
    if parsed is not None and parsed.mistakes:
        raise CommandError(f"--set {text}: the value is {parsed.mistakes[0].message}")
    return path, parsed.data if parsed else ""


async def _submit(client: AsyncClient, again: Repetition) -> None:
    provenance = replace(again.context("submit"), note=lambda text: click.echo(text, err=True))
    for job in await client.submit_again(again, provenance):
        click.echo(f"{job} created")


class _RecordedSource:
    """A recorded job as the source of a run."""

    def __init__(self, again: Repetition) -> None:
        self.again = again
        self.replaces = False

    def read(self, namespace: str | None) -> ReadResult:
        return self.again.manifest

    def introduction(self, isolation: str) -> list[str]:
        past = self.again.past
        return [f"as {past.record_name or past.job}, isolation {isolation}"]

    def provenance(self, note: Callable[[str], None]) -> SubmissionContext:
        return replace(self.again.context("run"), note=note)

    @property
    def options(self) -> ClusterShape:
        """The options of the embedded cluster that it ran on."""
        return ClusterShape.from_json(self.again.options)


def _run(source: _RecordedSource, place: tuple[str | None, str | None, str | None]) -> int:
    from trainyard.cli.commands.run import run_here

    if any(place[1:]):
        from trainyard.cli.run_session import run_on_cluster

        return run_on_cluster(source, *place)
    is_up = source.options.is_default and find_cluster() is not None
    return run_here(source, source.options, place[0], on_background=is_up)
