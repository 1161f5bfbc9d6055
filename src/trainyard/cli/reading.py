"""Manifests whose jobs are to be created: read, checked for the occasion, warnings told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from trainyard.schema.errors import TrainyardError

if TYPE_CHECKING:
    from trainyard.kinds.shared.job import Job
    from trainyard.manifest.reader import ReadResult


def read_jobs(file: str, namespace: str | None) -> ReadResult:
    """A manifest with jobs, none of them meant for another namespace; tells its warnings."""
    from trainyard.manifest.reader import read_file

    result = read_file(file).require_jobs()
    for warning in result.warnings:
        click.echo(str(warning), err=True)
    for document in result.documents:
        own = (document.raw.get("metadata") or {}).get("namespace")
        if namespace and own and own != namespace:
            raise TrainyardError(
                f"{file}:{document.line}: the {document.kind} is meant for namespace {own}, not "
                f"{namespace}; remove one of the two"
            )
    return result


def read_to_run(file: str, namespace: str | None) -> ReadResult:
    """A manifest with jobs that can run on this machine, where images are not pulled."""
    result = read_jobs(file, namespace)
    for job in result.jobs:
        _check_commands(job, file)
    return result


def _check_commands(job: Job, file: str) -> None:
    """Refuse a container that has neither command nor args (decision 42)."""
    from trainyard.kinds.shared.settings import Settings
    from trainyard.kinds.shared.workload import objects
    from trainyard.kinds.table import describe

    for manifest in objects(describe(job, Settings.local())):
        if manifest["kind"] != "Pod":
            continue
        spec = manifest["spec"]
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            if not container.get("command") and not container.get("args"):
                raise TrainyardError(
                    f"{file}: {job.kind} {job.metadata.name}: container {container['name']!r} has "
                    "neither command nor args; images are not pulled on this machine, so that "
                    "their entrypoint is not known: set command or args in the manifest"
                )
