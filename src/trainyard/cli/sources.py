"""What `run` runs: a manifest, or a script that becomes one. Imports nothing heavy by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from trainyard.cli.ground import Ground
from trainyard.cli.options import ClusterOptions
from trainyard.cli.scripts import Draft, save

if TYPE_CHECKING:
    from trainyard.kinds.shared.job import Job
    from trainyard.manifest.reader import ReadResult


class Source(Protocol):
    """Jobs that are to run, with what must be there beside them."""

    def read(self, namespace: str | None) -> ReadResult:
        """The jobs, checked for the occasion; raises TrainyardError."""

    def introduction(self, isolation: str) -> list[str]:
        """On what it runs, and how, for the first lines of a run."""


class FileSource:
    """A manifest, or - for standard input."""

    def __init__(
        self, file: str, options: ClusterOptions, *, on_cluster: bool, python: str
    ) -> None:
        """`python` is the interpreter of the embedded cluster that is up."""
        self.file, self.options, self.on_cluster, self.python = file, options, on_cluster, python
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


class ScriptSource:
    """A script."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    def read(self, namespace: str | None) -> ReadResult:
        from trainyard.manifest.reader import read

        self.draft.require()
        result = read(self.draft.text()).require_jobs()
        if self.draft.script.save:
            save(self.draft, self.draft.script.save)
        return result

    def introduction(self, isolation: str) -> list[str]:
        ground = self.draft.ground
        return [*([ground.line(isolation)] if ground else []), self.draft.told()]


def _image(job: Job) -> str:
    """Of the container that trains in the first replica."""
    from trainyard.kinds.shared.settings import Settings
    from trainyard.kinds.shared.workload import objects
    from trainyard.kinds.table import describe

    pods = (each for each in objects(describe(job, Settings.local())) if each["kind"] == "Pod")
    pod = next(pods, None)
    return str(pod["spec"]["containers"][0].get("image", "")) if pod else ""
