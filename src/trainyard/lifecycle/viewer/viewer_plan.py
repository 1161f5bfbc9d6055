"""One pass over one viewer of logs: its pod, its Service, and their status (decision 38).

The pod restarts its own containers. It is replaced when its spec changes, and when it is lost for
good: evicted, deleted, or ended with its node.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.viewer import Viewer, ViewerCondition, ViewerPhase, ViewerReason
from trainyard.kube.resources import PODS, SERVICES
from trainyard.lifecycle.actions import Action, Create, Delete, Event, Plan
from trainyard.lifecycle.completion.invalid_object import InvalidObject
from trainyard.lifecycle.observed import Observed, Owned, Pod
from trainyard.lifecycle.pods import pod_deletion
from trainyard.lifecycle.pods.blocked_creations import BlockedCreations
from trainyard.lifecycle.status.conditions import Conditions
from trainyard.lifecycle.viewer import viewer_states
from trainyard.lifecycle.viewer.viewer_states import ViewerState
from trainyard.schema.dataclass import dataclass
from trainyard.schema.times import earliest

_RECREATE_SECONDS = 30.0
"""A pod that failed is kept this long from its creation, so that one that always fails (a node
without room evicts it again and again) is not created in a circle."""


def plan_viewer(
    viewer: Viewer,
    status: Mapping[str, Any] | None,
    observed: Observed,
    now: datetime,
    settings: Settings,
) -> Plan:
    """What to do for a viewer, and what its status then is."""
    pods = [pod for pod in observed.pods if pod.owner_uid == viewer.uid]
    pod = next((pod for pod in pods if pod.name == viewer.pod_name), None)
    owned = (o for o in observed.owned if o.owner_uid == viewer.uid and o.resource == SERVICES)
    seen = _ObservedViewer(viewer, pod, next(owned, None), now)
    actions, wake_at = seen.actions(BlockedCreations.from_observed(observed, settings))
    forced, later = pod_deletion.force_deletions(pods, now, settings)
    before = dict(status or {})
    new, events = seen.build_status(
        before, viewer_states.page_state(viewer, pod, observed), settings
    )
    return Plan(
        new if new != before else None, (*actions, *forced), events, earliest(wake_at, later)
    )


def plan_invalid_viewer(
    viewer: InvalidObject, status: Mapping[str, Any] | None, now: datetime
) -> Plan:
    """A viewer that breaks rules: what runs goes on running, and the paths are told."""
    before = dict(status or {})
    conditions = Conditions(before.get("conditions") or (), now)
    text = "the spec is invalid: " + "; ".join(viewer.problems)
    state = ViewerState(ViewerPhase.FAILED, ViewerReason.INVALID_SPEC, text, is_warning=True)
    events = _set_condition(conditions, ViewerCondition.READY, state, is_true=False)
    new = before | {
        "phase": str(state.phase),
        "conditions": conditions.encode(),
        "observedGeneration": viewer.generation,
    }
    return Plan(new if new != before else None, events=tuple(events))


@dataclass(frozen=True, slots=True)
class _ObservedViewer:
    """A viewer with what there is of it now."""

    viewer: Viewer
    pod: Pod | None
    service: Owned | None
    now: datetime

    def actions(self, blocked: BlockedCreations) -> tuple[list[Action], datetime | None]:
        """What to do, and when to look again."""
        viewer, pod = self.viewer, self.pod
        creates: list[Create] = []
        actions: list[Action] = []
        wake_at: datetime | None = None
        if self.service is None:
            build = partial(viewer.service.manifest, viewer.service.name)
            creates.append(Create(SERVICES, viewer.service.name, build))
        if pod is None:
            if self._wants_pod:
                creates.append(Create(PODS, viewer.pod_name, lambda: viewer.pod))
        elif pod.deleting is None:
            due = self._replaced_at(pod)
            if due is not None and due <= self.now:
                actions.append(Delete(PODS, pod.name, pod.uid))
            else:
                wake_at = due
        for create in creates:
            clear, until = blocked.may_create(create, self.now)
            if clear:
                actions.append(create)
            else:
                wake_at = earliest(wake_at, until)
        return actions, wake_at

    @property
    def _wants_pod(self) -> bool:
        return self.viewer.has_logs and not self.viewer.suspended

    def _replaced_at(self, pod: Pod) -> datetime | None:
        """When the pod has to go; None: it may stay."""
        if not self._wants_pod or pod.revision != self.viewer.revision:
            return self.now
        if pod.phase in ("Failed", "Succeeded"):
            return (pod.created or self.now) + timedelta(seconds=_RECREATE_SECONDS)
        return None

    def build_status(
        self, before: Mapping[str, Any], page: ViewerState, settings: Settings
    ) -> tuple[dict[str, Any], tuple[Event, ...]]:
        """The whole new status, and events."""
        conditions = Conditions(before.get("conditions") or (), self.now)
        is_up = page.phase is ViewerPhase.RUNNING
        events = _set_condition(conditions, ViewerCondition.READY, page, is_true=is_up)
        logs = viewer_states.logs_state(self.viewer, self.pod)
        is_served = logs.reason is ViewerReason.ALL_SERVED
        of_logs = _set_condition(conditions, ViewerCondition.LOGS_SERVED, logs, is_true=is_served)
        events += [event for event in of_logs if event.type == "Warning"]
        new = {
            **before,
            "phase": str(page.phase),
            "conditions": conditions.encode(),
            "observedGeneration": self.viewer.generation,
        }
        for key, value in (("pod", self._pod_status()), ("url", self._url(settings))):
            new.pop(key, None)
            if value:
                new[key] = value
        return new, tuple(events)

    def _pod_status(self) -> dict[str, Any] | None:
        pod = self.pod
        if pod is None:
            return None
        reference = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
        }
        return {"reference": reference, "phase": pod.phase}

    def _url(self, settings: Settings) -> str | None:
        viewer = self.viewer
        if self.service is None:
            return None
        host = settings.boards.node_port_host
        if not host:
            domain = f"{viewer.namespace}.svc.{settings.cluster_domain}"
            return f"http://{viewer.service.name}.{domain}:{viewer.port}"
        ports = (port.get("nodePort") for port in self.service.spec.get("ports") or ())
        node_port = next((port for port in ports if port), None)
        return f"http://{host}:{node_port}" if node_port else None


def _set_condition(
    conditions: Conditions, kind: ViewerCondition, state: ViewerState, *, is_true: bool
) -> list[Event]:
    """Set the condition; an event when it becomes true, and on every new trouble."""
    before = conditions.get(kind)
    was_true = before.get("status") == "True"
    conditions.set(kind, is_true, state.reason, state.message)
    if state.is_warning:
        known = (before.get("reason"), before.get("message")) == (state.reason, state.message)
        return [] if known else [Event("Warning", str(state.reason), state.message)]
    return [Event("Normal", str(state.reason), state.message)] if is_true and not was_true else []
