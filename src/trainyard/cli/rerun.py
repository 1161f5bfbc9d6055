"""`trainyard rerun`: a job that was recorded, once more."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import click

from trainyard.cli.options import ClusterOptions, where_options
from trainyard.cli.target import complete_jobs
from trainyard.client.origin import Past, past_of, pasts
from trainyard.client.provenance import Said, state_of
from trainyard.client.repeating import (
    differences_now,
    manifest,
    new_name,
    objects_of,
    parse_set,
)
from trainyard.client.target import Target, Where
from trainyard.kube.embedded import find_cluster, state_folder
from trainyard.manifest.reader import ReadResult, read


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
@click.argument("job", metavar="JOB", shell_complete=complete_jobs)
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
    parsed = [parse_set(text) for text in changes]
    past, taken = look_up(place, job)
    name = name or new_name(past.job.name, taken)
    result = read(manifest(objects_of(past, name, parsed))).require_jobs()
    for text in differences_now(past):
        click.echo(f"warning: {text}", err=True)
    source = _Again(past, result)
    how = past.record.told.get("how") if past.record else "submit"
    if submits or how != "run":
        Where(*place).run(lambda target: _submit(target, source))
        return 0
    return _run(source, place)


def look_up(place: tuple[str | None, str | None, str | None], job: str) -> tuple[Past, set[str]]:
    """What is known of a job, on a cluster or on this machine, and the names that are in use."""
    if any(place[1:]) or find_cluster() is not None:
        return Where(*place).run(lambda target: _look_up(target, job))
    import asyncio

    return asyncio.run(_look_up(None, job))


async def _look_up(target: Target | None, job: str) -> tuple[Past, set[str]]:
    from trainyard.client.jobs import list_jobs

    state = (state_of(target) if target else None) or state_folder()
    past = await past_of(target, job, state)
    taken = {each.job.name for each in pasts(state)}
    if target is not None:
        taken |= {each.name for each in await list_jobs(target, past.job.namespace)}
    return past, taken


class _Again:
    """A recorded job as something to run."""

    def __init__(self, past: Past, result: ReadResult) -> None:
        self.past, self.result = past, result

    def read(self, namespace: str | None) -> ReadResult:
        return self.result

    def introduction(self, isolation: str) -> list[str]:
        return [f"as {self.past.record_name or self.past.job}, isolation {isolation}"]

    def recorded(self, tell: Callable[[str], None]) -> Said:
        record = self.past.record
        return Said(
            how="run",
            options=dict(record.told.get("options") or {}) if record else {},
            images=self.options.images,
            snapshots=self.past.has_copy,
            rerun_of=record,
            tell=tell,
        )

    @property
    def options(self) -> ClusterOptions:
        """Of the embedded cluster that it ran on."""
        told = (self.past.record.told.get("options") if self.past.record else {}) or {}
        known = ClusterOptions.__dataclass_fields__
        given = {name: _tuples(value) for name, value in told.items() if name in known}
        return ClusterOptions(**given)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


async def _submit(target: Target, source: _Again) -> None:
    from trainyard.client.submission import submit

    said = source.recorded(lambda text: click.echo(text, err=True))
    said = dataclasses.replace(said, how="submit")
    for job in await submit(target, source.result.documents, said=said):
        click.echo(f"{job} created")


def _run(source: _Again, place: tuple[str | None, str | None, str | None]) -> int:
    from trainyard.cli.run import run_here

    if any(place[1:]):
        from trainyard.cli.running import run_on_cluster

        return run_on_cluster(source, *place)
    is_up = source.options.is_default and find_cluster() is not None
    return run_here(source, source.options, place[0], on_background=is_up)
