"""Admission: whether an object may be stored, and in which form.

The command line, the embedded API server, the webhook and the controller all call this; none has
rules of its own. ``check`` judges one object, ``admit`` also what an update may change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from trainyard.kinds.kind_registry import KINDS, Kind
from trainyard.kinds.schema_validation import validate
from trainyard.kinds.shared import legacy_spellings
from trainyard.kinds.shared.job import MUTABLE
from trainyard.kinds.shared.legacy_spellings import value_at
from trainyard.schema import kubernetes_schemas
from trainyard.schema.dataclass import dataclass
from trainyard.schema.meta import ObjectMeta
from trainyard.schema.model import Model
from trainyard.schema.problems import Path, Problem, WithProblems, error, suggest
from trainyard.schema.structural_schema import describe

_IMMUTABLE = (
    f"cannot be changed after creation (only {' and '.join('.'.join(p[1:]) for p in MUTABLE)} "
    "can); delete the job and create it again"
)
_FIXED_AT_CREATION = ("maxReplicas", "expectedReplicas")


@dataclass(frozen=True, slots=True)
class AdmissionResult(WithProblems):
    """The verdict on an object, which is in today's spelling.

    ``model`` is None for core kinds, and where there are errors.
    """

    obj: dict[str, Any]
    model: Model | None
    problems: tuple[Problem, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether the object may be stored."""
        return not self.errors


def admit(
    obj: dict[str, Any], old: dict[str, Any] | None = None, *, open_templates: bool = False
) -> AdmissionResult:
    """The verdict on creating ``obj``, or on replacing ``old`` by it; neither is changed.

    Objects of kinds that are not ours are admitted as they are. ``open_templates`` leaves fields
    unknown to the bundled pod schema to the cluster, which may be newer (decision 10).
    """
    kind = KINDS.get(obj.get("kind", "")) if isinstance(obj.get("kind"), str) else None
    if kind is None:
        return AdmissionResult(obj, None)
    judged = _judge(obj, old, open_templates)
    checked = judged.checked
    result, problems = checked.obj, [*_type_problems(obj), *checked.problems]
    if kind.elastic and old is None:
        result = _fill_elastic(result, checked.model)
    if old is not None and kind.is_job and judged.usable is not None:
        faulty = {p.path for p in checked.errors}
        changes = (
            _at_written_path(p, judged.normalised) for p in _changes(judged.usable, old, kind)
        )
        problems += [change for change in changes if not _is_reported(change.path, faulty)]
    verdict = AdmissionResult(result, checked.model, tuple(problems))
    if not verdict.allowed:
        return replace(verdict, model=None)
    if checked.model is not None and result is not checked.obj:
        return replace(verdict, model=kind.model.model_validate(result))
    return verdict


def check(obj: Any, *, open_templates: bool = False) -> AdmissionResult:
    """Today's spelling, model and problems of one object; paths are those that the user wrote.

    See ``admit`` for ``open_templates``.
    """
    if not isinstance(obj, dict):
        return AdmissionResult({}, None, (error((), f"must be a mapping, not {describe(obj)}"),))
    if not (problems := _type_problems(obj)):
        if obj["kind"] not in KINDS:
            return AdmissionResult(obj, None, tuple(kubernetes_schemas.check_core(obj)))
        return _judge(obj, None, open_templates).checked
    intended = _as_intended(obj, problems)
    if intended is not None:  # report all problems at once (decision 1)
        judged = check(intended, open_templates=open_templates)
        return AdmissionResult(
            {**judged.obj, **_type_fields(obj)}, None, (*problems, *judged.problems)
        )
    return AdmissionResult(obj, None, tuple(problems))


@dataclass(frozen=True, slots=True)
class _Judged:
    """``usable`` is a model even of a faulty object, if one is left without its faulty places."""

    checked: AdmissionResult
    normalised: legacy_spellings.Normalised
    usable: Model | None


def _judge(obj: dict[str, Any], old: dict[str, Any] | None, open_templates: bool) -> _Judged:
    """An object of a served kind; see ``admit`` for ``old`` and ``open_templates``."""
    kind = KINDS[obj["kind"]]
    normalised = legacy_spellings.normalise(obj, kind.legacy, old)
    if kind.elastic and old is not None:
        normalised.obj = _keep_elastic(normalised.obj, old, kind)
    usable, found, missing = validate(normalised.obj, kind, open_templates=open_templates)
    beyond = kind.rules(usable) if usable is not None else _name_problems(normalised.obj, kind)
    found += [p for p in beyond if not _is_reported(p.path, missing)]
    problems = (*normalised.problems, *(_at_written_path(problem, normalised) for problem in found))
    checked = AdmissionResult(normalised.obj, usable, problems)
    if not checked.allowed:
        checked = replace(checked, model=None)
    return _Judged(checked, normalised, usable)


def _name_problems(obj: dict[str, Any], kind: Kind) -> list[Problem]:
    """What is wrong with the name of an object that is too faulty for the kind's own rules."""
    from trainyard.kinds.shared import job_rules
    from trainyard.kinds.shared.scheduling import scheduling_object

    try:
        metadata = ObjectMeta.model_validate(obj.get("metadata") or {})
    except ValueError:  # told as a fault of its structure
        return []
    if kind.is_job or kind.is_viewer:
        return list(job_rules.check_name(metadata, ()))
    return scheduling_object.check_name(metadata)


