"""Whom the pods' channel speaks to: which job a report is about, and who hears of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trainyard.kinds.kind_registry import KINDS
from trainyard.kube.resources import PODS
from trainyard.lifecycle.in_place import in_place_restart
from trainyard.lifecycle.node_check import node_check_policy
from trainyard.lifecycle.observed import Pod
from trainyard.operator.channel.report_channel import ReportedJob
from trainyard.operator.channel.report_intake import HOLD, NODE_CHECK
from trainyard.operator.reconcile.planner import FINAL_PHASES

if TYPE_CHECKING:
    from trainyard.operator.reconcile.controller import Controller

Word = Callable[[Mapping[str, Any], Pod], Mapping[str, Any]]
"""What a pod is told, by the status of its job."""


class ReportRouter:
    """A controller's ear; implements ``channel.Listener``."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    @property
    def is_working(self) -> bool:
        """Whether it leads: what a standby hears would be lost."""
        return self._controller.is_working

    def find_job(self, plural: str, namespace: str, name: str, pod: str) -> ReportedJob | None:
        """The job that a report is about."""
        its = self._controller
        stores = (store for kind, store in its.jobs.items() if _is_of(kind, plural))
        job = next((found for each in stores if (found := each.get(namespace, name))), None)
        if job is None or job.manager or not its.looks_after(namespace):
            return None
        known = its.children[PODS].store.get(namespace, pod)
        ended = job.is_deleting or (job.status or {}).get("phase") in FINAL_PHASES
        return ReportedJob(job.uid, ended, known is not None and known.owner_uid == job.uid)

    def allows(self, uid: str, pod: str) -> bool:
        """Whether another report of the pod may come in now, which is then counted."""
        return self._controller.reports.allows(uid, pod)

    def receive(self, uid: str, pod: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take in a report; raises BadReport. What holds a pod, or tests its node, is answered by
        what is stored."""
        answer = self._controller.reports.receive(uid, pod, body)
        if HOLD in body:
            return self._word(uid, pod, in_place_restart.instruction_for_pod)
        return (
            self._word(uid, pod, node_check_policy.instruction_for_pod)
            if NODE_CHECK in body
            else answer
        )

    def _word(self, uid: str, pod: str, word: Word) -> Mapping[str, Any]:
        its = self._controller
        key = its.key_of(uid)
        job = its.jobs[key.kind].get(key.namespace, key.name) if key is not None else None
        known = its.children[PODS].store.get(key.namespace, pod) if key is not None else None
        if job is None or not isinstance(known, Pod):
            return {}
        return word(job.status or {}, known)


def _is_of(kind: str, plural: str) -> bool:
    return KINDS[kind].plural == plural
