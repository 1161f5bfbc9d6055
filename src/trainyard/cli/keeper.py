"""Keeps the cluster of another process that has it killed: that of `trainyard chaos`.

Started as `python -m trainyard.cli.keeper`, with the cluster's folder in TRAINYARD_STATE_DIR and,
as the first line of its input, the cluster's shape in JSON. For that line and each further one it
brings the cluster up and answers with a line of JSON. When its input ends, whatever became of the
other process, it ends the cluster and removes the folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict

from trainyard.api.shape import ClusterShape
from trainyard.cli.down import end
from trainyard.cli.up import ensure_up
from trainyard.embedded.node.volumes import tree_removal
from trainyard.machine.state_folder import Paths, state_folder
from trainyard.schema.errors import TrainyardError


def main() -> None:
    """See the module."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)  # the end of its input is what ends it
    paths = Paths(state_folder())
    shape: ClusterShape | None = None
    try:
        for line in sys.stdin:
            if shape is None:
                told = json.loads(line)
                shape = ClusterShape(
                    **told
                    | {"images": tuple(map(tuple, told["images"])), "passed": tuple(told["passed"])}
                )
            _reap()
            with suppress(BrokenPipeError):
                print(json.dumps(_up(shape)), flush=True)
    finally:
        with suppress(TrainyardError):
            end(paths)
        _reap()
        tree_removal.remove(str(paths.folder))


def _up(shape: ClusterShape) -> dict[str, object]:
    try:
        return asdict(ensure_up(shape, is_apart=True))
    except TrainyardError as error:
        return {"error": str(error)}


def _reap() -> None:
    """The clusters that were killed are children of this process."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main()
