"""A disk that is small enough to fill, for the time of one program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.tools import missing


@contextmanager
def on_small_disk(
    program: str, options: str, *, keep: str = ""
) -> Iterator[tuple[Path, subprocess.CompletedProcess[str]]]:
    """Run Python code whose first argument is a folder on a tmpfs with these mount options.

    The tmpfs is in a mount namespace of its own, and gone afterwards; of the folder `keep` in it
    there is a copy. Skips where nothing may be mounted.
    """
    if os.getuid() or shutil.which("unshare") is None:
        missing("mounting a small disk takes root and unshare")
    with tempfile.TemporaryDirectory() as name:
        disk, copy = Path(name, "disk"), Path(name, "copy")
        disk.mkdir()
        shell = (
            'mount -t tmpfs -o "$1" tmpfs "$2" || exit 77; "$4" -c "$5" "$2"; code=$?; '
            'test -z "$6" || cp -r "$2/$6" "$3"; exit $code'
        )
        words = ["sh", "-c", shell, "sh", options, disk, copy, sys.executable, program, keep]
        done = subprocess.run(
            ["unshare", "-m", *words], capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode == 77:
            missing(f"cannot mount a tmpfs: {done.stderr}")
        yield copy, done
