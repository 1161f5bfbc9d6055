"""What only this machine asks of a manifest: images are not pulled, so pods say what to run."""

from __future__ import annotations

from trainyard.kinds.shared.job import Job
from trainyard.kinds.shared.settings import Settings
from trainyard.kinds.shared.workload import objects
from trainyard.kinds.table import describe
from trainyard.schema.errors import TrainyardError


class NothingToRun(TrainyardError):
    """A container relies on its image's entrypoint."""


def check_commands(job: Job, file: str) -> None:
    """Raise NothingToRun for a container that has neither command nor args."""
    for manifest in objects(describe(job, Settings.local())):
        if manifest["kind"] != "Pod":
            continue
        spec = manifest["spec"]
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            if not container.get("command") and not container.get("args"):
                raise NothingToRun(
                    f"{file}: {job.kind} {job.metadata.name}: container {container['name']!r} has "
                    "neither command nor args; images are not pulled on this machine, so that "
                    "their entrypoint is not known: set command or args in the manifest"
                )
