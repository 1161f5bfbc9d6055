"""The options by which a command is told which API server to speak to."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from trainyard.client.target import Where
from trainyard.kinds.table import JOB_KINDS

F = TypeVar("F", bound=Callable[..., Any])


def on_target(function: F) -> F:
    """Add -n, --kubeconfig and --context; the command takes them as `where`."""

    @click.option("-n", "--namespace", metavar="NAME", help="Namespace of the job.")
    @click.option(
        "--kubeconfig",
        metavar="FILE",
        help="Use a cluster of this kubeconfig instead of the embedded one.",
    )
    @click.option("--context", metavar="NAME", help="Use this context of the kubeconfig.")
    @functools.wraps(function)
    def command(
        namespace: str | None, kubeconfig: str | None, context: str | None, **rest: Any
    ) -> Any:
        return function(where=Where(namespace, kubeconfig, context), **rest)

    return cast(F, command)


def job_help() -> str:
    """How a JOB is named, for the help of commands that take one."""
    short = ", ".join(name for kind in JOB_KINDS.values() for name in kind.short_names)
    return f"JOB is a name, or kind/name where two kinds share it (short names: {short})."
