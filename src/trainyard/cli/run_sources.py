"""The sources of jobs for `run`: a manifest, or a script. Imports nothing heavy by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

import click

from trainyard.api.interpreter_check import Interpreter
from trainyard.api.scripts.script_drafts import Draft
from trainyard.cli.script_manifest import save
from trainyard.cli.script_options import misplaced_note
from trainyard.composition.cluster_shape import ClusterShape

if TYPE_CHECKING:
    from trainyard.api.job_following import SubmissionContext
    from trainyard.manifest.reader import ReadResult


class Source(Protocol):
    """Where the jobs of a run come from."""

    replaces: bool
    """Whether jobs of the same names are deleted first."""

    def read(self, namespace: str | None) -> ReadResult:
        """Read and check the jobs; raises TrainyardError."""

    def introduction(self, isolation: str) -> list[str]:
        """Return the first lines of a run: interpreter, devices, isolation, launcher."""

    def provenance(self, note: Callable[[str], None]) -> SubmissionContext:
        """Return what is recorded with the submission; `note` gets remarks on the recording."""


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
        replaces: bool = False,
    ) -> None:
        """`python` is the interpreter of the embedded cluster that is up, "" without one.

        With `snapshots` the job runs a copy of the working folder.
        """
        self.file, self.options, self.on_cluster, self.python = file, options, on_cluster, python
        self.snapshots, self.replaces = snapshots, replaces
        self._interpreter: Interpreter | None = None
        if not on_cluster and not options.images:  # whatever the manifest's image is
            self._interpreter = Interpreter(options, "", cluster_python=python)

    def read(self, namespace: str | None) -> ReadResult:
        from trainyard.api.job_manifests import image_of
        from trainyard.cli.manifest_input import read_jobs

        result = read_jobs(self.file, namespace, is_local=not self.on_cluster)
        if not self.on_cluster and self._interpreter is None:
            image = image_of(result.jobs[0])
            self._interpreter = Interpreter(self.options, image, cluster_python=self.python)
        return result

    def introduction(self, isolation: str) -> list[str]:
        return self._interpreter.lines(isolation) if self._interpreter else []

    def provenance(self, note: Callable[[str], None]) -> SubmissionContext:
        return _provenance(self.options, self.python, note, snapshots=self.snapshots)


class ScriptSource:
    """A script, which becomes a job."""

    def __init__(
        self, draft: Draft, *, python: str, snapshots: bool = False, replaces: bool = False
    ) -> None:
        self.draft, self.python, self.snapshots = draft, python, snapshots
        self.replaces = replaces

    def read(self, namespace: str | None) -> ReadResult:
        self.draft.require()
        if remark := misplaced_note(self.draft):
            click.echo(remark, err=True)
        result = self.draft.read()
        if self.draft.script.save:
            save(self.draft, self.draft.script.save)
        return result

    def introduction(self, isolation: str) -> list[str]:
        interpreter = self.draft.interpreter
        lines = interpreter.lines(isolation) if interpreter else []
        return [*lines, self.draft.launch_note()]

    def provenance(self, note: Callable[[str], None]) -> SubmissionContext:
        return _provenance(self.draft.options, self.python, note, snapshots=self.snapshots)


def _provenance(
    options: ClusterShape, python: str, note: Callable[[str], None], *, snapshots: bool
) -> SubmissionContext:
    from trainyard.api.job_following import SubmissionContext

    return SubmissionContext(
        how="run",
        options=asdict(options),
        images=options.images,
        cluster_python=python,
        snapshots=snapshots,
        note=note,
    )
