"""What of this machine each process of a job gets, where its user does not say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainyard.api.scripts.script_files import ScriptMistake
from trainyard.embedded.node.containers.gpus import detect


def volume_of(source: str, *, is_claim: bool) -> dict[str, Any]:
    """What is mounted: a claim, or a folder of this machine, which is made if missing.

    Raises ScriptMistake where that cannot be.
    """
    if is_claim:
        return {"persistentVolumeClaim": {"claimName": source}}
    folder = Path(source).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ScriptMistake(f"cannot use {folder}: {error.strerror}") from error
    return {"hostPath": {"path": str(folder.resolve())}}


def gpus_each(replicas: int) -> int:
    """This machine's GPUs, as many for each replica."""
    return len(detect()) // max(replicas, 1)


def with_threads(env: Mapping[str, str], processes: int, gpus: int) -> dict[str, str]:
    """The user's variables, and without GPUs the processors shared out, which every process takes
    all of else."""
    if processes < 2 or gpus or "OMP_NUM_THREADS" in {**os.environ, **env}:
        return dict(env)
    available = len(os.sched_getaffinity(0))
    return {"OMP_NUM_THREADS": str(max(available // processes, 1)), **env}
