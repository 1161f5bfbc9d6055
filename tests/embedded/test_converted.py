"""Jobs written for other systems, converted and run."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.embedded.command_line import CommandLine
from tests.tools import require

_PROGRAM = (
    "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], flush=True)"
)
_PYTORCH = f"""\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: kubeflow}}
spec:
  pytorchReplicaSpecs:
    Master: &replica
      restartPolicy: OnFailure
      template:
        spec: {{containers: [{{name: pytorch, image: any, command: [python, -c, "{_PROGRAM}"]}}]}}
    Worker: *replica
"""
_TRAIN = f"""\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {{name: trainer}}
spec:
  runtimeRef: {{name: torch-distributed}}
  trainer:
    numNodes: 1
    numProcPerNode: 2
    command: [torchrun, --no-python, python, -c, "{_PROGRAM}"]
"""
_VOLCANO = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: volcano}
spec:
  minAvailable: 2
  tasks:
    - name: one
      policies: [{event: TaskCompleted, action: CompleteJob}]
      template: {spec: {containers: [{name: a, image: any, command: [echo, one is done]}]}}
    - name: two
      template: {spec: {containers: [{name: a, image: any, command: [echo, two is done]}]}}
"""
_LAUNCHED = f"""\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: launched}}
spec:
  replicatedJobs:
    - name: node
      template:
        spec:
          parallelism: 2
          completions: 2
          template:
            spec:
              containers:
                - name: a
                  image: any
                  command: [python, -m, torch.distributed.run, --nnodes=2, --no-python, python, -c]
                  args: ["{_PROGRAM}"]
"""
_LEAD = """\
import socket
with socket.create_server(('', 4444)) as server:
    for _ in range(2):
        server.accept()[0].makefile('w').write('led\\n')
"""
_FOLLOW = """\
import os, socket, sys, time
host, _, port = sys.argv[1].partition(':')
while True:
    try:
        found = socket.create_connection((host, int(port))).makefile().read()
        break
    except OSError:
        time.sleep(0.1)
print(os.environ['JOB'], os.environ['JOB_COMPLETION_INDEX'], 'is', found, flush=True)
"""
_NAMED = f"""\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: named}}
spec:
  replicatedJobs:
    - name: lead
      template:
        spec:
          template:
            spec:
              containers:
                - name: a
                  image: any
                  ports: [{{containerPort: 4444}}]
                  command: [python, -c, {json.dumps(_LEAD)}]
    - name: follow
      replicas: 2
      template:
        spec:
          template:
            spec:
              containers:
                - name: a
                  image: any
                  command: [python, -c, {json.dumps(_FOLLOW)}, named-lead-0-0.named:4444]
                  env:
                    - name: JOB
                      valueFrom:
                        fieldRef:
                          fieldPath: metadata.annotations['jobset.sigs.k8s.io/job-index']
"""
_BATCH = """\
apiVersion: batch/v1
kind: Job
metadata: {name: batch}
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers:
        - {name: a, image: any, command: [sh, -c, 'echo index $JOB_COMPLETION_INDEX']}
"""
_MPI = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: mpi}
spec:
  slotsPerWorker: 2
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
            - name: launcher
              image: any
              command: [mpirun, --allow-run-as-root, -n, "4", sh, -c]
              args: ['echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname)']
    Worker:
      replicas: 2
      template:
        spec: {containers: [{name: worker, image: any, command: [/usr/sbin/sshd, -De]}]}
"""
_SBATCH = f"""\
#!/bin/bash
#SBATCH --job-name=slurm --nodes=2
srun python -c "{_PROGRAM}"
"""


def converted(trainyard: CommandLine, files: list[str]) -> str:
    """The file of what they become."""
    words = [word for name in files for word in ("-f", name)]
    with open(trainyard.folder / "all.yaml", "w") as out:
        subprocess.run(
            [sys.executable, "-m", "trainyard.cli.main", "convert", *words],
            cwd=trainyard.folder,
            env=trainyard.environment,
            stdout=out,
            check=True,
        )
    return "all.yaml"


def test_mpirun_reaches_its_workers(trainyard: CommandLine) -> None:
    """The real one, over the job's own ssh."""
    for tool in ("mpirun", "ssh", "sshd"):
        require(tool)
    (trainyard.folder / "mpi.yaml").write_text(_MPI)
    output = trainyard.run("run", "-f", converted(trainyard, ["mpi.yaml"]))
    told = {line.partition("] ")[2] for line in output.splitlines() if "] rank" in line}
    assert told == {f"rank {n} of 4 on worker-{n // 2}" for n in range(4)}


def test_jobs_of_other_systems_run(trainyard: CommandLine) -> None:
    """As the message says that one gets who would run them as they are."""
    texts = {
        "a.yaml": _PYTORCH,
        "b.yaml": _TRAIN,
        "c.yaml": _VOLCANO,
        "d.sbatch": _SBATCH,
        "e.yaml": _LAUNCHED,
        "f.yaml": _NAMED,
        "g.yaml": _BATCH,
    }
    for name, text in texts.items():
        (trainyard.folder / name).write_text(text)
    refused = trainyard.run("run", "-f", "a.yaml", code=1)
    assert "`trainyard convert -f a.yaml | trainyard run -f -` runs it" in refused
    output = trainyard.run("run", "-f", converted(trainyard, [*texts]))
    for name, ranks in (("kubeflow", "master-0"), ("slurm", "worker-0")):
        assert f"[{name}/{ranks}] rank 0 of 2" in output
    assert "[slurm/worker-1] rank 1 of 2" in output
    assert {"[trainer/node-0] [rank0]: rank 0 of 2", "[trainer/node-0] [rank1]: rank 1 of 2"} <= {
        *output.splitlines()
    }
    assert "[volcano/one-0] one is done" in output
    # Not torch's own warnings, which a busy machine gets more of.
    lines = [line for line in output.splitlines() if "[launched/node-" in line and "] rank" in line]
    launched = [line.split("] ", 1) for line in lines]
    assert {where for where, _ in launched} == {"[launched/node-0", "[launched/node-1"}
    assert {said for _, said in launched} == {"rank 0 of 2", "rank 1 of 2"}
    assert {"[named/follow-0] 0 0 is led", "[named/follow-1] 1 0 is led"} <= {*output.splitlines()}
    assert "[batch/worker-1] index 1" in output
