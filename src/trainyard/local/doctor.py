"""What is wrong here, and what to do: every check is a function, and `CHECKS` lists them.

A check looks at one thing and yields what it found; it neither prints nor changes anything.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from trainyard.kube.embedded import Paths, RunningCluster, record_problem, why_down
from trainyard.kube.ownership import NotOurs, check_folder
from trainyard.local import limits
from trainyard.local.damaged import Damaged, read
from trainyard.local.findings import SERVICE
from trainyard.local.resources.table import RESOURCES
from trainyard.local.storage.store import StorageError, stored_rows

State = Literal["ok", "note", "problem"]
_LITTLE_ROOM, _NO_ROOM = 1 << 30, 64 << 20
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Found:
    """What a check found; `fix` says what to do where it is not ok."""

    check: str
    state: State
    text: str
    fix: str = ""

    def tell(self) -> dict[str, str]:
        """As JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Patient:
    """What is looked at: a state folder, and the cluster in it if one is up."""

    paths: Paths
    cluster: RunningCluster | None = None
    told: Mapping[str, Any] = field(default_factory=dict)
    """What the cluster says of itself (`/debug/findings`)."""

    @property
    def is_guest(self) -> bool:
        """Who asks uses a cluster of somebody else, and does not see what is kept of it."""
        return self.cluster is not None and not self.cluster.is_ours


def _state_folder(patient: Patient) -> Iterator[Found]:
    folder = patient.paths.folder
    if not folder.exists():
        yield Found("state folder", "ok", f"{folder} does not exist yet")
        return
    if patient.is_guest:
        yield Found("state folder", "ok", f"{folder} is root's, who lets others use its cluster")
        return
    try:
        check_folder(folder, owner=True)
    except NotOurs as error:
        fix = "set TRAINYARD_STATE_DIR to a folder of your own"
        yield Found("state folder", "problem", str(error), fix)
        return
    if os.access(folder, os.W_OK | os.X_OK):
        yield Found("state folder", "ok", f"{folder} is yours")
    else:
        fix = f"make it writable (chmod u+wx {folder}), or set TRAINYARD_STATE_DIR to another"
        yield Found("state folder", "problem", f"{folder} cannot be written to", fix)


def _cluster(patient: Patient) -> Iterator[Found]:
    found, paths = patient.cluster, patient.paths
    if found is not None:
        yield Found("cluster", "ok", f"up: process {found.pid}, isolation {found.isolation}")
    elif problem := record_problem(paths):
        fix = f"it is ignored; remove it: rm {paths.record}"
        yield Found("cluster", "problem", f"{paths.record} cannot be read: {problem}", fix)
    elif why := why_down(paths):
        yield Found("cluster", "note", f"not up; {why}")
    else:
        yield Found("cluster", "ok", "not up; `trainyard up` starts one")


def _isolation(patient: Patient) -> Iterator[Found]:
    if patient.cluster is None:
        return
    mode, reason = patient.cluster.isolation, patient.told.get("isolationReason", "")
    if not reason:
        yield Found("isolation", "ok", f"pods are separated: {mode}")
        return
    yield Found("isolation", "note", f"{mode}: {reason}", "docs/security.md says what this means")


def _objects(patient: Patient) -> Iterator[Found]:
    if patient.is_guest:
        return
    damaged: Sequence[Mapping[str, str]] = patient.told.get("damaged", ())
    if patient.cluster is None and patient.paths.database.exists():
        try:
            rows = list(read(stored_rows(patient.paths.database), RESOURCES))
        except StorageError as error:
            fix = "move the file away and start again"
            yield Found("objects", "problem", str(error), fix)
            return
        damaged = [row.tell() for row in rows if isinstance(row, Damaged)]
    if not damaged:
        yield Found("objects", "ok", "every stored object can be read")
    for each in damaged:
        place = f"{each['namespace']}/" if each["namespace"] else ""
        text = f"{each['resource']} {place}{each['name']} cannot be read: {each['problem']}"
        yield Found("objects", "problem", text, _removal(patient, each))


def _removal(patient: Patient, damaged: Mapping[str, str]) -> str:
    if RESOURCES.get(damaged["resource"]) is None:
        return "install the package of its kind again, or leave it: it is in nobody's way"
    scope = f" -n {damaged['namespace']}" if damaged["namespace"] else ""
    kubectl = f"kubectl --kubeconfig {patient.paths.kubeconfig}"
    start = "" if patient.cluster else "trainyard up; "
    return f"{start}{kubectl} delete {damaged['resource']} {damaged['name']}{scope}"


def _loops(patient: Patient) -> Iterator[Found]:
    for each in patient.told.get("failing", ()):
        place = f"{each['namespace']}/" if each["namespace"] else ""
        text = f"{each['loop']}: {each['kind']} {place}{each['name']}: {each['problem']}"
        if each["kind"] == SERVICE:
            fix = f"this is a defect of trainyard: please report it with {patient.paths.log}"
        else:
            fix = f"it is tried again; change or delete the object, and see {patient.paths.log}"
        yield Found("loops", "problem", f"{text} ({each['count']} times)", fix)


def _limits(patient: Patient) -> Iterator[Found]:
    files, left = limits.open_files(), limits.processes_left()
    if files is not None and files < limits.GOOD_FILES:
        state: State = "problem" if files < limits.LEAST_FILES else "note"
        text = f"the limit of open files (RLIMIT_NOFILE) is {files}"
        yield Found("limits", state, text, limits.RAISE_FILES)
    if left is not None and left < limits.GOOD_PROCESSES:
        state = "problem" if left < limits.LEAST_PROCESSES else "note"
        text = f"{max(left, 0)} more processes may be started (RLIMIT_NPROC)"
        yield Found("limits", state, text, limits.RAISE_PROCESSES)
    if all(
        each is None or each >= good
        for each, good in ((files, limits.GOOD_FILES), (left, limits.GOOD_PROCESSES))
    ):
        text = f"open files: {files or 'unlimited'}; more processes: {left or 'unlimited'}"
        yield Found("limits", "ok", text)


def _cgroups(patient: Patient) -> Iterator[Found]:
    version2 = _CGROUPS / "cgroup.controllers"
    places = [_CGROUPS] if version2.exists() else [_CGROUPS / "memory", _CGROUPS / "cpu"]
    if all(os.access(place / "cgroup.procs", os.W_OK) for place in places):
        yield Found("control groups", "ok", "CPU and memory limits of pods are enforced")
        return
    text = "control groups cannot be written here: CPU and memory limits are not enforced"
    yield Found("control groups", "note", text, "run as root, or where groups are delegated")


def _disk(patient: Patient) -> Iterator[Found]:
    folder = patient.paths.folder
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    text = f"{free / (1 << 30):.1f} GiB are free at {folder}"
    if free >= _LITTLE_ROOM:
        yield Found("disk", "ok", text)
    else:
        state: State = "problem" if free < _NO_ROOM else "note"
        yield Found("disk", state, text, "make room: objects and logs are written there")


CHECKS: tuple[Callable[[Patient], Iterator[Found]], ...] = (
    _state_folder,
    _cluster,
    _isolation,
    _objects,
    _loops,
    _limits,
    _cgroups,
    _disk,
)


def examine(patient: Patient) -> Iterator[Found]:
    """What all checks find; one that fails itself holds up no other."""
    for check in CHECKS:
        try:
            yield from check(patient)
        except Exception as error:
            what = check.__name__.strip("_").replace("_", " ")
            yield Found(what, "problem", f"cannot be looked at: {type(error).__name__}: {error}")
