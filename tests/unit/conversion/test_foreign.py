"""Jobs of Kubeflow, JobSet, Volcano and Slurm become ours; nothing is lost without a word."""

from __future__ import annotations

import contextlib
import copy
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.unit.conversion.kubeflow import JAX, TF, XGBOOST
from trainyard.conversion.field_tracking import leaves
from trainyard.conversion.foreign_conversion import convert
from trainyard.manifest.reader import read
from trainyard.schema.errors import InvalidManifest
from trainyard.schema.problems import Path, format_path

POD = """\
template:
  metadata: {annotations: {sidecar.istio.io/inject: "false"}}
  spec:
    restartPolicy: OnFailure
    containers:
      - name: %s
        image: example/train:1
        command: [%s]
        resources: {limits: {cpu: 1}}
"""


def pod(indent: int, name: str, command: str) -> str:
    return (POD % (name, command)).replace("\n", "\n" + " " * indent).rstrip()


PYTORCH = f"""\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: net, namespace: team, labels: {{a: b}}}}
spec:
  runPolicy:
    cleanPodPolicy: Running
    ttlSecondsAfterFinished: 60
    activeDeadlineSeconds: 3600
    backoffLimit: 2
    suspend: true
    managedBy: kubeflow.org/training-operator
    schedulingPolicy: {{queue: fast, minAvailable: 2, priorityClass: high}}
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      {pod(6, "pytorch", "python, train.py, --lr, '0.1'")}
    Worker:
      replicas: 3
      restartPolicy: OnFailure
      {pod(6, "pytorch", "python, train.py, --lr, '0.1'")}
"""
_TORCHRUN = "torchrun, --nnodes=1:3, --nproc_per_node, '2', --rdzv-id=7, --tee=3, train.py, -v"
ELASTIC = f"""\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: elastic}}
spec:
  nprocPerNode: auto
  elasticPolicy:
    minReplicas: 1
    maxReplicas: 3
    maxRestarts: 7
    rdzvBackend: c10d
    rdzvPort: 1234
    metrics: [{{type: Resource, resource: {{name: cpu}}}}]
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      {pod(6, "pytorch", _TORCHRUN)}
"""
MPI = f"""\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: pi}}
spec:
  slotsPerWorker: 2
  runPolicy: {{cleanPodPolicy: All}}
  sshAuthMountPath: /home/mpiuser/.ssh
  mpiImplementation: OpenMPI
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      {pod(6, "launcher", "mpirun, -n, '4', /home/mpiuser/pi")}
    Worker:
      replicas: 2
      {pod(6, "worker", "/usr/sbin/sshd, -De")}
"""
TRAIN = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: ours, labels: {trainer.kubeflow.org/framework: torch}}
spec:
  mlPolicy: {numNodes: 1, torch: {numProcPerNode: 2}}
  podGroupPolicy: {coscheduling: {scheduleTimeoutSeconds: 30}}
  template:
    spec:
      replicatedJobs:
        - name: dataset-initializer
          template: {spec: {template: {spec: {containers: [{name: d, image: data}]}}}}
        - name: node
          dependsOn: [{name: dataset-initializer, status: Complete}]
          template:
            spec:
              template:
                spec:
                  containers: [{name: node, image: torch, env: [{name: A, value: a}]}]
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: train}
spec:
  runtimeRef: {name: ours, kind: ClusterTrainingRuntime, apiGroup: trainer.kubeflow.org}
  initializer: {dataset: {storageUri: "hf://a/b"}}
  activeDeadlineSeconds: 600
  trainer:
    numNodes: 3
    command: [torchrun]
    args: [train.py, --fast]
    env: [{name: A, value: b}, {name: C, value: c}]
    resourcesPerNode: {limits: {cpu: 2}}
  runtimePatches:
    - manager: example.io/team
      trainingRuntimeSpec:
        template:
          metadata: {labels: {team: ml}}
          spec:
            replicatedJobs:
              - name: node
                template: {spec: {template: {spec: {nodeSelector: {gpu: "yes"}}}}}
"""
VOLCANO = f"""\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: tf}}
spec:
  minAvailable: 3
  schedulerName: volcano
  queue: research
  maxRetry: 5
  priorityClassName: high
  plugins: {{env: [], svc: []}}
  policies: [{{event: PodEvicted, action: RestartJob}}]
  volumes: [{{mountPath: /data, volumeClaimName: data}}]
  tasks:
    - name: ps
      replicas: 1
      {pod(6, "tf", "python, ps.py")}
    - name: worker
      replicas: 2
      policies: [{{event: TaskCompleted, action: CompleteJob}}]
      dependsOn: {{name: [ps]}}
      {pod(6, "tf", "python, worker.py")}
