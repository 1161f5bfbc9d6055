"""What plans for each kind that the controller looks after: jobs one way, viewers another.

Each planner keeps what an object turns into, made anew only when its generation changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from trainyard.kinds.shared.job import Job
from trainyard.kinds.shared.workload import Workload
from trainyard.kinds.table import JOB_KINDS, KINDS, Kind
from trainyard.lifecycle.actions import Plan
from trainyard.lifecycle.invalid import Invalid, plan_invalid
from trainyard.lifecycle.observed import Observed
from trainyard.lifecycle.plan import plan
from trainyard.operator.records import JobRecord
from trainyard.operator.settings import OperatorSettings
from trainyard.schema.model import Model

T = TypeVar("T")


class Planner(Protocol):
    """Says what to do for the objects of some kinds."""

    def plan(self, record: JobRecord, observed: Observed, now: datetime) -> Plan:
        """One pass over one object."""
        ...

    def forget(self, uid: str) -> None:
        """The object is gone."""
        ...


def planners(settings: OperatorSettings) -> Mapping[Kind, Planner]:
    """A planner for every kind that is looked after."""
    found: dict[Kind, Planner] = dict.fromkeys(JOB_KINDS.values(), JobPlanner(settings))
    if settings.serves_tensorboards:
        viewers = [kind for kind in KINDS.values() if kind.is_viewer]
        found |= dict.fromkeys(viewers, BoardPlanner(settings))
    return found


class _Described(Generic[T]):
    """Descriptions by UID, each with the generation it was made from."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[int, T]] = {}

    def get(self, record: JobRecord) -> T | None:
        made = self._made.get(record.uid)
        current = made is not None and made[0] == record.generation and record.generation
        return made[1] if made is not None and current else None

    def put(self, record: JobRecord, described: T) -> T:
        self._made[record.uid] = (record.generation, described)
        return described

    def forget(self, uid: str) -> None:
        self._made.pop(uid, None)


# Decision 10.
class _Broken(tuple[str, ...]):
    """What is wrong with an object that was stored although it breaks rules, with paths."""

    __slots__ = ()


class JobPlanner:
    """Plans for jobs, whatever their kind."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings.lifecycle
        self._open_templates = settings.open_templates
        self._workloads: _Described[Workload | _Broken] = _Described()
        self.forget = self._workloads.forget

    def plan(self, record: JobRecord, observed: Observed, now: datetime) -> Plan:
        """See Planner."""
        workload = self._workloads.get(record)
        if workload is None:
            workload = self._workloads.put(record, self._describe(record))
        if isinstance(workload, _Broken):
            broken = Invalid(record.kind.kind, record.name, record.generation, workload)
            return plan_invalid(broken, record.status, now, observed.pods)
        return plan(workload, record.status, observed, now, self._settings)

    def _describe(self, record: JobRecord) -> Workload | _Broken:
        model = _admitted(record, self._open_templates)
        if isinstance(model, _Broken):
            return model
        assert isinstance(model, Job)
        return record.kind.describe(model, self._settings)


class BoardPlanner:
    """Plans for viewers. What it needs is imported for the first of them."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings.lifecycle
        self._open_templates = settings.open_templates
        self._boards: _Described[Any] = _Described()
        self.forget = self._boards.forget

    def plan(self, record: JobRecord, observed: Observed, now: datetime) -> Plan:
        """See Planner."""
        from trainyard.lifecycle.viewers import plan_invalid_viewer, plan_viewer

        board = self._boards.get(record)
        if board is None:
            made: Any = _admitted(record, self._open_templates)
            if not isinstance(made, _Broken):
                made = record.kind.describe(made, self._settings)
            board = self._boards.put(record, made)
        if isinstance(board, _Broken):
            broken = Invalid(record.kind.kind, record.name, record.generation, board)
            return plan_invalid_viewer(broken, record.status, now)
        return plan_viewer(board, record.status, observed, now, self._settings)


def _admitted(record: JobRecord, open_templates: bool) -> Model | _Broken:
    """The model of a stored object, judged anew: it may be older than our rules (decision 10)."""
    from trainyard.kinds.admission import admit

    # Lists leave apiVersion and kind out.
    head = {"apiVersion": record.kind.api_version, "kind": record.kind.kind}
    admission = admit({**record.raw, **head}, open_templates=open_templates)
    if admission.errors or admission.model is None:
        return _Broken(problem.detail for problem in admission.errors)
    return admission.model
