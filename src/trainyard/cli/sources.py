"""What `run` runs: a manifest, or a script that becomes one. Imports nothing heavy by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

from trainyard.api.drafts import Draft
from trainyard.api.ground import Ground
from trainyard.api.shape import ClusterShape
from trainyard.cli.scripts import save

if TYPE_CHECKING:
    from trainyard.client.provenance import Said
    from trainyard.kinds.shared.job import Job
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

    def read(self, namespace: str | None) -> ReadResult:
        from trainyard.cli.reading import read_jobs, read_to_run

        if self.on_cluster:
            return read_jobs(self.file, namespace)
        result = read_to_run(self.file, namespace)
        self._ground = Ground(self.options, _image(result.jobs[0]), cluster_python=self.python)
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
        from trainyard.manifest.reader import read

        self.draft.require()
        result = read(self.draft.text()).require_jobs()
        if self.draft.script.save:
            save(self.draft, self.draft.script.save)
        return result

    def introduction(self, isolation: str) -> list[str]:
        ground = self.draft.ground
        lines = [ground.line(isolation)] if ground else []
        return [*lines, *filter(None, (self.draft.misplaced(), self.draft.told()))]

    def recorded(self, tell: Callable[[str], None]) -> Said:
        return _said(self.draft.options, self.python, tell, snapshots=self.snapshots)


def _said(
    options: ClusterShape, python: str, tell: Callable[[str], None], *, snapshots: bool
) -> Said:
    from trainyard.client.provenance import Said

    return Said(
        how="run",
        options=asdict(options),
        images=options.images,
        cluster_python=python,
        snapshots=snapshots,
        tell=tell,
    )


def _image(job: Job) -> str:
    """Of the container that trains in the first replica."""
    from trainyard.kinds.shared.settings import Settings
    from trainyard.kinds.shared.workload import objects
    from trainyard.kinds.table import describe

    pods = (each for each in objects(describe(job, Settings.local())) if each["kind"] == "Pod")
    pod = next(pods, None)
    return str(pod["spec"]["containers"][0].get("image", "")) if pod else ""