"""
JOBSET = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: net, annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: rack}}
spec:
  suspend: true
  ttlSecondsAfterFinished: 60
  managedBy: someone.io/else
  network: {enableDNSHostnames: true, subdomain: sub, publishNotReadyAddresses: false}
  startupPolicy: {startupPolicyOrder: InOrder}
  successPolicy: {operator: All, targetReplicatedJobs: [worker]}
  failurePolicy:
    maxRestarts: 2
    restartStrategy: BlockingRecreate
    rules: [{name: one, action: FailJobSet, targetReplicatedJobs: [ps]}]
  coordinator: {replicatedJob: ps, jobIndex: 0, podIndex: 0}
  volumeClaimPolicies:
    - templates:
        - metadata: {name: data}
          spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
      retentionPolicy: {whenDeleted: Retain}
  replicatedJobs:
    - name: ps
      groupName: first
      template:
        metadata: {labels: {a: b}}
        spec:
          backoffLimit: 4
          activeDeadlineSeconds: 600
          podReplacementPolicy: Failed
          podFailurePolicy:
            rules:
              - {action: FailJob, onExitCodes: {containerName: tf, operator: In, values: [42]}}
              - {action: FailIndex, onPodConditions: [{type: DisruptionTarget}]}
          template:
            spec:
              restartPolicy: Never
              containers:
                - name: tf
                  image: tf
                  command: [python, ps.py]
                  ports: [{containerPort: 2222}]
                  volumeMounts: [{name: data, mountPath: /data}]
    - name: worker
      replicas: 2
      dependsOn: [{name: ps, status: Ready}]
      template:
        spec:
          parallelism: 3
          completions: 3
          completionMode: Indexed
          backoffLimit: 0
          template:
            metadata: {labels: {c: d}}
            spec:
              containers:
                - name: tf
                  image: tf
                  command: [python, worker.py, --ps, "net-ps-0-0.sub:2222"]
                  args: [--first=net-worker-1-2.sub.ns.svc.cluster.local]
                  env:
                    - name: PS
                      value: grpc://net-ps-0-0.sub:2222
                    - name: JOB
                      valueFrom:
                        fieldRef:
                          fieldPath: metadata.annotations['jobset.sigs.k8s.io/job-global-index']
                    - name: LEADER
                      valueFrom:
                        fieldRef: {fieldPath: "metadata.labels['jobset.sigs.k8s.io/coordinator']"}
                    - name: KEY
                      valueFrom:
                        fieldRef: {fieldPath: "metadata.labels['jobset.sigs.k8s.io/job-key']"}
"""
LAUNCHED = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: net}
spec:
  failurePolicy: {maxRestarts: 3}
  ttlSecondsAfterFinished: 60
  successPolicy: {operator: Any}
  replicatedJobs:
    - name: workers
      replicas: 4
      template:
        spec:
          backoffLimit: 0
          activeDeadlineSeconds: 600
          podFailurePolicy:
            rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]
          template:
            spec:
              containers:
                - name: pytorch
                  image: torch
                  env:
                    - {name: MASTER_ADDR, value: net-workers-0-0.net}
                    - {name: OTHER, value: one}
                    - name: RANK
                      valueFrom:
                        fieldRef:
                          fieldPath: metadata.annotations['jobset.sigs.k8s.io/job-index']
                  command: [bash, -xc]
                  args:
                    - |
                      exec torchrun --nnodes=4 --nproc_per_node 2 --master_addr=$MASTER_ADDR \\
                        --node_rank=$RANK --tee=3 train.py --lr '0.1'
"""
BATCH = """\
apiVersion: batch/v1
kind: Job
metadata: {name: sweep, labels: {kueue.x-k8s.io/queue-name: fast}}
spec:
  completions: 4
  parallelism: 2
  completionMode: Indexed
  backoffLimitPerIndex: 1
  maxFailedIndexes: 2
  ttlSecondsAfterFinished: 60
  activeDeadlineSeconds: 600
  suspend: true
  manualSelector: true
  selector: {matchLabels: {a: b}}
  podReplacementPolicy: Failed
  managedBy: someone.io/else
  successPolicy: {rules: [{succeededIndexes: "0,2-3"}, {succeededCount: 1}]}
  podFailurePolicy:
    rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget, status: "True"}]}]
  template:
    metadata: {labels: {a: b}, annotations: {c: d}}
    spec:
      restartPolicy: Never
      subdomain: sweep
      containers:
        - name: main
          image: sweep
          command: [python, sweep.py, "--index=$(I)", --peer=sweep-3.sweep, --out=sweep-0]
          env:
            - name: MASTER_PORT
              value: "29500"
            - name: I
              valueFrom:
                fieldRef:
                  fieldPath: metadata.annotations['batch.kubernetes.io/job-completion-index']
