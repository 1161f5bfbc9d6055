"""What `run` runs: a manifest, or a script that becomes one. Imports nothing heavy by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

import click

from trainyard.api.drafts import Draft
from trainyard.api.ground import Ground
from trainyard.cli.script_options import misplaced
from trainyard.cli.scripts import save
from trainyard.composition.cluster_shape import ClusterShape

if TYPE_CHECKING:
    from trainyard.api.following import Said
    from trainyard.manifest.reader import ReadResult


class Source(Protocol):
    """Jobs that are to run, with what must be there beside them."""

    def read(self, namespace: str | None) -> ReadResult:
        """The jobs, checked for the occasion; raises TrainyardError."""

    def introduction(self, isolation: str) -> list[str]:
        """On what it runs, and how, for the first lines of a run."""

    def recorded(self, tell: Callable[[str], None]) -> Said:
        """What is written down beside the rest; `tell` says what there is to know of that."""


class FileSource:
    """A manifest, or - for standard input."""

    def __init__(
        self,
        file: str,
        options: ClusterShape,
        *,
        on_cluster: bool,
        python: str,
        snapshots: bool = False,
    ) -> None:
        """`python` is the interpreter of the embedded cluster that is up; `snapshots`: the code is
        copied."""
        self.file, self.options, self.on_cluster, self.python = file, options, on_cluster, python
        self.snapshots = snapshots
        self._ground: Ground | None = None
        if not on_cluster and not options.images:  # whatever the manifest's image is
            self._ground = Ground(options, "", cluster_python=python)

    def read(self, namespace: str | None) -> ReadResult:
        from trainyard.api.manifests import image_of
        from trainyard.cli.reading import read_jobs

        result = read_jobs(self.file, namespace, is_local=not self.on_cluster)
        if not self.on_cluster and self._ground is None:
            image = image_of(result.jobs[0])
            self._ground = Ground(self.options, image, cluster_python=self.python)
        return result

    def introduction(self, isolation: str) -> list[str]:
        return [self._ground.line(isolation)] if self._ground else []

    def recorded(self, tell: Callable[[str], None]) -> Said:
        return _said(self.options, self.python, tell, snapshots=self.snapshots)


class ScriptSource:
    """A script."""

    def __init__(self, draft: Draft, *, python: str, snapshots: bool = False) -> None:
        self.draft, self.python, self.snapshots = draft, python, snapshots

    def read(self, namespace: str | None) -> ReadResult:
        self.draft.require()
        if remark := misplaced(self.draft):
            click.echo(remark, err=True)
        result = self.draft.read()
        if self.draft.script.save:
            save(self.draft, self.draft.script.save)
        return result

    def introduction(self, isolation: str) -> list[str]:
        ground = self.draft.ground
        lines = [ground.line(isolation)] if ground else []
        return [*lines, self.draft.told(), *filter(None, [self.draft.lonely()])]

    def recorded(self, tell: Callable[[str], None]) -> Said:
        return _said(self.draft.options, self.python, tell, snapshots=self.snapshots)


def _said(
    options: ClusterShape, python: str, tell: Callable[[str], None], *, snapshots: bool
) -> Said:
    from trainyard.api.following import Said

    return Said(
        how="run",
        options=asdict(options),
        images=options.images,
        cluster_python=python,
        snapshots=snapshots,
        tell=tell,
    )
