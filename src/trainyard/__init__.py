"""trainyard: distributed training jobs, the same YAML here and on any Kubernetes cluster.

Everything is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainyard.version import VERSION

if TYPE_CHECKING:
    from trainyard.api.aio import AsyncClient as AsyncClient
    from trainyard.api.asking import Executed as Executed
    from trainyard.api.asking import LogLine as LogLine
    from trainyard.api.client import Client as Client
    from trainyard.api.errors import CaptureError as CaptureError
    from trainyard.api.errors import JobFailed as JobFailed
    from trainyard.api.errors import RemoteTraceback as RemoteTraceback
    from trainyard.api.errors import WaitTimeout as WaitTimeout
    from trainyard.api.running import RunOptions as RunOptions
    from trainyard.api.top import run as run
    from trainyard.client.job import Job as Job
    from trainyard.client.jobs import JobNotFound as JobNotFound
    from trainyard.client.target import CommandError as CommandError
    from trainyard.schema.errors import InvalidManifest as InvalidManifest
    from trainyard.schema.errors import TrainyardError

    Error = TrainyardError

__version__ = VERSION

_FOUND_IN = {
    "AsyncClient": "api.aio",
    "CaptureError": "api.errors",
    "Client": "api.client",
    "CommandError": "client.target",
    "Executed": "api.asking",
    "InvalidManifest": "schema.errors",
    "Job": "client.job",
    "JobFailed": "api.errors",
    "JobNotFound": "client.jobs",
    "LogLine": "api.asking",
    "RemoteTraceback": "api.errors",
    "RunOptions": "api.running",
    "WaitTimeout": "api.errors",
    "run": "api.top",
}
"""Every name and the module that has it, but for the error tree's root and the kinds."""


def __getattr__(name: str) -> Any:
    if name == "Error":
        from trainyard.schema.errors import TrainyardError

        return TrainyardError
    if name not in _FOUND_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"trainyard.{_FOUND_IN[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_FOUND_IN, "Error"})
