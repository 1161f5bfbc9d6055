"""Kubeflow's TrainJob (trainer.kubeflow.org) with the runtime that it names.

https://github.com/kubeflow/trainer/tree/master/pkg/apis/trainer/v1alpha1
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.conversion import foreign_common, mpi
from trainyard.conversion.field_tracking import CannotConvert, Fields, Note
from trainyard.conversion.foreign_common import Object
from trainyard.manifest.foreign_kinds import RUNTIMES
from trainyard.schema.dataclass import dataclass
from trainyard.schema.problems import format_path

_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_NODES = ("node", "trainer-node", "trainer")
"""Names of the replicated job, and of the container, that trains."""
_UNSUPPORTED = ("jax", "xgboost", "flux")
_BUILT_IN_RUNTIMES = {
    "torch-distributed": "torch",
    "deepspeed-distributed": "mpi",
    "mpi-distributed": "mpi",
}
"""Runtimes that come with the trainer, and their policies; they need not be in the file."""
_FIELDS_OF_PODS = """
volumes tolerations imagePullSecrets nodeSelector serviceAccountName affinity securityContext
schedulingGates terminationGracePeriodSeconds
"""
_PATCHED = _FIELDS_OF_PODS.split()
_OWN_POD = "belongs to a pod of its own, which no job here has: make it an init container"


@dataclass(slots=True)
class _Runtime:
    """The launch and the pods that a runtime describes."""

    policy: str
    """``torch``, ``mpi``, or empty."""
    nodes: Any
    processes: Any
    implementation: str
    pod: Object
    launcher: Object | None
    """The pod that starts mpirun."""


def convert(fields: Fields, runtimes: Mapping[tuple[str, str], Object]) -> list[Object]:
    """The job; `runtimes` are the objects of the same file, by kind and name."""
    metadata, spec = foreign_common.metadata(fields), fields.mapping("spec")
    runtime = _runtime(spec.mapping("runtimeRef"), runtimes)
    trainer = spec.mapping("trainer")
    _patch(spec, runtime.pod, metadata)
    _trainer(trainer, runtime)
    nodes = trainer.take("numNodes", runtime.nodes)
    processes = trainer.take("numProcPerNode", runtime.processes)
    made, launcher = _spec(runtime, nodes, processes, spec)
    if "activeDeadlineSeconds" in spec:
        if launcher == "none":
            spec.drop("activeDeadlineSeconds", "set it in the template's spec: a limit of each pod")
        else:
            made["runPolicy"] = {"activeDeadlineSeconds": spec.take("activeDeadlineSeconds")}
    made |= foreign_common.run_mode(spec)
    data = "fetch it by an init container, or mount a volume that holds it"
    spec.drop_all({"initializer": data})
    return [foreign_common.job(launcher, metadata, made)]


def _runtime(ref: Fields, runtimes: Mapping[tuple[str, str], Object]) -> _Runtime:
    name, kind = str(ref.take("name", "")), str(ref.take("kind", RUNTIMES[0]))
    ref.take("apiGroup")
    found = runtimes.get((kind, name))
    if found is None and name not in _BUILT_IN_RUNTIMES:
        raise CannotConvert(
            f"{kind} {name} is not in the file, and says how to launch: add it "
            f"(kubectl get {kind.lower()} {name} -o yaml)"
        )
    if found is None:
        ref.add_note("name", f"{kind} {name} is not in the file: the trainer's own is assumed")
        found = _assumed(_BUILT_IN_RUNTIMES[name])
    given = Fields.of(copy.deepcopy(found))
    given.take("metadata")
    runtime = _read(given, f"{kind} {name}")
    ref.notes += [
        Note(ref.path, f"of {kind} {name}, {format_path(note.path)} {note.text}")
        for note in given.notes
    ]
    return runtime


def _assumed(policy: str) -> Object:
    container = {"name": "node", "image": "pytorch/pytorch" if policy == "torch" else "deepspeed"}
    pod = {"spec": {"containers": [container]}}
    node = {"name": "node", "template": {"spec": {"template": pod}}}
    ml = {"numNodes": 1, policy: {}}
    return {"spec": {"mlPolicy": ml, "template": {"spec": {"replicatedJobs": [node]}}}}


def _read(given: Fields, title: str) -> _Runtime:
    spec = given.mapping("spec")
    ml = spec.mapping("mlPolicy")
    if other := next((each for each in _UNSUPPORTED if each in ml), ""):
        raise CannotConvert(
            f"{title} launches with {other}, which no kind of job here does: write a job whose "
            "command does so"
        )
    policy = next((each for each in ("torch", "mpi") if each in ml), "")
    nodes, own = ml.take("numNodes", 1), ml.mapping(policy or "torch")
    processes = own.take("numProcPerNode")
    implementation = str(own.take("mpiImplementation", "OpenMPI"))
    if own.take("runLauncherAsNode") is False:
        own.add_note("runLauncherAsNode", "the launcher has no pod of its own: it is on worker-0")
    template = spec.mapping("template")
    jobset = template.mapping("spec")
    entries = jobset.mappings("replicatedJobs")
    places = {str(entry.peek("name")): entry.path for entry in entries}
    pods = {name: pod for name, pod in map(_pod, entries) if pod}
    named = next((name for name in _NODES if name in pods), next(iter(pods), ""))
    if not named:
        raise CannotConvert(f"{title} has no pod that trains")
    pod, launcher = pods.pop(named), pods.pop("launcher", None) if policy == "mpi" else None
    for name in pods:
        given.notes.append(Note(places[name], f"{name} {_OWN_POD}"))
    why = "spec.scheduler.t9kScheduler makes all pods of a job start together"
    spec.drop_all({"podGroupPolicy": why})
    given.note_remaining()
    return _Runtime(policy, nodes, processes, implementation, pod, launcher)


def _pod(entry: Fields) -> tuple[str, Object | None]:
    """A replicated job's name and its pod."""
    name = str(entry.take("name", ""))
    entry.take("replicas")
    job = entry.mapping("template")
    labels = job.mapping("metadata").mapping("labels")
    labels.take(_STEP)
    spec = job.mapping("spec")
    pod = foreign_common.template(spec) if "template" in spec else None
    spec.drop_all({"backoffLimit": "write spec.runPolicy.backoffLimit"})
    entry.drop("dependsOn", "all pods of a job start together")
    return name, pod


