"""Runs the checks of `trainyard doctor`: of this machine, or of a cluster and its operator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from trainyard.embedded.doctor_findings import DoctorContext
from trainyard.embedded.doctor_findings import DoctorFinding as DoctorFinding
from trainyard.embedded.doctor_findings import Python as Python
from trainyard.machine.ownership import check_folder
from trainyard.machine.state_folder import Paths, RunningCluster, find_cluster
from trainyard.schema.errors import TrainyardError


def examine_machine(
    paths: Paths,
    cluster: RunningCluster | None,
    python: Python,
    *,
    folder_problem: str = "",
    cluster_findings: Mapping[str, Any],
    cluster_problem: str = "",
) -> list[DoctorFinding]:
    """Check this machine and the cluster in its state folder.

    `folder_problem`: why there is no state folder. `cluster_findings` is what the cluster that is
    up reports about itself; `cluster_problem`: why it did not answer.
    """
    from trainyard.composition.kinds_extension import EXTENSION
    from trainyard.embedded.doctor_checks import run_checks

    context = DoctorContext(
        paths, EXTENSION, cluster, cluster_findings, folder_problem, cluster_problem, python
    )
    return list(run_checks(context))


def restore_objects(paths: Paths) -> str:
    """Bring back what a damaged store held, and say what; raises TrainyardError.

    No cluster may be up in the folder.
    """
    from trainyard.embedded.storage.store_restoration import restore_store

    check_folder(paths.folder, owner=True)
    if (found := find_cluster(paths.folder)) is not None:
        raise TrainyardError(
            f"a cluster is up in {paths.folder} (process {found.pid}), whose objects are not "
            "touched; end it first: trainyard down"
        )
    if not paths.folder.is_dir():
        raise TrainyardError(f"there is no state folder {paths.folder}")
    paths.take_lock()
    restored = restore_store(paths.database)
    if restored is None:
        return f"every object in {paths.database} can be read: nothing was changed"
    copied = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(restored.backup_time))
    return (
        f"{restored.from_store} objects could still be read, {restored.from_backup} more are those "
        f"of the copy of {copied}: `trainyard up` goes on with them; what was submitted later is "
        f"in `trainyard history`, for `trainyard rerun`; the damaged file is kept as "
        f"{restored.damaged}"
    )


def examine_cluster(
    kubeconfig: str | None, context: str | None, namespace: str | None, *, as_operator: bool
) -> list[DoctorFinding]:
    """Check a cluster of a kubeconfig and the operator on it."""
    from trainyard.operator.doctor.cluster_doctor import examine

    findings = examine(kubeconfig, context, namespace, as_operator=as_operator)
    return [DoctorFinding(*each) for each in asyncio.run(findings)]
