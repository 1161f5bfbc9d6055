"""What is wrong here, and what to do: every check is a function, and `CHECKS` lists them.

A check looks at one thing and yields what it found; it neither prints nor changes anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from trainyard.embedded import machine_checks
from trainyard.embedded.corrupt_objects import Damaged, read
from trainyard.embedded.doctor_findings import Found, Patient
from trainyard.embedded.resources.table import Resources
from trainyard.embedded.service_supervisor import SERVICE
from trainyard.embedded.storage.store import stored_rows
from trainyard.embedded.storage.writes import StorageError
from trainyard.machine.ownership import NotOurs, check_folder
from trainyard.machine.state_folder import record_problem, why_cluster_is_down


def _state_folder(patient: Patient) -> Iterator[Found]:
    folder = patient.paths.folder
    elsewhere = "set TRAINYARD_STATE_DIR to a folder of your own"
    if patient.no_folder:
        yield Found("state folder", "problem", patient.no_folder)
        return
    above = machine_checks.nearest(folder)
    if above != folder:
        if os.access(above, os.W_OK | os.X_OK):
            yield Found("state folder", "ok", f"{folder} does not exist yet")
        else:
            text = f"{folder} cannot be made, since {above} cannot be written to"
            yield Found("state folder", "problem", text, elsewhere)
        return
    if patient.is_guest:
        yield Found("state folder", "ok", f"{folder} is root's, who lets others use its cluster")
        return
    try:
        check_folder(folder, owner=True)
    except NotOurs as error:
        yield Found("state folder", "problem", str(error), elsewhere)
        return
    if os.access(folder, os.W_OK | os.X_OK):
        yield Found("state folder", "ok", f"{folder} is yours")
    else:
        fix = f"make it writable (chmod u+wx {folder}), or set TRAINYARD_STATE_DIR to another"
        yield Found("state folder", "problem", f"{folder} cannot be written to", fix)


def _cluster(patient: Patient) -> Iterator[Found]:
    found, paths = patient.cluster, patient.paths
    if patient.no_folder:
        return
    if found is not None and patient.silence:
        text = f"process {found.pid} is up, but does not answer: {patient.silence}"
        fix = f"see {paths.log}; if it stays so: kill -9 {found.pid}; trainyard up (replicas go on)"
        yield Found("cluster", "problem", text, fix)
    elif found is not None:
        yield Found("cluster", "ok", f"up: process {found.pid}, isolation {found.isolation}")
    elif problem := record_problem(paths):
        fix = f"it is ignored; remove it: rm {paths.record}"
        yield Found("cluster", "problem", f"{paths.record} cannot be read: {problem}", fix)
    elif why := why_cluster_is_down(paths):
        yield Found("cluster", "note", f"not up; {why}")
    else:
        yield Found("cluster", "ok", "not up; `trainyard up` starts one")


def _objects(patient: Patient) -> Iterator[Found]:
    if patient.is_guest or patient.no_folder:
        return
    damaged: Sequence[Mapping[str, str]] = patient.told.get("damaged", ())
    if patient.cluster is None and patient.paths.database.exists():
        try:
            rows = list(read(stored_rows(patient.paths.database), _resources(patient)))
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


def _resources(patient: Patient) -> Resources:
    return Resources(extension=patient.extension)


def _removal(patient: Patient, damaged: Mapping[str, str]) -> str:
    if _resources(patient).get(damaged["resource"]) is None:
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


CHECKS: tuple[Callable[[Patient], Iterator[Found]], ...] = (
    machine_checks.hardware,
    machine_checks.isolation,
    machine_checks.network,
    machine_checks.control_groups,
    machine_checks.gpus,
    machine_checks.python,
    machine_checks.launchers,
    machine_checks.shared_memory,
    machine_checks.disk,
    machine_checks.limits_of_user,
    machine_checks.kubectl,
    _state_folder,
    _cluster,
    _objects,
    _loops,
)


def examine(patient: Patient) -> Iterator[Found]:
    """What all checks find; one that fails itself holds up no other."""
    for check in CHECKS:
        try:
            yield from check(patient)
        except Exception as error:
            what = check.__name__.strip("_").replace("_", " ")
            yield Found(what, "problem", f"cannot be looked at: {type(error).__name__}: {error}")
