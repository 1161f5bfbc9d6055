"""Keeps a cluster for `trainyard chaos`, which kills it again and again.

Started as `python -m trainyard.composition.chaos_keeper`, with the cluster's folder in
TRAINYARD_STATE_DIR and, as the first line of its input, the cluster's shape in JSON. For that line
and each further one it brings the cluster up and answers with a line of JSON. When its input ends,
whatever became of the other process, it ends the cluster and removes the folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict

from trainyard.composition.background_cluster import ensure_up
from trainyard.composition.cluster_shape import ClusterShape
from trainyard.composition.cluster_shutdown import end_cluster
from trainyard.embedded.node.volumes import tree_removal
from trainyard.machine.state_folder import Paths, state_folder
from trainyard.schema.errors import TrainyardError


def main() -> None:
    """Serve the lines of standard input; see the module."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)  # the end of its input is what ends it
    paths = Paths(state_folder())
    shape: ClusterShape | None = None
    try:
        for line in sys.stdin:
            if shape is None:
                shape = ClusterShape.from_json(json.loads(line))
            _reap()
            with suppress(BrokenPipeError):
                print(json.dumps(_bring_up(shape)), flush=True)
    finally:
        with suppress(TrainyardError):
            end_cluster(paths)
        _reap()
        tree_removal.remove(str(paths.folder))


def _bring_up(shape: ClusterShape) -> dict[str, object]:
    try:
        return asdict(ensure_up(shape, lambda line: None, separate_controller=True))
    except TrainyardError as error:
        return {"error": str(error)}


def _reap() -> None:
    """Collect clusters that were killed: they are children of this process."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main()
