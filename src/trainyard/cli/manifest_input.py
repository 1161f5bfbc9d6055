"""Reads manifests whose jobs are to be created, and prints their warnings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from trainyard.manifest.reader import ReadResult


def read_jobs(file: str, namespace: str | None, *, is_local: bool = False) -> ReadResult:
    """Read a manifest that has jobs; warnings go to standard error.

    With `is_local` the jobs must be able to run on this machine, where images are not pulled.
    Raises TrainyardError for mistakes, and for jobs of another namespace than `namespace`.
    """
    from trainyard.api.job_manifests import jobs_in

    return jobs_in(
        Path(file), namespace, lambda text: click.echo(text, err=True), is_local=is_local
    )
