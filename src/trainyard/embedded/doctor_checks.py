"""The checks of `trainyard doctor`: every check is a function, and `CHECKS` lists them.

A check looks at one thing and yields findings; it neither prints nor changes anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from trainyard.embedded import machine_checks
from trainyard.embedded.corrupt_objects import CorruptObject, read_rows
from trainyard.embedded.doctor_findings import DoctorContext, DoctorFinding
from trainyard.embedded.resources.resource_table import Resources
from trainyard.embedded.service_supervisor import SERVICE
from trainyard.embedded.storage.row_writes import StorageError
from trainyard.embedded.storage.store import stored_rows
from trainyard.embedded.storage.store_backup import backup_path
from trainyard.machine.ownership import NotOurs, check_folder
from trainyard.machine.state_folder import StateError, record_problem, why_cluster_is_down


def _state_folder(context: DoctorContext) -> Iterator[DoctorFinding]:
    folder = context.paths.folder
    elsewhere = "set TRAINYARD_STATE_DIR to a folder of your own"
    if context.folder_problem:
        yield DoctorFinding("state folder", "problem", context.folder_problem)
        return
    above = machine_checks.nearest_existing(folder)
    if above != folder:
        if os.access(above, os.W_OK | os.X_OK):
            yield DoctorFinding("state folder", "ok", f"{folder} does not exist yet")
        else:
            text = f"{folder} cannot be made, since {above} cannot be written to"
            yield DoctorFinding("state folder", "problem", text, elsewhere)
        return
    if context.is_tenant:
        yield DoctorFinding(
            "state folder", "ok", f"{folder} is root's, who lets others use its cluster"
        )
        return
    try:
        check_folder(folder, owner=True)
        context.paths.check_kinds()
    except (NotOurs, StateError) as error:
        yield DoctorFinding("state folder", "problem", str(error), elsewhere)
        return
    if os.access(folder, os.W_OK | os.X_OK):
        yield DoctorFinding("state folder", "ok", f"{folder} is yours")
    else:
        fix = f"make it writable (chmod u+wx {folder}), or set TRAINYARD_STATE_DIR to another"
        yield DoctorFinding("state folder", "problem", f"{folder} cannot be written to", fix)


def _cluster(context: DoctorContext) -> Iterator[DoctorFinding]:
    found, paths = context.cluster, context.paths
    if context.folder_problem:
        return
    if found is not None and context.no_answer_reason:
        text = f"process {found.pid} is up, but does not answer: {context.no_answer_reason}"
        fix = f"see {paths.log}; if it stays so: kill -9 {found.pid}; trainyard up (replicas go on)"
        yield DoctorFinding("cluster", "problem", text, fix)
    elif found is not None:
        yield DoctorFinding(
            "cluster", "ok", f"up: process {found.pid}, isolation {found.isolation}"
        )
    elif problem := record_problem(paths):
        fix = f"it is ignored; remove it: rm {paths.record}"
        yield DoctorFinding("cluster", "problem", f"{paths.record} cannot be read: {problem}", fix)
    elif why := why_cluster_is_down(paths):
        yield DoctorFinding("cluster", "note", f"not up; {why}")
    else:
        yield DoctorFinding("cluster", "ok", "not up; `trainyard up` starts one")


def _objects(context: DoctorContext) -> Iterator[DoctorFinding]:
    if context.is_tenant or context.folder_problem:
        return
    damaged: Sequence[Mapping[str, str]] = context.debug_report.get("damaged", ())
    store = context.paths.database
    if context.cluster is None and (store.exists() or backup_path(store).exists()):
        try:
            rows = list(read_rows(stored_rows(store), _resources(context)))
        except StorageError as error:
            yield DoctorFinding("objects", "problem", str(error))
            return
        damaged = [row.as_json() for row in rows if isinstance(row, CorruptObject)]
    if not damaged:
        yield DoctorFinding("objects", "ok", "every stored object can be read")
    for each in damaged:
        place = f"{each['namespace']}/" if each["namespace"] else ""
        text = f"{each['resource']} {place}{each['name']} cannot be read: {each['problem']}"
        yield DoctorFinding("objects", "problem", text, _removal(context, each))


def _resources(context: DoctorContext) -> Resources:
    return Resources(extension=context.extension)


def _removal(context: DoctorContext, damaged: Mapping[str, str]) -> str:
    if _resources(context).get(damaged["resource"]) is None:
        return "install the package of its kind again, or leave it: it is in nobody's way"
    scope = f" -n {damaged['namespace']}" if damaged["namespace"] else ""
    kubectl = f"kubectl --kubeconfig {context.paths.kubeconfig}"
    start = "" if context.cluster else "trainyard up; "
    return f"{start}{kubectl} delete {damaged['resource']} {damaged['name']}{scope}"


def _loops(context: DoctorContext) -> Iterator[DoctorFinding]:
    for each in context.debug_report.get("failing", ()):
        place = f"{each['namespace']}/" if each["namespace"] else ""
        text = f"{each['loop']}: {each['kind']} {place}{each['name']}: {each['problem']}"
        if each["kind"] == SERVICE:
            fix = f"this is a defect of trainyard: please report it with {context.paths.log}"
        else:
            fix = f"it is tried again; change or delete the object, and see {context.paths.log}"
        yield DoctorFinding("loops", "problem", f"{text} ({each['count']} times)", fix)


CHECKS: tuple[Callable[[DoctorContext], Iterator[DoctorFinding]], ...] = (
    machine_checks.hardware,
    machine_checks.isolation,
    machine_checks.network,
    machine_checks.control_groups,
    machine_checks.gpus,
    machine_checks.python,
    machine_checks.launchers,
    machine_checks.shared_memory,
    machine_checks.disk,
    machine_checks.user_limits,
    machine_checks.kubectl,
    _state_folder,
    _cluster,
    _objects,
    _loops,
)


def run_checks(context: DoctorContext) -> Iterator[DoctorFinding]:
    """The findings of all checks; a check that raises becomes a finding itself."""
    for check in CHECKS:
        try:
            yield from check(context)
        except Exception as error:
            what = check.__name__.strip("_").replace("_", " ")
            yield DoctorFinding(
                what, "problem", f"cannot be looked at: {type(error).__name__}: {error}"
            )
