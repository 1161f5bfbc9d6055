"""Validation: manifests a second in one process, and one cold run of the command.

`measure()` gives rows (what, value, unit, target); run as a program it prints them.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from trainyard.manifest.reader import read

ROUNDS = 1_000
STARTS = 7
MANIFEST = """\
apiVersion: batch.tensorstack.dev/v1beta1
kind: PyTorchTrainingJob
metadata:
  name: mnist
spec:
  runPolicy: {backoffLimit: 3, cleanUpPolicy: Unfinished}
  torchrunConfig:
    enabled: true
    procPerNode: "1"
  scheduler:
    t9kScheduler:
      queue: default
      priority: 50
  replicaSpecs:
    - type: worker
      replicas: 4
      restartPolicy: ExitCode
      template:
        spec:
          securityContext:
            runAsUser: 1000
          containers:
            - name: pytorch
              image: pytorch:2
              workingDir: /data/examples
              args: ["train.py", "--save_path", "model.pt", "--backend", "gloo"]
              env:
                - name: NCCL_DEBUG
                  value: INFO
              resources:
                requests: {cpu: 4, memory: 8Gi}
                limits: {cpu: 8, memory: 16Gi, nvidia.com/gpu: 1}
              volumeMounts:
                - name: data
                  mountPath: /data
                - name: dshm
                  mountPath: /dev/shm
          volumes:
            - name: data
              persistentVolumeClaim:
                claimName: tutorial
            - name: dshm
              emptyDir:
                medium: Memory
"""


class Row(NamedTuple):
    """One measurement; `target` is an upper limit."""

    what: str
    value: float
    unit: str
    target: float | None


def measure() -> list[Row]:
    """A typical manifest read and validated, in process and by the command."""
    return [
        Row("validate: one manifest in process (1,000 a second)", _warm(), "ms", 1.0),
        Row("validate: the command, cold, p50", _cold(), "s", 0.35),
    ]


def _warm() -> float:
    if read(MANIFEST, "job.yaml").problems:
        raise SystemExit("the manifest of the benchmark is not valid")
    start = time.perf_counter()
    for _ in range(ROUNDS):
        read(MANIFEST, "job.yaml")
    return (time.perf_counter() - start) / ROUNDS * 1000


def _cold() -> float:
    times = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.yaml"
        file.write_text(MANIFEST)
        command = [sys.executable, "-m", "trainyard.cli.main", "validate", "-f", str(file)]
        for _ in range(STARTS):
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)
            times.append(time.perf_counter() - start)
    return statistics.median(times)


if __name__ == "__main__":
    for row in measure():
        print(f"{row.what}: {row.value:.3g} {row.unit} (target {row.target} {row.unit})")