"""
_OF_TORCHX = """\
    - name: net-%s
      replicas: 1
      minAvailable: 1
      policies: [{event: PodEvicted, action: RestartJob}, {event: PodFailed, action: RestartJob}]
      template:
        metadata:
          labels: {torchx.pytorch.org/role-name: net, torchx.pytorch.org/replica-id: "%s"}
        spec:
          restartPolicy: Never
          containers:
            - name: net-%s
              image: torch
              command:
                - bash
                - -c
                - torchrun --rdzv_backend c10d --rdzv_endpoint ${%s:=localhost}:29500
                  --rdzv_id 'net' --nnodes 1:2 --nproc_per_node 2 --tee 3 --role ''
                  train.py --lr 0.1
              env: [{name: A, value: b}, {name: TORCHX_RANK0_HOST, value: localhost}]
"""
TORCHX = """\

=== APPLICATION ===
{ 'metadata': {},
  'name': 'net'}

=== SCHEDULER REQUEST ===
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: net}
spec:
  maxRetry: 3
  plugins: {env: [], svc: [--publish-not-ready-addresses]}
  queue: default
  schedulerName: volcano
  tasks:
"""
TORCHX += _OF_TORCHX % (0, 0, 0, "TORCHX_RANK0_HOST") + _OF_TORCHX % (1, 1, 1, "VC_NET_0_HOSTS")
EXAMPLES = {
    "pytorch": PYTORCH, "elastic": ELASTIC, "mpi": MPI, "train": TRAIN, "volcano": VOLCANO,
    "jobset": JOBSET, "launched": LAUNCHED, "batch": BATCH,
    "torchx": TORCHX.partition("REQUEST ===\n")[2],
    "tf": TF, "jax": JAX, "xgboost": XGBOOST,
}  # fmt: skip


def converted(text: str) -> tuple[dict[str, Any], list[str]]:
    """The one job, which is valid, and what was said."""
    found = convert(text, "x")
    assert found is not None
    assert read(found.text).errors == ()
    *_, job = yaml.safe_load_all(found.text)
    return job, [str(note) for note in found.notes]


def test_a_pytorch_job_that_is_plain_stays_plain() -> None:
    job, notes = converted(PYTORCH)
    assert job["kind"] == "PyTorchTrainingJob"
    assert job["metadata"] == {"name": "net", "namespace": "team", "labels": {"a": "b"}}
    spec = job["spec"]
    assert [(r["type"], r["replicas"], r["restartPolicy"]) for r in spec["replicaSpecs"]] == [
        ("master", 1, "OnFailure"),
        ("worker", 3, "OnFailure"),
    ]
    container = spec["replicaSpecs"][1]["template"]["spec"]["containers"][0]
    assert container["command"] == ["python", "train.py", "--lr", "0.1"]
    assert spec["runPolicy"] == {
        "cleanUpPolicy": "Unfinished",
        "ttlSecondsAfterFinished": 60,
        "activeDeadlineSeconds": 3600,
        "backoffLimit": 2,
    }
    assert spec["runMode"] == {"pause": {"enabled": True}}
    assert spec["scheduler"]["t9kScheduler"]["queue"] == "fast"
    assert any("spec.runPolicy.managedBy: has no counterpart" in note for note in notes)
    assert any("priorityClass: write a number" in note for note in notes)


def test_an_elastic_pytorch_job_is_launched_by_torchrun() -> None:
    job, notes = converted(ELASTIC)
    assert job["spec"]["torchrunConfig"] == {
        "enabled": True,
        "procPerNode": "gpu",
        "extraOptions": ["--tee=3"],
        "maxRestarts": 7,
        "rdzvBackend": "c10d",
    }
    expected = {"enabled": True, "minReplicas": 1, "maxReplicas": 3, "expectedReplicas": 2}
    assert job["spec"]["elastic"] == expected
    container = job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    assert (container.get("command"), container["args"]) == (None, ["train.py", "-v"])
    assert any("--nnodes --rdzv-id of torchrun is left out" in note for note in notes)
    assert any("rdzvPort: the launch makes its own" in note for note in notes)


def test_what_counts_on_variables_of_kubeflow_is_told() -> None:
    command = "sh, -c, cd code && torchrun train.py"
    _, notes = converted(PYTORCH.replace("python, train.py, --lr, '0.1'", command))
    assert any("starts torchrun by way of a shell" in note for note in notes)
    _, notes = converted(PYTORCH.replace("train.py, --lr, '0.1'", "t.py, $(PET_NODE_RANK)"))
    assert any("no PET_ variables are set" in note for note in notes)


def test_an_mpi_job_starts_mpirun_on_its_first_worker() -> None:
    job, notes = converted(MPI)
    assert job["kind"] == "DeepSpeedJob"
    line = 'mpirun --hostfile "$TRAINYARD_HOSTFILE" -n 4 /home/mpiuser/pi'
    assert job["spec"]["config"] == {"slotsPerWorker": 2, "customCommand": line}
    assert job["spec"]["worker"]["replicas"] == 2
    assert "command" not in job["spec"]["worker"]["template"]["spec"]["containers"][0]
    assert any("on worker-0" in note for note in notes)


def test_a_train_job_is_what_its_runtime_and_its_patches_make_of_it() -> None:
    job, notes = converted(TRAIN)
    assert job["metadata"] == {"name": "train", "labels": {"team": "ml"}}
    assert job["spec"]["torchrunConfig"] == {"enabled": True, "procPerNode": "2"}
    (replica,) = job["spec"]["replicaSpecs"]
    assert replica["replicas"] == 3
    assert replica["template"]["spec"]["nodeSelector"] == {"gpu": "yes"}
    (container,) = replica["template"]["spec"]["containers"]
    assert container["args"] == ["train.py", "--fast"]
    assert container["env"] == [{"name": "A", "value": "b"}, {"name": "C", "value": "c"}]
    assert job["spec"]["runPolicy"] == {"activeDeadlineSeconds": 600}
    assert any("dataset-initializer belongs to a pod of its own" in note for note in notes)


def test_a_runtime_that_is_not_there_is_asked_for() -> None:
    job = TRAIN.partition("---\n")[2]
    with pytest.raises(InvalidManifest, match="ClusterTrainingRuntime ours is not in the file"):
        convert(job)
    found = convert(job.replace("name: ours", "name: torch-distributed"))
    assert found is not None
    assert "the trainer's own is assumed" in str(found.notes)


def test_tasks_of_volcano_are_replica_types() -> None:
    job, notes = converted(VOLCANO)
    assert job["kind"] == "GenericJob"
    spec = job["spec"]
    assert [(r["type"], r["replicas"]) for r in spec["replicaSpecs"]] == [("ps", 1), ("worker", 2)]
    assert spec["replicaSpecs"][0]["restartPolicy"] == {"policy": "OnFailure", "limit": 5}
    assert spec["successRules"] == [{"worker": [0, 1]}]
    assert spec["scheduler"] == {"t9kScheduler": {"queue": "research"}}
    assert spec["replicaSpecs"][0]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]
    assert any("plugins.svc: replicas find each other by" in note for note in notes)


def test_a_shell_that_only_starts_torchrun_is_looked_through() -> None:
    """As long as it has nothing to fill in."""
    script = "exec torchrun --nnodes=$N --nproc_per_node=2 train.py --name 'a b'"
    job, _ = converted(PYTORCH.replace("python, train.py, --lr, '0.1'", f'bash, -xc, "{script}"'))
    assert job["spec"]["torchrunConfig"] == {"enabled": True, "procPerNode": "2"}
    container = job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    assert (container.get("command"), container["args"]) == (None, ["train.py", "--name", "a b"])
    for other in ("$LR", "--lr=$LR", "; echo", "| tee log", "`date`", "# why", "'open"):
        text = f'bash, -xc, "torchrun train.py {other}"'
        job, notes = converted(PYTORCH.replace("python, train.py, --lr, '0.1'", text))
        assert "torchrunConfig" not in job["spec"], other
        assert any("starts torchrun by way of a shell" in note for note in notes)


def test_replicated_jobs_are_replica_types() -> None:
    """Of several Jobs with several pods each is one type; names and labels are variables."""
    job, notes = converted(JOBSET)
    assert (job["kind"], job["metadata"]) == ("GenericJob", {"name": "net"})
    spec = job["spec"]
    types = [(r["type"], r["replicas"], r["restartPolicy"]) for r in spec["replicaSpecs"]]
    assert types == [
        ("ps", 1, {"policy": "OnFailure", "limit": 4}),
        ("worker-0", 3, {"policy": "OnFailure", "limit": 2}),
        ("worker-1", 3, {"policy": "OnFailure", "limit": 2}),
    ]
    assert spec["successRules"] == [{"worker-0": [0, 1, 2], "worker-1": [0, 1, 2]}]
    assert spec["failureRules"] == [{"ps": [0]}]
    assert spec["service"] == {"ports": [{"port": 2222}]}
    assert spec["runMode"] == {"pause": {"enabled": True}}
    pods = [replica["template"]["spec"] for replica in spec["replicaSpecs"]]
    assert pods[0]["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-net"}}
    ]
    (container,) = pods[2]["containers"]
    assert container["command"][-1] == "$(service.ps[0].host):2222"
    assert container["args"] == ["--first=$(service.worker-1[2].host)"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env == {
        "PS": "grpc://$(service.ps[0].host):2222",
        "JOB": "2",
        "LEADER": "$(service.ps[0].host)",
        "KEY": None,
        "JOB_COMPLETION_INDEX": "$(rank)",
    }
    rule = {"action": "FailJob", "replicaTypes": ["ps"]}
    rule["onExitCodes"] = {"containerName": "tf", "operator": "In", "values": [42]}
    assert spec["runPolicy"] == {"podFailurePolicy": {"rules": [rule]}}
    assert len({*notes}) == len(notes)
    text = "\n".join(notes)
    for part in (
        "FailIndex has no counterpart",
        "rules[0], FailJobSet, is left out",
        "pods have no jobset.sigs.k8s.io/job-key here",
        "restarts of the set, 2: what has failed is started again, and not all of them",
        "exclusive-topology']: is left out",
    ):
        assert part in text


def test_a_claim_of_a_jobset_is_made() -> None:
    found = convert(JOBSET)
    assert found is not None
    claim = next(yaml.safe_load_all(found.text))
    assert (claim["kind"], claim["metadata"]) == ("PersistentVolumeClaim", {"name": "data-net"})
    assert claim["spec"]["resources"] == {"requests": {"storage": "1Gi"}}


def test_a_jobset_that_only_starts_torchrun_is_launched() -> None:
    job, notes = converted(LAUNCHED)
    assert job["kind"] == "PyTorchTrainingJob"
    spec = job["spec"]
    assert spec["torchrunConfig"] == {
        "enabled": True, "procPerNode": "2", "extraOptions": ["--tee=3"]
    }  # fmt: skip
    (replica,) = spec["replicaSpecs"]
    types = (replica["type"], replica["replicas"], replica["restartPolicy"])
    assert types == ("workers", 4, "OnFailure")
    (container,) = replica["template"]["spec"]["containers"]
    assert container["args"] == ["train.py", "--lr", "0.1"]
    assert container["env"] == [{"name": "OTHER", "value": "one"}]
    assert spec["runPolicy"] == {
        "backoffLimit": 3,
        "ttlSecondsAfterFinished": 60,
        "activeDeadlineSeconds": 600,
        "podFailurePolicy": {
            "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
        },
    }
    assert any("MASTER_ADDR, RANK: torchrun sets it" in note for note in notes)


def test_replicas_that_train_on_their_own_stay_so() -> None:
    """A sweep of torchrun on one node each is no training on several."""
    words = "[torchrun, --standalone, --nproc_per_node=2, train.py]"
    text = BATCH.replace(
        BATCH[BATCH.index("[python, sweep.py") : BATCH.index("sweep-0]") + 8], words
    )
    job, notes = converted(text)
    assert job["kind"] == "GenericJob"
    container = job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    assert container["command"] == yaml.safe_load(words)
    assert not any("script of its own" in note for note in notes)
    assert converted(text.replace("--standalone", "--rdzv-conf=a"))[0]["kind"] == "GenericJob"
    for option in ("--nnodes=4", "--master-addr=a", "--rdzv_endpoint=a:1", "--node_rank=0"):
        job, _ = converted(text.replace("--standalone", option))
        assert job["spec"]["replicaSpecs"][0]["replicas"] == 4
        assert job["kind"] == "PyTorchTrainingJob", option
    one = text.replace("completions: 4\n  parallelism: 2", "completions: 1")
    assert converted(one.replace("0,2-3", "0"))[0]["kind"] == "PyTorchTrainingJob"


def test_a_success_of_any_job_of_a_set_is_enough() -> None:
    job, _ = converted(JOBSET.replace("operator: All, target", "operator: Any, target"))
    assert job["spec"]["successRules"] == [{"worker-0": [0, 1, 2]}, {"worker-1": [0, 1, 2]}]
    assert len(job["spec"]["failureRules"]) == 7
    job, _ = converted(JOBSET.replace("successPolicy: {operator: All, target", "x: {x"))
    assert not {"successRules", "failureRules"} & job["spec"].keys()
    for wrong in ("operator: Some, target", "operator: All, target"):
        text = JOBSET.replace("operator: All, target", wrong).replace("[worker]", "[nobody]")
        with pytest.raises(InvalidManifest, match=r"there is no nobody"):
            convert(text)


def test_jobs_of_one_pod_each_are_one_type() -> None:
    """An index is that of the Job, and a host that of its only pod."""
    text = (
        JOBSET.replace("parallelism: 3", "parallelism: 1")
        .replace("completions: 3", "completions: 1")
        .replace("net-worker-1-2", "net-worker-1-0")
        .replace("net-ps-0-0.sub:2222\n", "net-worker-2-0.sub:2222\n")
        .replace("job-global-index", "job-index")
    )
    job, _ = converted(text.replace("operator: All", "operator: Any"))
    spec = job["spec"]
    assert [(r["type"], r["replicas"]) for r in spec["replicaSpecs"]] == [("ps", 1), ("worker", 2)]
    assert spec["successRules"] == [{"worker": [0]}, {"worker": [1]}]
    assert spec["failureRules"] == [{"ps": [0]}, {"worker": [0]}, {"worker": [1]}]
    (container,) = spec["replicaSpecs"][1]["template"]["spec"]["containers"]
    assert container["args"] == ["--first=$(service.worker[1].host)"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["PS"] == "grpc://net-worker-2-0.sub:2222"  # there is no such pod
    assert (env["JOB"], env["JOB_COMPLETION_INDEX"]) == ("$(rank)", "0")


def test_hosts_without_a_port_are_told() -> None:
    text = JOBSET.replace("ports: [{containerPort: 2222}]", "tty: false")
    found = convert(text)
    assert found is not None
    assert "net-ps-0-0.sub:2222" in found.text
    assert any("net-ps-0-0.sub, net-worker-1-2.sub" in note.message for note in found.notes)


def test_a_job_of_kubernetes_is_a_type_of_replica() -> None:
    """Names of its pods only with their subdomain: `sweep-0` may be anything."""
    job, notes = converted(BATCH)
    assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "fast"}
    spec = job["spec"]
    (replica,) = spec["replicaSpecs"]
    assert replica["restartPolicy"] == {"policy": "OnFailure", "limit": 1}
    assert (replica["type"], replica["replicas"]) == ("worker", 4)
    (container,) = replica["template"]["spec"]["containers"]
    assert container["command"][2:] == [
        "--index=$(I)", "--peer=$(service.worker[3].host)", "--out=sweep-0"
    ]  # fmt: skip
    assert container["env"][1:] == [
        {"name": "I", "value": "$(rank)"},
        {"name": "JOB_COMPLETION_INDEX", "value": "$(rank)"},
    ]
    assert spec["service"] == {"ports": [{"port": 29500}]}
    assert spec["successRules"] == [{"worker": [0, 2, 3]}]
    assert any("all 4 replicas run at once, not 2" in note for note in notes)
    plain = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: a-}\nspec: {template: {spec: "
    )
    plain += "{containers: [{name: a, image: a, command: [torchrun, a.py]}]}}}"
    job, _ = converted(plain)
    assert job["spec"]["runPolicy"] == {"backoffLimit": 6}


def test_tasks_of_torchx_are_one_type_under_torchrun() -> None:
    """As `torchx run --dryrun` shows them, or as they are."""
    job, notes = converted(TORCHX)
    assert job["kind"] == "PyTorchTrainingJob"
    spec = job["spec"]
    assert spec["torchrunConfig"] == {
        "enabled": True, "procPerNode": "2", "extraOptions": ["--tee", "3"]
    }  # fmt: skip
    assert spec["elastic"] == {
        "enabled": True, "minReplicas": 1, "maxReplicas": 2, "expectedReplicas": 2
    }  # fmt: skip
    (replica,) = spec["replicaSpecs"]
    types = (replica["type"], replica["replicas"], replica["restartPolicy"])
    assert types == ("net", 2, "OnFailure")
    assert replica["template"]["metadata"]["labels"] == {"torchx.pytorch.org/role-name": "net"}
    (container,) = replica["template"]["spec"]["containers"]
    assert container["args"] == ["train.py", "--lr", "0.1"]
    assert container["env"] == [{"name": "A", "value": "b"}]
    assert spec["runPolicy"] == {"backoffLimit": 3}
    assert any("x:15:3" in note and "tasks of one role are replicas" in note for note in notes)
    manifest = TORCHX.partition("REQUEST ===\n")[2]
    assert converted(manifest)[0] == job
    for old, new in (("--lr 0.1", "--lr 0.2"), ("role-name: net", "role-name: x")):
        before, _, after = manifest.rpartition(old)
        other, _ = converted(f"{before}{new}{after}")
        assert [r["type"] for r in other["spec"]["replicaSpecs"]] == ["net-0", "net-1"]


SBATCH = """\
#!/bin/bash
#SBATCH --job-name=Big Net
#SBATCH -N 2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:a100:4
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH -t 1-02:30:00
#SBATCH -p fast
#SBATCH --requeue
#SBATCH --mail-type=END

