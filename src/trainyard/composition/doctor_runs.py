"""Runs the checks of `trainyard doctor`: of this machine, or of a cluster and its operator."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from trainyard.embedded.doctor_findings import DoctorContext
from trainyard.embedded.doctor_findings import DoctorFinding as DoctorFinding
from trainyard.embedded.doctor_findings import Python as Python
from trainyard.machine.state_folder import Paths, RunningCluster


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


def examine_cluster(
    kubeconfig: str | None, context: str | None, namespace: str | None, *, as_operator: bool
) -> list[DoctorFinding]:
    """Check a cluster of a kubeconfig and the operator on it."""
    from trainyard.operator.doctor.cluster_doctor import examine

    findings = examine(kubeconfig, context, namespace, as_operator=as_operator)
    return [DoctorFinding(*each) for each in asyncio.run(findings)]