def _is_reported(path: Path, known: set[Path]) -> bool:
    """Whether a problem is reported already at this place, inside or around it."""
    return any(path[: len(other)] == other or other[: len(path)] == path for other in known)


def _at_written_path(problem: Problem, normalised: legacy_spellings.Normalised) -> Problem:
    """The problem at the path that the user wrote."""
    return replace(problem, path=normalised.written(problem.path))


def _type_problems(obj: dict[str, Any]) -> list[Problem]:
    kind, version = obj.get("kind"), obj.get("apiVersion")
    if kind is None:
        return [error(("kind",), "is required")]
    if not isinstance(kind, str):
        return [error(("kind",), f"must be a string, not {describe(kind)}")]
    if kind not in KINDS and kind not in kubernetes_schemas.CORE_KINDS:
        known = (*KINDS, *kubernetes_schemas.CORE_KINDS)
        close = suggest(kind, (*known, *(f"{name}List" for name in known)))
        others = "" if close else f"; known are {', '.join(known)} and lists of them"
        return [error(("kind",), f"unknown kind '{kind[:80]}'{others}", close)]
    wanted = _version_of(kind)
    if version is None:
        return [error(("apiVersion",), f"is required; write {wanted}")]
    if version != wanted:
        return [error(("apiVersion",), f"must be {wanted} for {kind}, not {describe(version)}")]
    return []


def _version_of(kind: str) -> str:
    return KINDS[kind].api_version if kind in KINDS else "v1"


def _as_intended(obj: dict[str, Any], problems: list[Problem]) -> dict[str, Any] | None:
    """The object with the kind and version that its user probably intended; None if unknown."""
    kind = problems[0].suggestion if problems[0].path == ("kind",) else obj["kind"]
    return {**obj, "kind": kind, "apiVersion": _version_of(kind)} if kind in KINDS else None


def _type_fields(obj: dict[str, Any]) -> dict[str, Any]:
    return {key: obj[key] for key in ("apiVersion", "kind") if key in obj}


def _fill_elastic(obj: dict[str, Any], model: Model | None) -> dict[str, Any]:
    """Bounds that the user left open are fixed when the job is created (decision 8)."""
    bounds = getattr(getattr(model, "spec", None), "elastic_range", None)
    if bounds is None:
        return obj
    elastic = dict(obj["spec"]["elastic"])
    elastic.setdefault("expectedReplicas", bounds.expected)
    elastic.setdefault("maxReplicas", bounds.maximum)
    return {**obj, "spec": {**obj["spec"], "elastic": elastic}}


def _keep_elastic(obj: dict[str, Any], old: dict[str, Any], kind: Kind) -> dict[str, Any]:
    """Bounds that an update leaves open stay as they were fixed at creation (decision 8)."""
    elastic = value_at(obj, ("spec", "elastic"))
    before = value_at(legacy_spellings.normalise(old, kind.legacy).obj, ("spec", "elastic"))
    if not isinstance(elastic, dict) or not isinstance(before, dict) or not elastic.get("enabled"):
        return obj
    kept = {key: before[key] for key in _FIXED_AT_CREATION if key in before}
    return {**obj, "spec": {**obj["spec"], "elastic": kept | elastic}}


def _changes(new: Model, old: dict[str, Any], kind: Kind) -> Iterator[Problem]:
    """Changes of anything that is fixed once the job exists (decision 8)."""
    before = _stored(legacy_spellings.normalise(old, kind.legacy).obj, kind)
    after = {"spec": new.dump_full()["spec"]}
    for path in _differences(before, after, ()):
        if path not in MUTABLE:
            yield error(path, _IMMUTABLE)
    count = ("spec", "elastic", "expectedReplicas")
    is_elastic = value_at(after, ("spec", "elastic", "enabled"))
    if not is_elastic and value_at(before, count) != value_at(after, count):
        yield error(count, "cannot be used: the job is not elastic")


def _stored(obj: dict[str, Any], kind: Kind) -> dict[str, Any]:
    """The spec with defaults written out, so that spelling out a default is no change (decision
    8)."""
    spec = obj.get("spec")
    try:
        model = kind.model.model_validate({"kind": kind.kind, "spec": spec})
    except ValueError:  # an invalid stored object; compare it as it is
        return {"spec": spec if isinstance(spec, dict) else {}}
    return {"spec": model.dump_full()["spec"]}


def _differences(old: Any, new: Any, path: Path) -> Iterator[Path]:
    """The outermost paths at which two objects differ, down to leaves where both have them."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            if key not in old or key not in new:
                if (*path, key) in MUTABLE or old.get(key) != new.get(key):
                    yield (*path, key)
            else:
                yield from _differences(old[key], new[key], (*path, key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (left, right) in enumerate(zip(old, new, strict=True)):
            yield from _differences(left, right, (*path, index))
    elif old != new or type(old) is not type(new):
        yield path