module load cuda
export LR=0.1
MASTER=$(scontrol show hostnames | head -n 1)
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node=4 \\
    --rdzv_backend=c10d --rdzv_endpoint=$MASTER:29500 train.py --lr $LR --nodes=$SLURM_NNODES
"""


def test_a_script_for_sbatch_is_its_header_and_its_srun() -> None:
    job, notes = converted(SBATCH.replace("Big Net", '"Big Net"'))
    assert job["metadata"] == {"name": "big-net"}
    spec = job["spec"]
    assert spec["torchrunConfig"] == {"enabled": True, "procPerNode": "4"}
    (replica,) = spec["replicaSpecs"]
    assert (replica["replicas"], replica["restartPolicy"]) == (2, "OnFailure")
    (container,) = replica["template"]["spec"]["containers"]
    assert container["args"] == ["train.py", "--lr", "0.1", "--nodes=2"]
    assert container["env"] == [{"name": "LR", "value": "0.1"}]
    limits = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": 4}
    assert container["resources"] == {"limits": limits}
    assert spec["runPolicy"] == {"activeDeadlineSeconds": 95400}
    assert spec["scheduler"]["t9kScheduler"]["queue"] == "fast"
    text = "\n".join(notes)
    for part in (
        "x:11: warning: --mail-type=END: has no counterpart",
        "x:13: warning: `module load",
    ):
        assert part in text
    assert "x:15: warning: `MASTER=$(" in text


def test_tasks_of_slurm_are_processes() -> None:
    text = "#!/bin/sh\n#SBATCH --nodes=2 --ntasks-per-node=4\nsrun --label python train.py\n"
    job, notes = converted(text)
    assert job["spec"]["torchrunConfig"] == {"enabled": True, "procPerNode": "4"}
    assert any("not in SLURM_PROCID" in note for note in notes)
    with pytest.raises(InvalidManifest, match="no srun line"):
        convert("#!/bin/sh\n#SBATCH -N 2\nhostname\n")


def changed(documents: list[Any]) -> Iterator[tuple[int, Path, list[Any]]]:
    """The documents with one leaf taken out, for every leaf of what is converted."""
    for number, document in enumerate(documents):
        for path in leaves(document):
            if path[0] not in ("spec", "metadata") or path == ("metadata", "name"):
                continue
            other = copy.deepcopy(documents)
            holder = other[number]
            for key in path[:-1]:
                holder = holder[key]
            value = holder[path[-1]]
            holder[path[-1]] = _another(value)
            yield number, path, other


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return f"{value}x" if isinstance(value, str) else ["x"] if isinstance(value, list) else {"x": 1}


_IRRELEVANT = ("apiGroup", "manager", "trainer.kubeflow.org/framework")
"""Which say nothing of the job."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_leaf_is_used_or_told(name: str) -> None:
    """Another value leads to another job, or was told of, or is refused."""
    documents = list(yaml.safe_load_all(EXAMPLES[name]))
    first = convert(yaml.safe_dump_all(documents))
    assert first is not None
    silent = []
    for number, path, other in changed(documents):
        try:
            found = convert(yaml.safe_dump_all(other))
        except InvalidManifest:
            continue
        assert found is not None
        notes = [note.detail for note in first.notes]
        is_same = found.text == first.text and notes == [note.detail for note in found.notes]
        is_last = number == len(documents) - 1
        is_told = any(
            note.path == path[: max(len(note.path), 2)]
            if is_last
            else any(format_path(path[:end]) in note.message for end in range(2, len(path) + 1))
            for note in first.notes
        )
        if is_same and not is_told and not any(each in path for each in _IRRELEVANT):
            silent.append(format_path(path))
    overridden = ["spec.mlPolicy.numNodes"]  # by the job, as the trainer does
    overridden += [each for each in silent if each.endswith("containers[0].env[0].value")]
    assert set(silent) <= set(overridden)


