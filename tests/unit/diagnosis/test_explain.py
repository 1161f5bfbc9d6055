"""Every cause that `trainyard explain` knows, from the objects in which it shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.unit.client.objects import (
    Object,
    ago,
    condition,
    event,
    job,
    pod,
    pod_name,
    situation,
    task,
    unplaced,
)
from trainyard import diagnosis
from trainyard.cli.commands.explain import render
from trainyard.diagnosis import exit_meanings
from trainyard.lifecycle.replica_state import DISRUPTIONS

_DEVICES = (
    "the 2 pods that start together need 16 nvidia.com/gpu, this machine has 0; "
    "to pretend the devices, start the cluster with --resource nvidia.com/gpu=16"
)
_CLUSTER = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


@dataclass(frozen=True)
class Case:
    """Objects, and words that the answer must have: cause, evidence and advice alike."""

    name: str
    job: Object
    words: tuple[str, ...]
    pods: tuple[Object, ...] = ()
    events: tuple[Object, ...] = ()
    never: tuple[str, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)


def waiting(reason: str, message: str = "") -> Object:
    return {"pytorch": {"waiting": {"reason": reason, "message": message}}}


def trouble(reason: str, message: str, **more: Any) -> Object:
    return job("Pending", conditions=[condition("Running", "False", reason, message)], **more)


LIMITED: Object = {
    "replicaSpecs": [
        {
            "type": "worker",
            "template": {"spec": {"containers": [{"resources": {"limits": {"memory": "1Gi"}}}]}},
        }
    ]
}
"""A spec with a limit of memory."""


def failed(reason: str, message: str, said: str = "", **more: Any) -> Object:
    conditions = [condition("Failed", "True", reason, message)]
    if said:
        conditions.append(condition("ReplicaFailure", "True", "ErrorInPod", said))
    return job("Failed", conditions=conditions, **more)


def ended(code: int | None, reason: str = "Error", replica: str = "worker-1") -> list[Object]:
    attempt: Object = {
        "number": 1,
        "startTime": ago(30),
        "endTime": ago(10),
        "replica": pod_name(replica),
        "reason": reason,
    }
    return [attempt if code is None else {**attempt, "exitCode": code}]


def exited(code: int, words: str, reason: str = "") -> str:
    why = f" ({reason})" if reason else ""
    return f"Pod[{pod_name('worker-1')}] exited with error code {code}{why}: {words}"


CASES = [
    Case(
        "it runs",
        job("Running", aggregate={"running": 2}, tasks=[task("Running", "Running")]),
        ("is Running", "nothing is wrong", "2 of 2 replicas run"),
        (pod("worker-0", "Running"), pod("worker-1", "Running")),
    ),
    Case(
        "succeeded",
        job("Succeeded", startTime=ago(100), completionTime=ago(40)),
        ("is Succeeded", "done its work", "60s"),
    ),
    Case(
        "no device",
        trouble("Unschedulable", "cannot be scheduled"),
        (
            "worker-0, worker-1 cannot be scheduled",
            "need 16 nvidia.com/gpu, this machine has 0",
            "trainyard up --resource nvidia.com/gpu=16",
        ),
        (unplaced("worker-0", _DEVICES), unplaced("worker-1", _DEVICES)),
    ),
    Case(
        "machine in use",
        job("Pending"),
        ("needs 8 cpu, 2 are free", "when other jobs have ended", "trainyard list -A"),
        (unplaced("worker-0", "needs 8 cpu, 2 are free; waiting for other pods to end"),),
    ),
    Case(
        "no node on a cluster",
        job("Pending"),
        ("3 Insufficient nvidia.com/gpu", "resources.requests"),
        (unplaced("worker-0", _CLUSTER),),
    ),
    Case(
        "taint",
        job("Pending"),
        ("untolerated taint", "add a toleration", "kubectl taint node NODE a-"),
        (unplaced("worker-0", "0/1 nodes are available: 1 node(s) had untolerated taint {a: b}."),),
    ),
    Case(
        "cordoned",
        job("Pending"),
        ("were unschedulable", "kubectl uncordon"),
        (unplaced("worker-0", "0/1 nodes are available: 1 node(s) were unschedulable."),),
    ),
    Case(
        "queue closed",
        job("Pending"),
        ("queue night is closed", "trainyard queue open night"),
        (unplaced("worker-0", "queue night is closed"),),
    ),
    Case(
        "queue used up",
        job("Pending"),
        ("quota of queue night is used up", "4 in use, 8 wanted", "trainyard queue show night"),
        (unplaced("worker-0", "queue night allows 8 nvidia.com/gpu: 4 in use, 8 wanted"),),
    ),
    Case(
        "queue missing",
        job("Pending"),
        ("queue night does not exist", "trainyard queue create night"),
        (unplaced("worker-0", "queue night does not exist"),),
    ),
    Case(
        "gang incomplete",
        job("Pending"),
        ("1 of the 4 pods that start together are there",),
        (unplaced("worker-0", "pod group digits has 1 of 4 pods"),),
    ),
    Case(
        "refused by quota",
        trouble("CreationRefused", 'the server refuses (403): exceeded quota: "team"'),
        ("quota does not allow", 'exceeded quota: "team"', "ResourceQuota", "tried again"),
    ),
    Case(
        "refused by a webhook",
        trouble("CreationRefused", 'admission webhook "x.y" denied the request: no'),
        ("admission webhook of the cluster refuses", "denied the request: no"),
    ),
    Case(
        "name held",
        trouble("NameConflict", "cannot create services digits-1: the name is held by Service x"),
        ("held by an object of somebody else", "held by Service x", "another name"),
    ),
    Case(
        "no gang scheduler",
        trouble("NoGangScheduler", "The job asks for scheduler.t9kScheduler, and …"),
        ("scheduler.t9kScheduler", "gangScheduler", "remove spec.scheduler"),
    ),
    Case(
        "image",
        job("Pending"),
        ("worker-0 cannot start", "image python cannot be pulled", "imagePullSecrets"),
        (pod(states=waiting("ImagePullBackOff", "Back-off pulling image")),),
    ),
    Case(
        "secret missing",
        job("Pending"),
        ("Secret default/token does not exist", "CreateContainerConfigError"),
        (pod(states=waiting("CreateContainerConfigError", "Secret default/token does not exist")),),
    ),
    Case(
        "volume missing",
        job("Pending"),
        ("worker-0 waits for a volume", 'configmap "data" not found'),
        (pod(states=waiting("ContainerCreating")),),
        (event(pod_name("worker-0"), "FailedMount", 'configmap "data" not found'),),
    ),
    Case(
        "a command in one word",
        failed(
            "Failed",
            "the job has failed",
            exited(127, "command not found: python a.py in PATH=/bin", "ContainerCannotRun"),
            attempts=ended(127, "ContainerCannotRun"),
        ),
        (
            "worker-1 failed (exit code 127)",
            "the command 'python a.py' is one word",
            "write every word of `command` for itself",
        ),
    ),
    Case(
        "command not found",
        failed(
            "Failed",
            "the job has failed",
            exited(127, "command not found: trian in PATH=/bin", "ContainerCannotRun"),
            attempts=ended(127, "ContainerCannotRun"),
        ),
        (
            "worker-1 failed (exit code 127)",
            "the command trian does not exist",
            "--image PATTERN=ENV",
            "trainyard logs digits --replica worker-1",
        ),
    ),
    Case(
        "script not found",
        failed(
            "Failed",
            "the job has failed",
            exited(2, "python: can't open file '/w/train.py': [Errno 2] No such file"),
            attempts=ended(2),
        ),
        ("the script /w/train.py does not exist", "workingDir"),
    ),
    Case(
        "out of memory",
        failed(
            "Failed",
            "the job has failed",
            exited(137, "Killed", "OOMKilled"),
            attempts=ended(137, "OOMKilled"),
            spec=LIMITED,
        ),
        ("used more memory than it may", "raise resources.limits.memory"),
    ),
    Case(
        "out of memory without a limit of its own",
        failed(
            "Failed",
            "the job has failed",
            exited(137, "Killed", "OOMKilled"),
            attempts=ended(137, "OOMKilled"),
        ),
        ("used more memory than it may", "→ use less memory"),
    ),
    Case(
        "budget spent",
        failed(
            "BackoffLimitExceeded",
            "the job has failed",
            exited(1, "ValueError: nan"),
            attempts=ended(1),
            backoffCount=3,
        ),
        ("restarts are used up: 3 of 3", "| ValueError: nan", "runPolicy.backoffLimit"),
    ),
    Case(
        "budget of a replica spent",
        failed(
            "BackoffLimitExceeded",
            "the job has failed",
            attempts=ended(1),
            kind="GenericJob",
            restartCount=2,
        ),
        ("restarts are used up: restartPolicy.limit is ", "restartPolicy.limit"),
    ),
    Case(
        "killed, and never restarted",
        failed("Failed", "the job has failed", attempts=ended(137)),
        ("killed (SIGKILL)", "restartPolicy ExitCode or OnFailure would have restarted it"),
    ),
    Case(
        "deadline",
        failed(
            "DeadlineExceeded",
            "it was active longer than its deadline of 60 s",
            spec={"runPolicy": {"activeDeadlineSeconds": 60}},
            startTime=ago(100),
            completionTime=ago(40),
        ),
        ("longer than its deadline of 60 s", "raise spec.runPolicy.activeDeadlineSeconds"),
    ),
    Case(
        "queue's limit",
        failed("QueueMaxDuration", "its queue removed worker-0"),
        ("longer than the queue's maxDuration", "its queue removed worker-0"),
    ),
    Case(
        "invalid",
        failed(
            "InvalidSpec",
            "PyTorchTrainingJob digits is invalid: spec.replicaSpecs: is required; spec.x: unknown",
        ),
        (
            "its spec is invalid",
            "\n    spec.replicaSpecs: is required\n",
            "\n    spec.x: unknown\n",
            "trainyard validate",
        ),
    ),
    Case(
        "back-off with the time of the next try",
        job(
            "Pending",
            attempts=ended(1),
            internal={"notBefore": ago(-40)},
            conditions=[condition("ReplicaFailure", "True", "ErrorInPod", exited(1, "boom"))],
            backoffCount=2,
            tasks=[task("Creating", "Creating")],
        ),
        (
            "worker-1 failed (exit code 1); the next try is in 40s",
            "next at 12:00:40 UTC",
            "| boom",
            "2 of 3 restarts",
            "--previous",
        ),
    ),
    Case(
        "back-off of one replica",
        job(
            "Running",
            kind="GenericJob",
            attempts=ended(3),
            internal={"replicas": {pod_name("worker-1"): {"attempt": 2, "notBefore": ago(-7)}}},
            aggregate={"running": 1, "creating": 1},
            tasks=[task("Running", "Creating")],
        ),
        ("the next try is in 7s",),
    ),
    Case(
        "a restart that is over is no trouble",
        job("Running", attempts=ended(1), aggregate={"running": 2}),
        ("nothing is wrong",),
        never=("failed",),
    ),
    Case(
        "paused",
        job("Paused", spec={"runMode": {"pause": {"enabled": True}}}),
        ("is Paused: its pods are deleted", "trainyard resume digits", "still ending: worker-0"),
        (pod("worker-0", "Running", deleting=-5),),
    ),
    Case(
        "resuming",
        job("Resuming", tasks=[task("Creating")]),
        ("it was resumed, and waits for all of its replicas",),
    ),
    Case(
        "debug",
        job("Running", spec={"runMode": {"debug": {"enabled": True}}}, aggregate={"running": 1}),
        ("debug mode", "nothing trains by itself", "trainyard exec digits"),
    ),
    Case(
        "waiting for peers",
        job("Pending", tasks=[task("Running", "Running", "Pending")]),
        ("2 of 3 replicas run and wait for their peers", "worker-2 (Pending)"),
    ),
    Case(
        "waiting for sshd",
        job("Pending", kind="DeepSpeedJob", tasks=[task("Running", "Creating")]),
        ("1 of 2 replicas run and wait for the sshd of their peers", "worker-1 (Creating)"),
    ),
    Case(
        "starting",
        job("Pending", tasks=[task("Creating", "Creating")]),
        ("its replicas are being started: worker-0 (Creating), worker-1 (Creating)",),
    ),
    Case(
        "node lost",
        job("Unknown"),
        ("worker-0 is lost with its node far", "deleted by force and replaced"),
        (pod("worker-0", "Running", node="far", reason="NodeLost"),),
    ),
    Case(
        "node does not answer",
        job("Unknown"),
        ("worker-0 is lost with its node", "Kubelet stopped posting"),
        (
            pod(
                "worker-0",
                "Running",
                conditions=(
                    {
                        "type": "Ready",
                        "status": "Unknown",
                        "message": "Kubelet stopped posting node status.",
                    },
                ),
            ),
        ),
    ),
    Case(
        "stuck terminating",
        job("Pending"),
        ("worker-0 is stuck while it terminates", "2m", "--force --grace-period=0"),
        (pod("worker-0", "Running", deleting=120),),
    ),
    Case(
        "terminating within its grace is not stuck",
        job("Pending"),
        ("nothing is wrong",),
        (pod("worker-0", "Running", deleting=-3),),
        never=("stuck",),
    ),
    Case(
        "being deleted",
        job("Running", deleting=20, finalizers=("x.y/z",)),
        ("is being deleted", "finalizers: x.y/z", "pods that are left: worker-0"),
        (pod("worker-0", "Running"),),
    ),
    Case(
        "no controller, here",
        job(age=30),
        ("no controller has taken notice", "created 30s ago", "trainyard status"),
    ),
    Case(
        "no controller, on a cluster",
        job(age=30),
        ("no controller has taken notice", "trainyard operator"),
        more={"is_local": False},
    ),
    Case("just created", job(age=1), ("is Pending, and nothing is wrong",)),
    Case(
        "elastic below its size",
        job(
            "Running",
            spec={"elastic": {"enabled": True, "expectedReplicas": 4, "minReplicas": 2}},
            aggregate={"running": 2, "creating": 2},
        ),
        ("runs with 2 of 4 replicas", "it needs 2 at least"),
    ),
    Case(
        "goes on without a replica",
        job(
            "Running",
            tasks=[task("Running", "Failed")],
            aggregate={"running": 1, "failed": 1},
            conditions=[condition("ReplicaFailure", "True", "ErrorInPod", exited(1, "boom"))],
        ),
        ("1 of its replicas failed for good", "boom"),
    ),
    Case(
        "other warnings are told",
        job("Running", aggregate={"running": 1}),
        ("Warnings:", "RequestsClamped: the job requests more than this machine has"),
        events=(
            event("digits", "RequestsClamped", "the job requests more than this machine has"),
            event("digits", "Scaled", "nothing to see", warns=False),
        ),
        never=("nothing to see",),
    ),
]


def answer(case: Case) -> str:
    known = situation(case.job, case.pods, case.events, **case.more)
    return render(known, diagnosis.causes(known))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_cause_is_told_with_evidence_and_advice(case: Case) -> None:
    text = answer(case)
    assert text.startswith(f"{case.job['kind']} default/digits is ")
    for words in case.words:
        assert words in text
    for words in case.never:
        assert words not in text


def test_an_answer_about_something_wrong_says_what_to_do() -> None:
    harmless = ("it runs", "succeeded", "a restart that is over", "resuming", "starting")
    quiet = (*harmless, "terminating within", "just created", "other warnings")
    for case in CASES:
        if not case.name.startswith(quiet):
            assert "→" in answer(case), case.name


def test_what_is_told_as_a_cause_is_not_told_again_as_a_warning() -> None:
    case = Case(
        "twice",
        job("Pending"),
        (),
        (pod(states=waiting("CreateContainerConfigError", "Secret default/a is missing")),),
        (event(pod_name("worker-0"), "Failing", "Secret default/a is missing"),),
    )
    assert "Warnings" not in answer(case)


@pytest.mark.parametrize(
    ("code", "reason", "words", "meaning"),
    [
        (1, "", "RuntimeError: CUDA out of memory. Tried", "GPU's memory"),
        (1, "", "ModuleNotFoundError: No module named 'deepspeed'", "package deepspeed"),
        (1, "", "OSError: [Errno 98] Address already in use", "port"),
        (1, "", "OSError: [Errno 28] No space left on device", "full"),
        (1, "", "trainyard: a-0: cannot prepare ssh: /run: No space left on device\n", "full"),
        (126, "", "cannot run /bin/echo: Argument list too long", "longer than Linux allows"),
        (1, "", "ncclSystemError: System call failed", "NCCL"),
        (127, "", "sh: 1: trian: not found", "command trian"),
        (127, "", "", "command was not found"),
        (126, "", "", "no program"),
        (1, "", "FileNotFoundError: No such file or directory: 'data.csv'", "file data.csv"),
        (2, "", "cat: /data/x.csv: No such file or directory", "file /data/x.csv"),
        (2, "", "torchrun: error: unrecognized arguments: -c -d", "the arguments -c -d"),
        (1, "", "Traceback …\n  File x\nValueError: nan loss", "ended with ValueError: nan loss"),
        (1, "", "torch.AcceleratorError: lost", "ended with torch.AcceleratorError: lost"),
        (137, "", "", "SIGKILL"),
        (137, "OOMKilled", "", "more memory than it may"),
        (139, "", "", "SIGSEGV"),
        (135, "", "", "SIGBUS"),
        (143, "", "", "SIGTERM"),
        (255, "", "", "ended with an error"),
        (3, "", "", "ended with an error"),
        (None, "Evicted", "", "short of memory or disk"),
        (None, "OutOfcpu", "", "too little left"),
    ],
)
def test_an_exit_is_read_by_its_code_and_last_words(
    code: int | None, reason: str, words: str, meaning: str
) -> None:
    assert meaning in exit_meanings.explain_exit(code, reason, words).what


@pytest.mark.parametrize("reason", sorted(DISRUPTIONS))
def test_a_pod_that_its_node_gave_up_was_taken_away(reason: str) -> None:
    assert exit_meanings.is_taken(reason)
    assert exit_meanings.explain_exit(None, reason).what.startswith("its node")
