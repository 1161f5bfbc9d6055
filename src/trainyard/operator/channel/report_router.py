"""Connects the report channel with a controller: finds the job of a report, and hands it over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainyard.kinds.kind_registry import KINDS
from trainyard.kube.resources import PODS
from trainyard.lifecycle.observed import Pod
from trainyard.lifecycle.policy import PodReport
from trainyard.operator.channel.report_channel import ReportedJob
from trainyard.operator.channel.report_intake import pod_report_in
from trainyard.operator.reconcile.planner import FINAL_PHASES

if TYPE_CHECKING:
    from trainyard.operator.reconcile.controller import Controller


class ReportRouter:
    """Routes reports to one controller; implements ``report_channel.ReportListener``."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    @property
    def is_working(self) -> bool:
        """Whether the controller leads; a standby would lose reports."""
        return self._controller.is_working

    def find_job(self, plural: str, namespace: str, name: str, pod: str) -> ReportedJob | None:
        """The job that a report is about."""
        controller = self._controller
        stores = (store for kind, store in controller.jobs.items() if _has_plural(kind, plural))
        job = next((found for each in stores if (found := each.get(namespace, name))), None)
        if job is None or job.manager or not controller.looks_after(namespace):
            return None
        pod_record = controller.children[PODS].store.get(namespace, pod)
        ended = job.is_deleting or (job.status or {}).get("phase") in FINAL_PHASES
        return ReportedJob(
            job.uid, ended, pod_record is not None and pod_record.owner_uid == job.uid
        )

    def allows(self, uid: str, pod: str) -> bool:
        """Whether the rate limits of pod and job allow another report, which is then counted."""
        return self._controller.reports.allows(uid, pod)

    def receive(self, uid: str, pod: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take in a report; raises BadReport. A pod that tells a state gets its next instruction,
        which must come from the stored status."""
        answer = self._controller.reports.receive(uid, pod, body)
        report = pod_report_in(body)
        return answer if report is None else self._instruction(uid, pod, report)

    def _instruction(self, uid: str, pod: str, report: PodReport) -> Mapping[str, Any]:
        controller = self._controller
        key = controller.key_of(uid)
        job = controller.jobs[key.kind].get(key.namespace, key.name) if key is not None else None
        pod_record = (
            controller.children[PODS].store.get(key.namespace, pod) if key is not None else None
        )
        if job is None or not isinstance(pod_record, Pod):
            return {}
        return report.instruct(job.status or {}, pod_record)


def _has_plural(kind: str, plural: str) -> bool:
    return KINDS[kind].plural == plural