_WORDS = re.compile(r"\w+")


def _mappings(value: Any, path: Path) -> Iterator[Path]:
    """The paths of all mappings in a value, its own among them."""
    if isinstance(value, dict):
        yield path
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(each, dict | list):
            yield from _mappings(each, (*path, key))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_unknown_field_anywhere_is_kept_or_told(name: str) -> None:
    """It is in the job, or it or a field around it has a note. Whole variables may be replaced."""
    documents = list(yaml.safe_load_all(EXAMPLES[name]))
    lost = []
    for path in _mappings(documents[-1]["spec"], ("spec",)):
        if "env" in path:
            continue
        other = copy.deepcopy(documents)
        holder = other[-1]
        for key in path:
            holder = holder[key]
        holder["unheard"] = "of"
        try:
            found = convert(yaml.safe_dump_all(other))
        except InvalidManifest:
            continue
        assert found is not None
        whole = (*path, "unheard")
        around = [note for note in found.notes if note.path == whole[: len(note.path)]]
        is_told = any(
            each.path[-1] != "template"
            or {*whole[len(each.path) :]} & {*_WORDS.findall(each.message)}
            for each in around
        )
        if not is_told and "unheard" not in found.text:
            lost.append(format_path(path))
    assert not lost


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (PYTORCH, "a Kubeflow PyTorchJob"),
        (MPI, "a Kubeflow MPIJob"),
        (TRAIN, "a Kubeflow TrainJob"),
        (VOLCANO, "a Volcano Job"),
        (JOBSET, "a JobSet"),
        (BATCH, "a Kubernetes Job"),
        (TF, "a Kubeflow TFJob"),
        (JAX, "a Kubeflow JAXJob"),
        (XGBOOST, "a Kubeflow XGBoostJob"),
        (SBATCH, "a script for Slurm's sbatch"),
    ],
)
def test_a_reader_that_meets_one_says_what_to_do(text: str, title: str) -> None:
    errors = [str(problem) for problem in read(text, "job.x").errors]
    how = f"is {title}: `trainyard convert -f job.x | trainyard run -f -` runs it"
    assert any(how in each for each in errors), errors


