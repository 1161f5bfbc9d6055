"""Pods that stay after their command has failed (`payloads/in_place`), seen as what they are.

The container of such a pod runs, as its status says, and what trains in it has ended: so its end
is judged, counted and reported as that of any container. A new controller gets a report within a
second, and until then knows from status how it ended (decision 284).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from trainyard.kinds.shared.workload import Workload
from trainyard.lifecycle.observed import Observed, Pod
from trainyard.lifecycle.pod_reports import InPlaceReport

_UNKNOWN_TIME = datetime.min.replace(tzinfo=UTC)


def with_reported_ends(
    workload: Workload, observed: Observed, entries: Mapping[str, Mapping[str, Any]]
) -> Observed:
    """What was observed, with the ends that pods have reported, or that status has of them."""
    if workload.in_place is None:
        return observed
    reports = observed.reports.in_place
    pods = []
    for pod in observed.pods:
        report, entry = current_report(pod, reports.get(pod.name)), entries.get(pod.name)
        if report is None and entry is not None and pod.name not in reports:
            report = _report_from_status(workload, pod, entry)
        pods.append(_as_reported(workload, pod, report))
    return replace(observed, pods=tuple(pods))


def _report_from_status(
    workload: Workload, pod: Pod, entry: Mapping[str, Any]
) -> InPlaceReport | None:
    """Status says of no other attempt in this pod that it has failed; when, it does not say."""
    if entry.get("uid") != pod.uid or entry["phase"] != "Failed" or pod.phase != "Running":
        return None
    main = main_container(workload, pod)
    codes = (each.get("exitCode") for each in entry["containers"] if each["name"] == main)
    if not (code := next(codes, None)):
        return None
    return InPlaceReport(pod.uid, pod.attempt, _UNKNOWN_TIME, ended=True, code=code)


def current_report(pod: Pod, report: InPlaceReport | None) -> InPlaceReport | None:
    """The report, if it is about the pod's present attempt."""
    if report is None or (report.uid, report.attempt) != (pod.uid, pod.attempt):
        return None
    return report


def main_container(workload: Workload, pod: Pod) -> str | None:
    """The name of the container that trains in it."""
    found = workload.type_of.get(pod.type)
    return found.main_container if found is not None else None


def _as_reported(workload: Workload, pod: Pod, report: InPlaceReport | None) -> Pod:
    if report is None or not report.ended or not report.code or pod.phase != "Running":
        return pod
    name = main_container(workload, pod)
    main = pod.container(name) if name is not None else None
    if main is None or main.state != "Running":
        return pod
    ended = replace(
        main,
        state="Terminated",
        exit_code=report.code,
        reason="Error",
        message=report.message,
        ended=report.at,
        ready=False,
        since=None,
    )
    containers = tuple(ended if each is main else each for each in pod.containers)
    is_alone = all(each.is_init or each is main for each in pod.containers)
    return replace(
        pod,
        phase="Failed" if is_alone else pod.phase,
        containers=containers,
        container_statuses=[container.to_status() for container in containers],
        awaits_in_place_restart=True,
    )
