"""Run `trainyard` for the measurements, with a state folder that vanishes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TRAINYARD = (sys.executable, "-m", "trainyard.cli.main")


@contextmanager
def state() -> Iterator[Path]:
    """A folder to work in, with the state folder `state`, whose cluster ends with the block.

    The folder stays until everything has been measured: on ext4 without a journal each file and
    folder that is made within a minute after many were deleted takes 0.35 to 0.7 ms longer.
    """
    folder = tempfile.mkdtemp(prefix="trainyard-bench-")
    os.environ["TRAINYARD_STATE_DIR"] = f"{folder}/state"
    try:
        yield Path(folder)
    finally:
        subprocess.run([*TRAINYARD, "down"], capture_output=True, check=False)
        del os.environ["TRAINYARD_STATE_DIR"]


def seconds(*arguments: str) -> float:
    """Wall-clock time of one command, which must succeed."""
    started = time.perf_counter()
    done = subprocess.run([*TRAINYARD, *arguments], capture_output=True, text=True, check=False)
    took = time.perf_counter() - started
    if done.returncode:
        raise RuntimeError(f"trainyard {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return took


def manifest(name: str, command: str) -> str:
    """A PyTorchTrainingJob of one replica."""
    return f"""
apiVersion: batch.tensorstack.dev/v1beta1
kind: PyTorchTrainingJob
metadata: {{name: "{name}"}}
spec:
  replicaSpecs:
    - type: worker
      template:
        spec:
          containers:
            - {{name: main, image: busybox, command: ["{command}"]}}
"""
