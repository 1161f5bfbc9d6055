"""What can be done with manifests without any cluster, and the command line itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from trainyard.api.manifests import Manifest, read_manifest
from trainyard.client.target import CommandError
from trainyard.schema.problems import Problem


def validate(manifest: Manifest | Iterable[Manifest]) -> list[Problem]:
    """Every problem of a manifest, errors and warnings; none for a good one."""
    return list(read_manifest(manifest).problems)


def render(manifest: Manifest | Iterable[Manifest]) -> list[dict[str, Any]]:
    """The objects that the controller would create for the jobs of a manifest.

    The hash in their names depends on the UID that a cluster gives the job. Raises InvalidManifest.
    """
    from trainyard.kinds.shared.settings import Settings
    from trainyard.kinds.shared.workload import objects
    from trainyard.kinds.table import describe

    jobs = read_manifest(manifest).require_jobs().jobs
    return [each for job in jobs for each in objects(describe(job, Settings()))]


def convert(text: str) -> str:
    """A manifest's text in today's spelling, comments and order kept; raises InvalidManifest."""
    from trainyard.manifest import conversion

    return conversion.convert(text).text


def command(*words: str | os.PathLike[str]) -> str:
    """What a command of the command line prints, such as `command("up", "--strict-scheduling")`.

    For what is about this machine rather than jobs: `up`, `down`, `status`, `doctor`, `init` and so
    on, which are processes of their own. Raises CommandError, with its words, where it fails.
    """
    if not sys.executable:
        raise CommandError("this program has no interpreter to run trainyard with")
    done = subprocess.run(
        [sys.executable, "-m", "trainyard", *(str(word) for word in words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        told = (done.stderr or done.stdout).strip().removeprefix("error: ")
        raise CommandError(told or f"{words[0]} ended with exit code {done.returncode}")
    return done.stdout
