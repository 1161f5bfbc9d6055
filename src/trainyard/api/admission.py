"""Whether an object may be stored, and in which form.

The command line, the embedded API server, the webhook and the controller all call this; none has
rules of its own. ``check`` judges one object, ``admit`` also what an update may change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainyard.api import legacy, pod_schema
from trainyard.api.kinds import KINDS, Kind
from trainyard.api.model import Model
from trainyard.api.problems import Path, Problem, Severity, error, suggest
from trainyard.api.rules import rules_for
from trainyard.api.schema import describe
from trainyard.api.validation import validate

_MUTABLE: tuple[Path, ...] = (
    ("spec", "runMode", "pause", "enabled"),
    ("spec", "elastic", "expectedReplicas"),
)
"""What may change after a job was created."""
_IMMUTABLE = (
    "cannot be changed after creation (only runMode.pause.enabled and elastic.expectedReplicas "
    "can); delete the job and create it again"
)
_KEPT_FROM_OLD = ("maxReplicas", "expectedReplicas")


@dataclass(frozen=True, slots=True)
class Checked:
    """An object in today's spelling, its model when it has one, and its problems.

    ``model`` is None for core kinds, and where problems leave no usable model.
    """

    obj: dict[str, Any]
    model: Model | None
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that refuse the object."""
        return tuple(p for p in self.problems if p.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The other problems."""
        return tuple(p for p in self.problems if p.severity is Severity.WARNING)


@dataclass(frozen=True, slots=True)
class Admission:
    """The verdict on a create or update.

    ``obj`` is what to store, in today's spelling; ``model`` is None when there are errors.
    """

    obj: dict[str, Any]
    warnings: tuple[Problem, ...]
    errors: tuple[Problem, ...]
    model: Model | None

    @property
    def allowed(self) -> bool:
        """Whether the object may be stored."""
        return not self.errors


def admit(
    obj: dict[str, Any], old: dict[str, Any] | None = None, *, open_templates: bool = False
) -> Admission:
    """The verdict on creating ``obj``, or on replacing ``old`` by it; neither is changed.

    Objects of kinds that are not ours are admitted as they are. ``open_templates`` leaves fields
    unknown to the bundled pod schema to the cluster, which may be newer.
    """
    kind = KINDS.get(obj.get("kind", "")) if isinstance(obj.get("kind"), str) else None
    if kind is None:
        return Admission(obj, (), (), None)
    checked = check(obj, old, open_templates=open_templates)
    result, problems = checked.obj, list(checked.problems)
    if kind.elastic:
        result = _fill_elastic(result, old, checked.model)
    if old is not None and kind.is_job:
        changes = list(_changes(result, old, kind))
        if changes:
            normalised = legacy.normalise(obj, old)
            problems += [_moved(change, normalised) for change in changes]
    errors = tuple(p for p in problems if p.severity is Severity.ERROR)
    warnings = tuple(p for p in problems if p.severity is Severity.WARNING)
    model = None if errors else checked.model
    if model is not None and result is not checked.obj:
        model = kind.model.model_validate(result)
    return Admission(result, warnings, errors, model)


def check(obj: Any, old: dict[str, Any] | None = None, *, open_templates: bool = False) -> Checked:
    """Today's spelling, model and problems of one object; paths are those that the user wrote.

    See ``admit`` for ``old`` and ``open_templates``.
    """
    if not isinstance(obj, dict):
        return Checked({}, None, (error((), f"must be a mapping, not {describe(obj)}"),))
    if problem := _kind_problem(obj):
        return Checked(obj, None, (problem,))
    if obj["kind"] not in KINDS:
        return Checked(obj, None, tuple(pod_schema.check_core(obj)))
    normalised = legacy.normalise(obj, old)
    model, found = validate(normalised.obj, KINDS[obj["kind"]].model, open_templates=open_templates)
    if model is not None:
        known = {problem.path for problem in found}
        found += [p for p in rules_for(obj["kind"])(model) if not _covered(p.path, known)]
        if any(p.severity is Severity.ERROR for p in (*normalised.problems, *found)):
            model = None
    moved = [_moved(problem, normalised) for problem in found]
    return Checked(normalised.obj, model, (*normalised.problems, *moved))


def _covered(path: Path, known: set[Path]) -> bool:
    """Whether a problem is reported already at this place, inside or around it."""
    return any(path[: len(other)] == other or other[: len(path)] == path for other in known)


def _moved(problem: Problem, normalised: legacy.Normalised) -> Problem:
    written = normalised.written(problem.path)
    if written == problem.path:
        return problem
    return Problem(problem.severity, written, problem.message, problem.suggestion)


def _kind_problem(obj: dict[str, Any]) -> Problem | None:
    kind, version = obj.get("kind"), obj.get("apiVersion")
    if kind is None:
        return error(("kind",), "is required")
    if not isinstance(kind, str):
        return error(("kind",), f"must be a string, not {describe(kind)}")
    known = (*KINDS, *pod_schema.CORE_KINDS)
    if kind not in known:
        return error(("kind",), f"unknown kind '{kind[:80]}'", suggest(kind, known))
    wanted = KINDS[kind].api_version if kind in KINDS else "v1"
    if version is None:
        return error(("apiVersion",), f"is required; write {wanted}")
    if version != wanted:
        return error(("apiVersion",), f"must be {wanted} for {kind}, not {describe(version)}")
    return None


def _fill_elastic(
    obj: dict[str, Any], old: dict[str, Any] | None, model: Model | None
) -> dict[str, Any]:
    """Bounds that the user left open are fixed when the job is created and kept from then on."""
    spec = obj.get("spec")
    elastic = spec.get("elastic") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(elastic, dict) or not elastic.get("enabled"):
        return obj
    filled = dict(elastic)
    if old is not None:
        stored = legacy.normalise(old).obj.get("spec")
        before = stored.get("elastic") if isinstance(stored, dict) else None
        if isinstance(before, dict):
            kept = {key: before[key] for key in _KEPT_FROM_OLD if key in before}
            filled = kept | filled
    elif model is not None and (bounds := _bounds(model)) is not None:
        filled.setdefault("expectedReplicas", bounds[0])
        filled.setdefault("maxReplicas", bounds[1])
    return obj if filled == elastic else {**obj, "spec": {**spec, "elastic": filled}}


def _bounds(model: Model) -> tuple[int, int] | None:
    bounds = getattr(getattr(model, "spec", None), "elastic_range", None)
    return (bounds.expected, bounds.maximum) if bounds else None


def _changes(new: dict[str, Any], old: dict[str, Any], kind: Kind) -> Iterator[Problem]:
    """Changes of anything that is fixed once the job exists."""
    before = _comparable(legacy.normalise(old).obj, kind)
    after = _comparable(new, kind)
    for path in _differences(before, after, ()):
        if path not in _MUTABLE:
            yield error(path, _IMMUTABLE)
    count = ("spec", "elastic", "expectedReplicas")
    is_elastic = _value(after, ("spec", "elastic", "enabled"))
    if not is_elastic and _value(before, count) != _value(after, count):
        yield error(count, "cannot be used: the job is not elastic")


def _comparable(obj: dict[str, Any], kind: Kind) -> dict[str, Any]:
    """The spec with defaults written out, so that spelling out a default is no change."""
    spec = obj.get("spec")
    try:
        model = kind.model.model_validate({"kind": kind.kind, "spec": spec})
    except ValueError:  # an invalid stored object; compare it as it is
        return {"spec": spec if isinstance(spec, dict) else {}}
    return {"spec": model.dump_full()["spec"]}


def _value(obj: Any, path: Path) -> Any:
    for part in path:
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def _differences(old: Any, new: Any, path: Path) -> Iterator[Path]:
    """The outermost paths at which two objects differ, down to leaves where both have them."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            if key not in old or key not in new:
                if (*path, key) in _MUTABLE or old.get(key) != new.get(key):
                    yield (*path, key)
            else:
                yield from _differences(old[key], new[key], (*path, key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (left, right) in enumerate(zip(old, new, strict=True)):
            yield from _differences(left, right, (*path, index))
    elif old != new or type(old) is not type(new):
        yield path
