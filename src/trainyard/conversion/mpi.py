"""Launches by mpirun: Kubeflow's MPIJob (kubeflow.org/v2beta1).

Ours that reaches workers over ssh and can start any launcher is the kind of deepspeed, with a
command of its own on worker-0.
https://github.com/kubeflow/mpi-operator/blob/master/pkg/apis/kubeflow/v2beta1/types.go
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from trainyard.conversion import foreign_common
from trainyard.conversion.field_tracking import CannotConvert, Fields
from trainyard.conversion.foreign_common import Object

_HOSTS = {"OpenMPI": "--hostfile", "Intel": "-machinefile", "MPICH": "-f"}
_LAUNCHERS = ("mpirun", "mpiexec", "mpiexec.hydra", "horovodrun")
_SSHD = "sshd"


def convert(fields: Fields) -> list[Object]:
    """The job."""
    for key in ("apiVersion", "kind"):
        fields.take(key)
    metadata, spec = foreign_common.metadata(fields), fields.into("spec")
    policy, beside = foreign_common.run_policy(spec.into("runPolicy"))
    roles = spec.into("mpiReplicaSpecs")
    if "Launcher" not in roles or "Worker" not in roles:
        raise CannotConvert(f"{roles.at('Launcher')} and Worker are needed, both")
    launcher, worker = roles.into("Launcher"), roles.into("Worker")
    slots = spec.take("slotsPerWorker", 1)
    implementation = str(spec.take("mpiImplementation", "OpenMPI"))
    if implementation not in _HOSTS:
        spec.remark("mpiImplementation", f"{implementation} is taken for OpenMPI")
    restarts = launcher.take("restartPolicy", worker.take("restartPolicy", "Never"))
    workers = worker.take("replicas", 1)
    pod = _worker(worker)
    line = _launch(launcher, pod, implementation)
    if not spec.take("runLauncherAsWorker", False):
        spec.remark("runLauncherAsWorker", "the launcher has no pod of its own: it is on worker-0")
    if spec.take("launcherCreationPolicy", "AtStartup") == "AtStartup":
        pass  # which is no difference: the launch waits for every worker's sshd
    told = {"sshAuthMountPath": "keys are mounted at a place of the job's own"}
    foreign_common.told(spec, told)
    roles.done()
    fields.done()
    config = {"slotsPerWorker": slots, "customCommand": line}
    entry = {"replicas": workers, "restartPolicy": restarts, "template": pod}
    return [
        foreign_common.job(
            "deepspeed", metadata, {"config": config, "worker": entry, **policy, **beside}
        )
    ]


def _worker(worker: Fields) -> Object:
    worker.take("restartPolicy")
    pod = foreign_common.template(worker, "worker")
    container = foreign_common.training(pod, ())
    if container is None:
        raise CannotConvert(f"{worker.at('template')} has no container")
    words = foreign_common.words_of(container)
    if words and _SSHD not in " ".join(words):
        worker.remark("template", f"its command is left out: {shlex.join(words)[:200]}")
    elif words:
        worker.remark("template", "its command is left out: the job starts sshd itself")
    worker.done()
    return pod


def _launch(launcher: Fields, worker: Object, implementation: str) -> str:
    """The line for worker-0; the environment of the launcher's container goes before it."""
    if launcher.take("replicas", 1) != 1:
        launcher.remark("replicas", "there is one launch")
    pod = foreign_common.template(launcher, "launcher")
    container = foreign_common.training(pod, ())
    if container is None:
        raise CannotConvert(f"{launcher.at('template')} has no container")
    words = foreign_common.words_of(container)
    if not words:
        raise CannotConvert(
            f"{launcher.at('template')} leaves the command to its image: write it there"
        )
    settings = container.pop("env", ())
    simple = {str(e["name"]): str(e["value"]) for e in settings if "value" in e}
    if len(simple) < len(settings):
        launcher.remark("template", "its variables from elsewhere (valueFrom) are left out")
    exports = "".join(f"export {k}={shlex.quote(v)}\n" for k, v in simple.items())
    _tell_rest(launcher, container, pod, worker)
    launcher.done()
    return exports + line(words, implementation)


def _tell_rest(launcher: Fields, container: Object, pod: Object, worker: Object) -> None:
    """The launcher runs in a worker's container: what its own had else counts no more."""
    own = foreign_common.training(worker, ()) or {}
    for key, value in container.items():
        if key != "name" and own.get(key) != value:
            launcher.remark("template", f"its container's {key} is left out: it runs on worker-0")
    others = {k: v for k, v in pod["spec"].items() if k != "containers"}
    for key, value in others.items():
        if worker["spec"].get(key) != value:
            launcher.remark("template", f"its spec.{key} is left out: it runs on worker-0")
    if len(pod["spec"].get("containers") or ()) > 1:
        launcher.remark("template", "its other containers are left out")
    if pod.get("metadata"):
        launcher.remark("template", "its metadata is left out")


def line(words: Sequence[str], implementation: str) -> str:
    """A command for worker-0, with the hosts that mpirun is to use."""
    if os.path.basename(words[0]) not in _LAUNCHERS:
        return _in_shell(words)
    option = _HOSTS.get(implementation, "--hostfile")
    head, tail = shlex.quote(words[0]), shlex.join(words[1:])
    return f'{head} {option} "$TRAINYARD_HOSTFILE" {tail}'.rstrip()


def _in_shell(words: Sequence[str]) -> str:
    """A script of a shell as itself; mpirun in it finds the hosts by a variable of OpenMPI."""
    name = os.path.basename(words[0])
    is_script = len(words) == 3 and name in ("sh", "bash") and words[1] in ("-c", "-lc", "-ec")
    text = words[2] if is_script else shlex.join(words)
    return f'export OMPI_MCA_orte_default_hostfile="$TRAINYARD_HOSTFILE"\n{text}'
