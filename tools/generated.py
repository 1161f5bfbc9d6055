"""Files that are made from the kinds: written, or verified."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from trainyard.kinds.kind_registry import Kind


def main(ours: Callable[[], dict[Path, str]], of_kind: Callable[[Kind], dict[Path, str]]) -> int:
    """Write the files, or with ``--check`` say which of them are stale."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--kind", metavar="PACKAGE", help="that of a kind from outside")
    options = parser.parse_args()
    made = of_kind(import_module(options.kind).KIND) if options.kind else ours()
    stale = [path for path, text in made.items() if not _is(path, text)]
    for path in stale:
        if options.check:
            print(f"{path} is stale; run: make generate")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made[path])
    return 1 if options.check and stale else 0


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text
