"""The shim alone: ``python -m trainyard.podruntime FOLDER``; agents find it by its socket."""

from __future__ import annotations

import argparse
import os

from trainyard.podruntime import server, wire


def main() -> None:
    """Serve one agent after the other until one asks for the end."""
    parser = argparse.ArgumentParser(prog="python -m trainyard.podruntime", description=__doc__)
    parser.add_argument("folder", help="the state folder, in which the socket is made")
    parser.add_argument("--isolation", choices=("auto", "namespaces", "plain"), default="auto")
    options = parser.parse_args()
    folder = os.path.abspath(options.folder)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    server.serve(folder, options.isolation, os.getppid(), None, wire.listen(folder))


if __name__ == "__main__":
    main()
