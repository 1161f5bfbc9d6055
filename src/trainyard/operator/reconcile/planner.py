"""What plans for the kinds that the controller looks after: jobs one way, viewers another."""

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
"""What so many objects turn into is kept, of those looked at last: passes of one come in bursts."""


def served_kinds(settings: OperatorSettings) -> Sequence[Kind]:
    """Every kind that is looked after."""
    jobs = [k for k in JOB_KINDS.values() if not settings.kinds or k.kind in settings.kinds]
    viewers = [kind for kind in KINDS.values() if kind.is_viewer]
    return [*jobs, *(viewers if settings.serves_tensorboards else ())]


def watched_resources(
    settings: OperatorSettings,
) -> Mapping[Resource, Callable[[Mapping[str, Any]], Pod | Owned]]:
    """What the jobs of these kinds consist of, and how to decode it."""
    observed = observed_resources(settings.lifecycle)
    over_ssh = any(kind.launches_over_ssh for kind in served_kinds(settings))
    if over_ssh or settings.lifecycle.channel_address:  # a token to report by, evidence of hangs
        return observed
    return {each: d for each, d in observed.items() if each not in (CONFIG_MAPS, SECRETS)}


def preload_kinds() -> None:
    """Import now what planning needs: the first job would wait for it, most of a tenth of a second.

    An embedded cluster does without, as its one job may be of the only kind it ever meets.
    """
    from trainyard.kinds.kind_admission import admit

    for kind in JOB_KINDS.values():
        kind.load()
        admit({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x"}})


class Planner:
    """Says what to do for an object, and keeps what it turns into until its generation changes."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings.lifecycle
        self._open_templates = settings.open_templates
        self._made: OrderedDict[str, tuple[int, Any]] = OrderedDict()

    def plan(self, record: JobRecord, observed: Observed, now: datetime) -> Plan:
        """One pass over one object."""
        made = self._plan(record, observed, now)
        if (record.status or {}).get("phase") in FINAL_PHASES:
            self.forget(record.uid)  # few more passes will ask for it
        return made

    def pod_names(self, record: JobRecord) -> list[str]:
        """Of all pods that it may have, as of its generation."""
        made = self._turned_into(record)
        if isinstance(made, InvalidObject):
            return []
        return [made.pod_name] if record.kind.is_viewer else [name for _, _, name in made.roster]

    def _plan(self, record: JobRecord, observed: Observed, now: datetime) -> Plan:
        is_over = (record.status or {}).get("phase") in FINAL_PHASES
        if record.manager and (record.manager != MULTIKUEUE or is_over):
            return Plan(None)
        made = self._turned_into(record)
        if record.kind.is_viewer:
            # Imported for the first of them: few operators meet one.
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

    def _turned_into(self, record: JobRecord) -> Any:
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
        """What a stored object turns into, judged anew: it may be older than our rules."""
        # Decision 10.
        from trainyard.kinds.kind_admission import admit

        admission = admit(dict(record.raw), open_templates=self._open_templates)
        model: Any = admission.model
        if admission.errors or model is None:
            problems = tuple(problem.detail for problem in admission.errors)
            return InvalidObject(record.kind.kind, record.name, record.generation, problems)
        described = record.kind.describe(model, self._settings)
        if record.kind.is_viewer or not admission.warnings:
            return described
        # Who submitted the job may not have been told: not every server asks us for admission.
        warnings = tuple(p.detail for p in admission.warnings)
        return replace(described, warnings=(*described.warnings, *warnings))
