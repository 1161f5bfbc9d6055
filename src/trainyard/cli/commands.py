"""What only this machine asks of a manifest: images are not pulled, so pods say what to run."""

from __future__ import annotations

from trainyard import workloads
from trainyard.api.errors import TrainyardError
from trainyard.api.job import Job
from trainyard.workloads.settings import Settings


class NothingToRun(TrainyardError):
    """A container relies on its image's entrypoint."""


def check_commands(job: Job, file: str) -> None:
    """Raise NothingToRun for a container that has neither command nor args."""
    for manifest in workloads.objects(workloads.describe(job, Settings.local())):
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
