"""Chooses what plans for an object: jobs go to `lifecycle.plan`, viewers to `lifecycle.viewer`.

The only place of the controller that knows kinds, by their row in the registry and never by name.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from trainyard.kinds.kind_registry import JOB_KINDS, KINDS, Kind
from trainyard.kinds.shared.scheduling.kueue_workload import MULTIKUEUE
from trainyard.kube.resources import CONFIG_MAPS, SECRETS, Resource
from trainyard.lifecycle.actions import Plan
from trainyard.lifecycle.completion.invalid_object import InvalidObject, plan_invalid
from trainyard.lifecycle.kueue.kueue_writes import plan_multikueue
from trainyard.lifecycle.observed import Observed, Owned, Pod, observed_resources
from trainyard.lifecycle.plan import plan
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.reconcile.job_records import JobRecord

FINAL_PHASES = ("Succeeded", "Failed")
_KEPT = 512
"""Descriptions that are kept, of the objects planned for last: reconciles come in bursts."""


def served_kinds(settings: OperatorSettings) -> Sequence[Kind]:
    """Every kind that an operator with these settings reconciles."""
    jobs = [k for k in JOB_KINDS.values() if not settings.kinds or k.kind in settings.kinds]
    viewers = [kind for kind in KINDS.values() if kind.is_viewer]
    return [*jobs, *(viewers if settings.serves_tensorboards else ())]


def watched_resources(
    settings: OperatorSettings,
) -> Mapping[Resource, Callable[[Mapping[str, Any]], Pod | Owned]]:
    """The resources that jobs of the served kinds own, each with its decoder."""
    observed = observed_resources(settings.lifecycle)
    over_ssh = any(kind.launches_over_ssh for kind in served_kinds(settings))
    if (
        over_ssh or settings.lifecycle.channel_address
    ):  # Secrets hold the token for reports, ConfigMaps the evidence of hangs
        return observed
    return {each: d for each, d in observed.items() if each not in (CONFIG_MAPS, SECRETS)}


def preload_kinds() -> None:
    """Import what planning needs, a tenth of a second, before the first job waits for it.

    An embedded cluster does not, since its one job may be of the only kind it ever meets.
    """
    from trainyard.kinds.kind_admission import admit

    for kind in JOB_KINDS.values():
        kind.load()
        admit({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x"}})


class Planner:
    """Plans for objects, and caches the description of each until its generation changes."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings.lifecycle
        self._open_templates = settings.open_templates
        self._made: OrderedDict[str, tuple[int, Any]] = OrderedDict()

    def plan(self, record: JobRecord, observed: Observed, now: datetime) -> Plan:
        """Compute the plan for one object, as of `now`."""
        made = self._plan(record, observed, now)
        if (record.status or {}).get("phase") in FINAL_PHASES:
            self.forget(record.uid)  # few more reconciles will need it
        return made

    def pod_names(self, record: JobRecord) -> list[str]:
        """The names of all pods that its current generation may have."""
        made = self._description(record)
        if isinstance(made, InvalidObject):
            return []
        return (
            [made.pod_name]
            if record.kind.is_viewer
            else [name for _, _, name in made.replicas_by_rank]
        )

    def _plan(self, record: JobRecord, observed: Observed, now: datetime) -> Plan:
        is_over = (record.status or {}).get("phase") in FINAL_PHASES
        if record.manager and (record.manager != MULTIKUEUE or is_over):
            return Plan(None)
        made = self._description(record)
        if record.kind.is_viewer:
            # Imported for the first viewer: few operators meet one.
            from trainyard.lifecycle.viewer.viewer_plan import plan_invalid_viewer, plan_viewer

            if isinstance(made, InvalidObject):
                return plan_invalid_viewer(made, record.status, now)
            return plan_viewer(made, record.status, observed, now, self._settings)
        if record.manager:
            return (
                Plan(None) if isinstance(made, InvalidObject) else plan_multikueue(made, observed)
            )
        if isinstance(made, InvalidObject):
            return plan_invalid(made, record.status, now, observed.pods)
        return plan(made, record.status, observed, now, self._settings)

    def _description(self, record: JobRecord) -> Any:
        generation, made = self._made.get(record.uid, (0, None))
        if not generation or generation != record.generation:
            made = self._describe(record)
            self._made[record.uid] = (record.generation, made)
            if len(self._made) > _KEPT:
                self._made.popitem(last=False)
        else:
            self._made.move_to_end(record.uid)
        return made

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._made.pop(uid, None)

    def _describe(self, record: JobRecord) -> Any:
        """The description of a stored object, validated anew, as it may be older than our rules.

        What they refuse becomes an `Invalid`, which fails the job (decision 10).
        """
        from trainyard.kinds.kind_admission import admit

        admission = admit(dict(record.raw), open_templates=self._open_templates)
        model: Any = admission.model
        if admission.errors or model is None:
            problems = tuple(problem.detail for problem in admission.errors)
            return InvalidObject(record.kind.kind, record.name, record.generation, problems)
        described = record.kind.describe(model, self._settings)
        if record.kind.is_viewer or not admission.warnings:
            return described
        # Users may not have seen the warnings: not every server asks us for admission.
        warnings = tuple(p.detail for p in admission.warnings)
        return replace(described, warnings=(*described.warnings, *warnings))
