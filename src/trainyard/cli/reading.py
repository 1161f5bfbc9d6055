"""Manifests whose jobs are to be created: read, checked for the occasion, warnings told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from trainyard.manifest.reader import ReadResult


def read_jobs(file: str, namespace: str | None, *, is_local: bool = False) -> ReadResult:
    """A manifest with jobs, none of them meant for another namespace; tells its warnings.

    With `is_local` they can run on this machine, where images are not pulled.
    """
    from trainyard.api.manifests import jobs_in

    return jobs_in(
        Path(file), namespace, lambda text: click.echo(text, err=True), is_local=is_local
    )