def test_our_own_manifests_are_not_touched() -> None:
    assert convert("apiVersion: batch.tensorstack.dev/v1beta1\nkind: GenericJob\n") is None
    assert convert("") is None


@pytest.mark.parametrize("name", EXAMPLES)
def test_wrong_types_are_refused_and_no_defect(name: str) -> None:
    documents = list(yaml.safe_load_all(EXAMPLES[name]))
    for number, document in enumerate(documents):
        for key in document["spec"]:
            for wrong in (1, "x", [1], {"x": [1]}, None):
                other = copy.deepcopy(documents)
                other[number]["spec"][key] = wrong
                with contextlib.suppress(InvalidManifest):
                    convert(yaml.safe_dump_all(other))


@pytest.mark.parametrize("name", EXAMPLES)
def test_whatever_is_odd_is_refused_and_no_defect(name: str) -> None:
    """Anything anywhere, numbers that would fill the memory among it."""
    rng = random.Random(name)
    documents = list(yaml.safe_load_all(EXAMPLES[name]))
    for _ in range(150):
        other = copy.deepcopy(documents)
        holder = rng.choice(other)
        while True:
            key = rng.choice([*holder] if isinstance(holder, dict) else range(len(holder)))
            if not isinstance(holder[key], dict | list) or not holder[key] or rng.random() < 0.2:
                break
            holder = holder[key]
        holder[key] = rng.choice((None, 0, -1, 10**9, "x", [], [1], {}, {"a": 1}, [{}], True, 1.5))
        with contextlib.suppress(InvalidManifest):
            convert(yaml.safe_dump_all(other))


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (JOBSET, "replicas: 2", "replicas: 1000000000", "1000000000 are more than 20000"),
        (JOBSET, "replicas: 2", "replicas: 19000", "there are more than 20000 pods"),
        (JOBSET, "maxRestarts: 2", "maxRestarts: no", "maxRestarts is no number from 0: False"),
        (VOLCANO, "replicas: 2", "replicas: 1000000000", "1000000000 are more than 20000"),
        (BATCH, "containers:", "containers: {a: b}\n      others:", "other types"),
        (TRAIN, "metadata: {name: ours", "metadata: [1]\nx: {y: ours", "ours is not in the file"),
    ],
)
def test_what_a_fuzzer_found_is_refused(text: str, old: str, new: str, message: str) -> None:
    with pytest.raises(InvalidManifest, match=message):
        convert(text.replace(old, new, 1))
