"""The options of a private cluster, for a process that is started by a `trainyard.Client`.

Started as `python -m trainyard.cli.private_cluster_process PID [OPTIONS]`, with the options of
`up`. It writes to standard output, in a line of JSON, where the cluster is, or why there can be
none. It ends when process PID does, or closes its standard input.
"""

from __future__ import annotations

import gc
import os
import sys

import click

from trainyard.cli.options import cluster_options
from trainyard.composition.cluster_shape import ClusterShape
from trainyard.composition.expected_errors import expected_error
from trainyard.composition.private_cluster import serve_process, write_answer


@click.command()
@click.argument("owner", type=int)
@cluster_options
def command(owner: int, options: ClusterShape) -> None:
    """Serve until the process OWNER is gone."""
    gc.disable()  # imports make only lasting objects; `serve_process` turns it on again
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        serve_process(owner, options, answer)
    except BaseException as error:
        if (expected := expected_error(error)) is None:
            raise
        write_answer(answer, {"error": str(expected)})
        sys.exit(1)


if __name__ == "__main__":
    command()
