"""trainyard: distributed training jobs, the same YAML here and on any Kubernetes cluster.

Everything is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainyard.version import VERSION

if TYPE_CHECKING:
    from trainyard.api.async_client import AsyncClient as AsyncClient
    from trainyard.api.clusters import ClusterOptions as ClusterOptions
    from trainyard.api.command_process import command as command
    from trainyard.api.errors import CaptureError as CaptureError
    from trainyard.api.errors import JobFailed as JobFailed
    from trainyard.api.errors import RemoteTraceback as RemoteTraceback
    from trainyard.api.errors import WaitTimeout as WaitTimeout
    from trainyard.api.job_queries import Executed as Executed
    from trainyard.api.job_queries import LogLine as LogLine
    from trainyard.api.offline import convert as convert
    from trainyard.api.offline import render as render
    from trainyard.api.offline import validate as validate
    from trainyard.api.one_call_run import run as run
    from trainyard.api.options import RunOptions as RunOptions
    from trainyard.api.options import ScriptOptions as ScriptOptions
    from trainyard.api.recorded_jobs import history as history
    from trainyard.api.replica_usage import Usage as Usage
    from trainyard.api.scripts.script_jobs import propose as propose
    from trainyard.api.sync_client import Client as Client
    from trainyard.client.cluster_target import CommandError as CommandError
    from trainyard.client.job_comparison import Comparison as Comparison
    from trainyard.client.job_lookup import JobNotFound as JobNotFound
    from trainyard.client.job_view import Job as Job
    from trainyard.client.provenance_lookup import Past as Past
    from trainyard.kinds.models import *  # noqa: F403
    from trainyard.kube.errors import KubeError as KubeError
    from trainyard.payloads.training_report import report as report
    from trainyard.schema.errors import InvalidManifest as InvalidManifest
    from trainyard.schema.errors import TrainyardError

    Error = TrainyardError

__version__ = VERSION

_FOUND_IN = {
    "AsyncClient": "api.async_client",
    "CaptureError": "api.errors",
    "Client": "api.sync_client",
    "ClusterOptions": "api.clusters",
    "CommandError": "client.cluster_target",
    "Comparison": "client.job_comparison",
    "Executed": "api.job_queries",
    "InvalidManifest": "schema.errors",
    "Job": "client.job_view",
    "JobFailed": "api.errors",
    "JobNotFound": "client.job_lookup",
    "KubeError": "kube.errors",
    "LogLine": "api.job_queries",
    "Past": "client.provenance_lookup",
    "RemoteTraceback": "api.errors",
    "RunOptions": "api.options",
    "ScriptOptions": "api.options",
    "Usage": "api.replica_usage",
    "WaitTimeout": "api.errors",
    "command": "api.command_process",
    "convert": "api.offline",
    "history": "api.recorded_jobs",
    "propose": "api.scripts.script_jobs",
    "render": "api.offline",
    "report": "payloads.training_report",
    "run": "api.one_call_run",
    "validate": "api.offline",
}
"""Every name and the module that has it, but for the error tree's root and the models."""


if not TYPE_CHECKING:  # which knows every name from above

    def __getattr__(name: str) -> Any:
        if name == "Error":
            from trainyard.schema.errors import TrainyardError

            return TrainyardError
        if name in _FOUND_IN:
            return getattr(import_module(f"trainyard.{_FOUND_IN[name]}"), name)
        if name[0].isupper() and name in vars(models := import_module("trainyard.kinds.models")):
            return getattr(models, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_FOUND_IN, "Error"})