def _trainer(trainer: Fields, runtime: _Runtime) -> None:
    """Override the runtime's training container with the job's own fields."""
    container = foreign_common.training_container(runtime.pod, _NODES)
    if container is None:
        raise CannotConvert(f"{trainer.at('image')} has no container to stand in")
    starts = foreign_common.training_container(runtime.launcher or runtime.pod, _NODES) or container
    runs_sshd = any("sshd" in word for word in foreign_common.command_of(container))
    if runtime.policy == "mpi" and starts is container and runs_sshd:
        foreign_common.take_command(container)
    if "image" in trainer:
        container["image"] = trainer.take("image")
    if "command" in trainer and "args" not in trainer:
        starts.pop("args", None)
    starts |= {key: trainer.take(key) for key in ("command", "args") if key in trainer}
    if "env" in trainer:
        container["env"] = _merged_by_name(container.get("env"), trainer.take("env"))
    if "resourcesPerNode" in trainer:
        container["resources"] = trainer.take("resourcesPerNode")


def _merged_by_name(old: Any, new: Any) -> list[Object]:
    """The entries of both lists by name; those of the new one win."""
    found = {each.get("name"): each for each in (*(old or ()), *(new or ()))}
    return list(found.values())


def _spec(runtime: _Runtime, nodes: Any, processes: Any, spec: Fields) -> tuple[Object, str]:
    container = foreign_common.training_container(runtime.pod, _NODES) or {}
    words = foreign_common.command_of(container)
    if runtime.policy == "mpi":
        return _by_mpi(runtime, nodes, processes, spec), "deepspeed"
    found = foreign_common.parse_torchrun(words) if runtime.policy == "torch" else None
    replica: Object = {"type": "node", "replicas": nodes, "template": runtime.pod}
    if runtime.policy != "torch":
        return {"replicaSpecs": [replica]}, "none"
    if found is None:
        if remark := foreign_common.plain_command_note(words):
            spec.add_note("trainer", remark)
        if processes is not None and str(processes) != "1":
            path = "numProcPerNode"
            text = "its command does not start torchrun, so that each node has one process"
            spec.add_note("trainer", f"{path} is left out: {text}")
        return {"replicaSpecs": [replica]}, "torchrun"
    container.pop("command", None)
    container["args"] = found.script
    config = found.config()
    if processes is not None:
        config.setdefault("procPerNode", foreign_common.proc_per_node(processes))
    if text := found.dropped_options_note():
        spec.add_note("trainer", text)
    return {"torchrunConfig": config, "replicaSpecs": [replica]}, "torchrun"


def _by_mpi(runtime: _Runtime, nodes: Any, processes: Any, spec: Fields) -> Object:
    container = foreign_common.training_container(runtime.launcher or runtime.pod, _NODES) or {}
    words = foreign_common.take_command(container)
    if not words:
        raise CannotConvert(f"{spec.at('trainer')}.command is missing: it starts mpirun")
    own = foreign_common.training_container(runtime.pod, _NODES) or {}
    foreign_common.take_command(own)
    own.pop("readinessProbe", None)
    line = mpi.launch_command(words, runtime.implementation)
    config = {"slotsPerWorker": processes or 1, "customCommand": line}
    worker = {"replicas": nodes, "restartPolicy": "Never", "template": runtime.pod}
    return {"config": config, "worker": worker}


def _patch(spec: Fields, pod: Object, metadata: Object) -> None:
    """Apply the patches of training pods; other patches get notes."""
    for patch in spec.mappings("runtimePatches"):
        patch.take("manager")
        patch.take("time")
        template = patch.mapping("trainingRuntimeSpec").mapping("template")
        own = template.mapping("metadata")
        for key in ("labels", "annotations"):
            if key in own:
                metadata[key] = {**metadata.get(key, {}), **own.take(key)}
        jobset = template.mapping("spec")
        for job in jobset.mappings("replicatedJobs"):
            if str(job.take("name", "")) in _NODES:
                inside = job.mapping("template").mapping("spec").mapping("template")
                _patch_pod(inside, pod)
            else:
                job.note_remaining(_OWN_POD)


def _patch_container(entry: Fields, containers: Sequence[Object]) -> None:
    name = entry.take("name")
    for each in (container for container in containers if container.get("name") == name):
        for key in ("env", "volumeMounts"):
            if key in entry:
                each[key] = _merged_by_name(each.get(key), entry.take(key))
        if "securityContext" in entry:
            each["securityContext"] = entry.take("securityContext")


def _patch_pod(patch: Fields, pod: Object) -> None:
    own = patch.mapping("metadata")
    for key in ("labels", "annotations"):
        if key in own:
            target = pod.setdefault("metadata", {})
            target[key] = {**target.get(key, {}), **own.take(key)}
    change, spec = patch.mapping("spec"), pod["spec"]
    for entry in change.mappings("containers"):
        _patch_container(entry, spec.get("containers", ()))
    for key in [key for key in _PATCHED if key in change]:
        old, new = spec.get(key), change.take(key)
        if isinstance(new, list):
            new = [*(old or ()), *new]
        spec[key] = {**(old or {}), **new} if key == "nodeSelector" else new
