"""Kubeflow's MPIJob (kubeflow.org/v2beta1) as a DeepSpeedJob, whose `customCommand` runs mpirun.

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
    metadata, spec = foreign_common.metadata(fields), fields.mapping("spec")
    policy, beside = foreign_common.run_policy(spec.mapping("runPolicy"))
    roles = spec.mapping("mpiReplicaSpecs")
    if "Launcher" not in roles or "Worker" not in roles:
        raise CannotConvert(f"{roles.at('Launcher')} and Worker are needed, both")
    launcher, worker = roles.mapping("Launcher"), roles.mapping("Worker")
    slots = spec.take("slotsPerWorker", 1)
    implementation = str(spec.take("mpiImplementation", "OpenMPI"))
    if implementation not in _HOSTS:
        spec.add_note("mpiImplementation", f"{implementation} is taken for OpenMPI")
    restarts = launcher.take("restartPolicy", worker.take("restartPolicy", "Never"))
    workers = worker.take("replicas", 1)
    pod = _worker(worker)
    line = _launch(launcher, pod, implementation)
    if not spec.take("runLauncherAsWorker", False):
        spec.add_note(
            "runLauncherAsWorker", "the launcher has no pod of its own: it is on worker-0"
        )
    if spec.take("launcherCreationPolicy", "AtStartup") == "AtStartup":
        pass  # which is no difference: the launch waits for every worker's sshd
    reasons = {"sshAuthMountPath": "keys are mounted at a place of the job's own"}
    spec.drop_all(reasons)
    config = {"slotsPerWorker": slots, "customCommand": line}
    entry = {"replicas": workers, "restartPolicy": restarts, "template": pod}
    return [
        foreign_common.job(
            "deepspeed", metadata, {"config": config, "worker": entry, **policy, **beside}
        )
    ]


def _worker(worker: Fields) -> Object:
    worker.take("restartPolicy")
    pod = foreign_common.template(worker)
    container = foreign_common.training_container(pod)
    if container is None:
        raise CannotConvert(f"{worker.at('template')} has no container")
    words = foreign_common.take_command(container)
    if words and _SSHD not in " ".join(words):
        worker.add_note("template", f"its command is left out: {shlex.join(words)[:200]}")
    elif words:
        worker.add_note("template", "its command is left out: the job starts sshd itself")
    return pod


def _launch(launcher: Fields, worker: Object, implementation: str) -> str:
    """The script for worker-0: the variables of the launcher's container, then its command."""
    if launcher.take("replicas", 1) != 1:
        launcher.add_note("replicas", "there is one launch")
    pod = foreign_common.template(launcher)
    container = foreign_common.training_container(pod)
    if container is None:
        raise CannotConvert(f"{launcher.at('template')} has no container")
    words = foreign_common.take_command(container)
    if not words:
        raise CannotConvert(
            f"{launcher.at('template')} leaves the command to its image: write it there"
        )
    settings = container.pop("env", ())
    simple = {str(e["name"]): str(e["value"]) for e in settings if "value" in e}
    if len(simple) < len(settings):
        launcher.add_note("template", "its variables from elsewhere (valueFrom) are left out")
    exports = "".join(f"export {k}={shlex.quote(v)}\n" for k, v in simple.items())
    _note_differences(launcher, container, pod, worker)
    return exports + launch_command(words, implementation)


def _note_differences(launcher: Fields, container: Object, pod: Object, worker: Object) -> None:
    """Note what the launcher's pod has and worker-0, which runs its command, has not."""
    own = foreign_common.training_container(worker, ()) or {}
    for key, value in container.items():
        if key != "name" and own.get(key) != value:
            launcher.add_note("template", f"its container's {key} is left out: it runs on worker-0")
    others = {k: v for k, v in pod["spec"].items() if k != "containers"}
    for key, value in others.items():
        if worker["spec"].get(key) != value:
            launcher.add_note("template", f"its spec.{key} is left out: it runs on worker-0")
    if len(pod["spec"].get("containers") or ()) > 1:
        launcher.add_note("template", "its other containers are left out")
    if pod.get("metadata"):
        launcher.add_note("template", "its metadata is left out")


def launch_command(words: Sequence[str], implementation: str) -> str:
    """The shell command for worker-0, with the hostfile for mpirun."""
    if os.path.basename(words[0]) not in _LAUNCHERS:
        return _in_shell(words)
    option = _HOSTS.get(implementation, "--hostfile")
    head, tail = shlex.quote(words[0]), shlex.join(words[1:])
    return f'{head} {option} "$TRAINYARD_HOSTFILE" {tail}'.rstrip()


def _in_shell(words: Sequence[str]) -> str:
    """A shell's script, or another command; mpirun in it gets the hostfile by a variable."""
    name = os.path.basename(words[0])
    is_script = len(words) == 3 and name in ("sh", "bash") and words[1] in ("-c", "-lc", "-ec")
    text = words[2] if is_script else shlex.join(words)
    return f'export OMPI_MCA_orte_default_hostfile="$TRAINYARD_HOSTFILE"\n{text}'
