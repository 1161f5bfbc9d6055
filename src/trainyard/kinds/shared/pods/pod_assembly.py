"""Functions that turn a pod template into a replica's pod; all kinds use them.

They never change a template, and never copy a whole one: a pod shares with its template whatever it
does not change, so a pod of a large template costs little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainyard.kinds.shared import labels
from trainyard.kinds.shared.run_policy import ReplicaDebugSet, ResumeSpec
from trainyard.kinds.shared.workload import Manifest

Container = dict[str, Any]

POD_UID = "TRAINYARD_POD_UID"
ATTEMPT = "TRAINYARD_ATTEMPT"
"""Variable with the number of the job's attempt, from 1 on."""
UNBUFFERED = "PYTHONUNBUFFERED"
"""https://docs.python.org/3/using/cmdline.html#envvar-PYTHONUNBUFFERED"""

IDLE = ("sleep", "inf")
"""The command of a replica in debug mode, unless its entry has another."""


def default_env(attempt: int) -> dict[str, str]:
    """What every container of a job's pods has in its environment, unless its template sets it.

    Without `PYTHONUNBUFFERED` a Python holds back what it prints, and loses it when it is killed;
    images for Kubernetes set it, too.
    """
    return {UNBUFFERED: "1", ATTEMPT: str(attempt)}


def with_log_as_termination_message(container: Container) -> Container:
    """Make the last log lines the termination message, which the status quotes (decision 34)."""
    if "terminationMessagePolicy" in container:
        return container
    return {**container, "terminationMessagePolicy": "FallbackToLogsOnError"}


def change_container(pod: Manifest, name: str, **fields: Any) -> None:
    """Replace fields of one container of an assembled pod; None removes a field."""
    spec = pod["spec"]
    spec["containers"] = [
        _changed(container, fields) if container.get("name") == name else container
        for container in spec.get("containers", ())
    ]


def _changed(container: Container, fields: Mapping[str, Any]) -> Container:
    return {k: v for k, v in {**container, **fields}.items() if v is not None}


def put_env_first(pod: Manifest, env: Mapping[str, str], only: str = "") -> None:
    """Add variables to all containers, or to one, before those of the user, whose values win.

    Kubernetes expands `$(NAME)` only for variables further up the list (decision 14).
    """
    spec = pod["spec"]
    for field in ("initContainers", "containers"):
        if field in spec:
            spec[field] = [
                container if only and container.get("name") != only else _with_env(container, env)
                for container in spec[field]
            ]


def attempt_of(pod: Manifest) -> int:
    """The number of the attempt that an assembled pod belongs to."""
    return int(pod["metadata"]["annotations"][labels.ATTEMPT])


def with_uid(env: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The variables of a container with the UID of its pod first, once."""
    uid = {"name": POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    return [uid, *(each for each in env if each != uid)]


def add_mount(pod: Manifest, name: str, mount: Mapping[str, Any]) -> bool:
    """Mount a volume of ours into one container, unless it has something mounted there."""
    mounts = _mounts(pod, name)
    if mounts is None or is_mounted(pod, name, mount["mountPath"]):
        return False
    change_container(pod, name, volumeMounts=[*mounts, mount])
    return True


def is_mounted(pod: Manifest, name: str, path: str) -> bool:
    """Whether one container has something mounted there."""
    return any(each["mountPath"].rstrip("/") == path for each in _mounts(pod, name) or ())


def _mounts(pod: Manifest, name: str) -> Sequence[Mapping[str, Any]] | None:
    """The mounts of one container; None if there is no such container."""
    found = next((c for c in pod["spec"].get("containers", ()) if c.get("name") == name), None)
    return None if found is None else found.get("volumeMounts") or ()


def _with_env(container: Container, env: Mapping[str, str]) -> Container:
    given = container.get("env") or []
    taken = {entry.get("name") for entry in given}
    ours = [{"name": name, "value": value} for name, value in env.items() if name not in taken]
    return {**container, "env": [*ours, *given]}


# Debug mode and resume: what changes in a pod that would otherwise run the training.


def wait_for_developer(pod: Manifest, container: str, override: ReplicaDebugSet) -> None:
    """Let the training container wait for a developer (decision 29).

    Its probes and hooks go: probes would fail without the training, and hooks could start it.
    """
    change_container(
        pod,
        container,
        command=list(override.command or IDLE),
        args=None,
        livenessProbe=None,
        readinessProbe=None,
        startupProbe=None,
        lifecycle=None,
    )
    if override.skip_init_container:
        remove_init_containers(pod)


def apply_resume(pod: Manifest, container: str, override: ResumeSpec) -> None:
    """Give the training container the command that the user wants after a pause (decision 29)."""
    if override.skip_init_container:
        remove_init_containers(pod)
    change: dict[str, Any] = {}
    if override.command is not None:
        change["command"] = list(override.command)
    if override.args is not None:
        change["args"] = list(override.args)
    change_container(pod, container, **change)


def remove_init_containers(pod: Manifest) -> None:
    """Remove the init containers."""
    pod["spec"].pop("initContainers", None)
