"""From a command to the first training step: a DeepSpeedJob beside the same launch by hand.

By hand means: two pods that only sleep, sshd already serving in both, keys and hostfile in place,
and the same `deepspeed` line started in the first. Both clocks start before the one command that is
typed, `trainyard submit` and `trainyard exec … deepspeed …`, and end when rank 0 has done its first
step. What a DeepSpeedJob does more (pods, keys, sshd) counts against it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.commands import TRAINYARD, seconds, state

Row = tuple[str, float | None, str, float | None]
ROUNDS = 3
WORKERS = 2
PORT = 2222
"""Of sshd, by hand; trainyard's default is the same."""
MASTER_PORT = 29500
_PATIENCE_SECONDS = 120.0
_SYSTEM_PATH = "/usr/sbin"

TRAIN = """\
import os, pathlib, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.Linear(8, 1)
loss = model(torch.ones(4, 8)).square().mean()
loss.backward()
for parameter in model.parameters():
    dist.all_reduce(parameter.grad)
torch.optim.SGD(model.parameters(), lr=0.1).step()
if dist.get_rank() == 0:
    mark = pathlib.Path(sys.argv[-1])
    mark.with_suffix(".new").write_text(str(time.time()))
    mark.with_suffix(".new").rename(mark)
dist.barrier()
dist.destroy_process_group()
"""

JOB = """\
apiVersion: batch.tensorstack.dev/v1beta1
kind: DeepSpeedJob
metadata: {{name: "{name}"}}
spec:
  config: {{slotsPerWorker: {slots}, run: {{python: [train.py, "{mark}"]}}}}
  worker:
    replicas: {workers}
    restartPolicy: Never
    template:
      spec:
        containers:
          - {{name: worker, image: image, env: [{{name: OMP_NUM_THREADS, value: "1"}}]}}
"""

MACHINES = """\
apiVersion: batch.tensorstack.dev/v1beta1
kind: GenericJob
metadata: {{name: machines}}
spec:
  replicaSpecs:
    - type: machine
      replicas: {workers}
      restartPolicy: {{policy: Never}}
      template:
        spec:
          containers:
            - {{name: main, image: image, command: [sleep, infinity]}}
"""

SSHD_CONFIG = """\
Port {port}
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
UseDNS no
LogLevel ERROR
"""

CLIENT_CONFIG = """\
Host *
    Port {port}
    IdentityFile {folder}/key
    UserKnownHostsFile /dev/null
    StrictHostKeyChecking no
    LogLevel ERROR
"""

BY_HAND = """\
set -e
cd {folder}
PATH={folder}/bin:$PATH DS_ENV_FILE={folder}/deepspeed_env OMP_NUM_THREADS=1
export PATH DS_ENV_FILE OMP_NUM_THREADS
exec deepspeed --hostfile {folder}/hostfile-{slots} --master_addr {master} train.py {mark}
"""


def measure() -> list[Row]:
    """Medians of alternating launches; one row with the reason where a program is missing."""
    lacking = [name for name in ("deepspeed", "pdsh", "sshd", "ssh") if _which(name) is None]
    if lacking:
        return [(f"DeepSpeedJob: skipped, no {', '.join(lacking)} here", None, "", None)]
    with _machines() as launches:
        return [row for slots in (1, 2) for row in _rows(launches, slots)]


def _rows(launches: _Launches, slots: int) -> Iterator[Row]:
    ours, by_hand = [], []
    for number in range(ROUNDS):
        by_hand.append(launches.by_hand(slots, number))
        ours.append(launches.job(slots, number))
    hand, job = statistics.median(by_hand), statistics.median(ours)
    size = f"{WORKERS} workers, slots: {slots}"
    yield f"`deepspeed` by hand, to the first step, {size}", hand, "s", None
    yield f"DeepSpeedJob, to the first step, {size}", job, "s", None
    yield f"ratio, {size}", job / hand, "x", 1.15


def _which(name: str) -> str | None:
    """A program, beside this interpreter or on the machine."""
    beside = str(Path(sys.executable).parent)
    return shutil.which(name, path=os.pathsep.join([beside, os.environ["PATH"], _SYSTEM_PATH]))


@contextmanager
def _machines() -> Iterator[_Launches]:
    """A cluster with two sleeping pods in which sshd serves."""
    with state() as folder:
        seconds("up")
        launches = _Launches(folder / "work")
        launches.prepare()
        yield launches


class _Launches:
    """Launches of either sort, each timed in seconds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.addresses: list[str] = []

    def prepare(self) -> None:
        """What somebody has long done who launches by hand: machines, keys, sshd, hostfiles."""
        self.folder.mkdir()
        (self.folder / "train.py").write_text(TRAIN)
        manifest = self.folder / "machines.yaml"
        manifest.write_text(MACHINES.format(workers=WORKERS))
        seconds("submit", "-f", str(manifest))
        seconds("wait", "machines", "--for", "phase=Running")
        for name in ("key", "host_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
            subprocess.run(command, check=True)
        shutil.copy(self.folder / "key.pub", self.folder / "authorized_keys")
        self.addresses = [self.serve(number) for number in range(WORKERS)]
        config = self.folder / "config"
        config.write_text(CLIENT_CONFIG.format(port=PORT, folder=self.folder))
        (self.folder / "bin").mkdir()
        client = self.folder / "bin" / "ssh"
        client.write_text(f'#!/bin/sh\nexec {_which("ssh")} -F {config} "$@"\n')
        client.chmod(0o755)
        (self.folder / "deepspeed_env").write_text("OMP_NUM_THREADS=1\n")
        for slots in (1, 2):
            lines = [f"{address} slots={slots}\n" for address in self.addresses]
            (self.folder / f"hostfile-{slots}").write_text("".join(lines))

    def serve(self, number: int) -> str:
        """Start sshd in one of the machines; its address."""
        address = self.execute(number, "hostname -i").split()[0]
        config = self.folder / f"sshd_config-{number}"
        config.write_text(SSHD_CONFIG.format(port=PORT, address=address, folder=self.folder))
        self.execute(number, f"mkdir -p /run/sshd; {_which('sshd')} -f {config}")
        return address

    def execute(self, number: int, script: str) -> str:
        """What a script prints in one of the machines."""
        command = [*TRAINYARD, "exec", "machines", "--replica", f"machine-{number}", "--"]
        done = subprocess.run(
            [*command, "/bin/sh", "-c", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"by hand: {done.stdout}{done.stderr}")
        return done.stdout

    def by_hand(self, slots: int, number: int) -> float:
        """From before `trainyard exec` to the first step."""
        mark = self.folder / f"hand-{slots}-{number}.mark"
        script = BY_HAND.format(
            folder=self.folder, slots=slots, master=self.addresses[0], mark=mark
        )
        started = time.time()
        self.execute(0, script)
        return float(mark.read_text()) - started

    def job(self, slots: int, number: int) -> float:
        """From before `trainyard submit` to the first step."""
        name = f"job-{slots}-{number}"
        mark = self.folder / f"{name}.mark"
        manifest = self.folder / f"{name}.yaml"
        manifest.write_text(JOB.format(name=name, slots=slots, mark=mark, workers=WORKERS))
        started = time.time()
        seconds("submit", "-f", str(manifest))
        seconds("wait", name, "--timeout", str(_PATIENCE_SECONDS))
        took = float(mark.read_text()) - started
        seconds("delete", name)
        return took
