"""`trainyard run`: every job of a manifest, from submission to its end, on this machine.

This module forks the shim before anything heavy is imported; `running` does the rest.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path

import click

from trainyard.cli.options import ClusterOptions, cluster_options
from trainyard.kube.embedded import Paths, find_cluster, state_folder
from trainyard.local import limits
from trainyard.local.node.shim_process import start_shim
from trainyard.schema.errors import TrainyardError

_KEPT_RUNS = 20


@click.command()
@click.option(
    "-f",
    "--file",
    "--filename",
    "file",
    required=True,
    metavar="FILE",
    help="The manifest; - reads stdin.",
)
@click.option(
    "--keep",
    is_flag=True,
    help="Run on the background cluster, started if need be, and leave it and the job there.",
)
@cluster_options
def command(file: str, keep: bool, options: ClusterOptions) -> int:
    """Run the jobs in FILE to their end.

    Uses the embedded cluster that is up, or one of its own, which ends with the command. Exit
    code 0 when all jobs succeeded, 1 when one failed, 130 when interrupted.
    """
    if file != "-" and not os.path.exists(file):
        raise TrainyardError(f"cannot read {file}: no such file or directory")
    gc.disable()  # imports make nothing but lasting objects; `running` turns it on again
    if keep:
        from trainyard.cli.up import ensure_up

        ensure_up(options)
    elif options.is_default and find_cluster() is not None:
        pass
    else:
        return _run_alone(file, options)
    from trainyard.cli.running import run_on_background

    return run_on_background(file, keep=keep)


def _run_alone(file: str, options: ClusterOptions) -> int:
    limits.check()
    paths = _run_folder(Paths(state_folder()))
    shim = start_shim(paths.folder, isolation=options.isolation, die_with_parent=True)
    try:
        from trainyard.cli.running import run_alone

        return run_alone(file, options, paths, shim)
    finally:
        shim.kill()
        sys.stdout.flush()


def _run_folder(state: Paths) -> Paths:
    """A new folder for this run; the logs of the last runs are kept, older ones go."""
    paths = Paths(state.runs / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    paths.prepare()
    _forget_old_runs(state.runs)
    return paths


def _forget_old_runs(runs: Path) -> None:
    finished = [run for run in sorted(runs.iterdir()) if find_cluster(run) is None]
    if len(finished) > _KEPT_RUNS:
        from trainyard.local.node import removal

        for run in finished[:-_KEPT_RUNS]:
            removal.remove(str(run))
