"""Scripts from Python: the manifest that `trainyard init` proposes for them, run like any other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from trainyard.api.machine import command
from trainyard.api.running import RunOptions

_SUFFIXES = (".py", ".sh", ".bash")


def is_script(what: Any) -> bool:
    """Whether the path of a script is given, not that of a manifest."""
    if not isinstance(what, str | os.PathLike):
        return False
    text = os.fspath(what)
    return "\n" not in text and text.endswith(_SUFFIXES)


def manifest_of(
    script: str | os.PathLike[str], args: Sequence[Any], options: RunOptions, *, for_cluster: bool
) -> str:
    """The manifest of a job that runs it; raises CommandError where it cannot be run."""
    words = ["--for-cluster"] if for_cluster else []
    return command("init", *words, *_words(options), script, *map(str, args))


def _words(options: RunOptions) -> Iterator[str]:
    flags = {"processes": "procs-per-replica", "restarts": "restart"}
    for name, value in options.items():
        match name:
            case "env":
                yield from (f"--env={key}={each}" for key, each in options["env"].items())
            case "mounts":
                mounts = options["mounts"].items()
                yield from (f"--volume={folder}:{path}" for folder, path in mounts)
            case "elastic":
                yield "--elastic={}:{}".format(*options["elastic"])
            case _:
                yield f"--{flags.get(name, name)}={value}"
