"""What of this machine each process of a job gets, where its user does not say."""

from __future__ import annotations

import os
from collections.abc import Mapping

from trainyard.local.node.gpus import detect


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
