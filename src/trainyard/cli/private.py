"""A cluster for one other process, with which it ends: that of a `trainyard.Client` of its own.

Started as `python -m trainyard.cli.private PID [OPTIONS]`, with the options of `up`. It tells on
standard output, in a line of JSON, where the cluster is, or why there can be none. It ends when
process PID does, or closes its standard input.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from typing import Any

import click

from trainyard.api.shape import ClusterShape
from trainyard.cli.boundary import expected_error
from trainyard.cli.options import cluster_options
from trainyard.cli.run import forget_old_runs, run_folder
from trainyard.embedded import rlimits
from trainyard.embedded.node.shim_process import ShimHandle, start_shim
from trainyard.machine.state_folder import Paths, state_folder


@click.command()
@click.argument("owner", type=int)
@cluster_options
def command(owner: int, options: ClusterShape) -> None:
    """Serve until the process OWNER is gone."""
    gc.disable()  # imports make nothing but lasting objects; `_serve` turns it on again
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        _serve(owner, options, answer)
    except BaseException as error:
        if (expected := expected_error(error)) is None:
            raise
        _tell(answer, {"error": str(expected)})
        sys.exit(1)


def _serve(owner: int, options: ClusterShape, answer: int) -> None:
    rlimits.check_rlimits()
    state = Paths(state_folder())
    paths = run_folder(state)
    shim = start_shim(paths.folder, isolation=options.isolation, die_with_parent=True)
    try:
        import uvloop

        from trainyard.cli.garbage import collect_garbage_again
        from trainyard.cli.log import log_to

        log = paths.log.open("a+")
        log_to(log)
        shim.ready()
        collect_garbage_again()
        for number in (1, 2):
            os.dup2(log.fileno(), number)
        uvloop.run(_until_alone(owner, options, paths, shim, answer))
    finally:
        shim.kill()
        forget_old_runs(state.runs)


async def _until_alone(
    owner: int, options: ClusterShape, paths: Paths, shim: ShimHandle, answer: int
) -> None:
    from trainyard.cli.embedded import embedded, private_settings

    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    try:
        process = os.pidfd_open(owner)
    except ProcessLookupError:
        return
    loop.add_reader(process, ended.set)
    loop.add_reader(0, lambda: None if os.read(0, 1) else ended.set())
    async with embedded(private_settings(options, paths), shim) as cluster:
        told = {"socket": str(cluster.socket), "folder": str(paths.folder)}
        _tell(answer, {**told, "isolation": cluster.agent.isolation})
        await ended.wait()


def _tell(answer: int, told: dict[str, Any]) -> None:
    os.write(answer, json.dumps(told).encode() + b"\n")
    os.close(answer)


if __name__ == "__main__":
    command()
