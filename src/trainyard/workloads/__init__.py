"""What each kind turns into: pods, services, secrets, environment, commands; one file per kind.

Pure: no awaiting, no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from trainyard.api.job import Job
from trainyard.workloads.settings import GangBackend, Settings
from trainyard.workloads.workload import Workload, objects

__all__ = ["GangBackend", "Settings", "Workload", "describe", "objects"]

_MODULES = {
    "PyTorchTrainingJob": "pytorch",
    "DeepSpeedJob": "deepspeed",
    "ColossalAIJob": "colossalai",
    "GenericJob": "generic",
}


def describe(job: Job, settings: Settings) -> Workload:
    """The workload of a valid job of any kind; what it needs is imported when first used."""
    module = import_module(f"trainyard.workloads.{_MODULES[job.kind]}")
    build: Callable[[Job, Settings], Workload] = module.describe
    return build(job, settings)
