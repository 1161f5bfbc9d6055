"""Rules of ``runPolicy.podFailurePolicy``: those of batch/v1, and those of our additions.

https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/batch/validation/validation.go
(validatePodFailurePolicy) (decision 114).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.kinds.shared import job_rules
from trainyard.kinds.shared.failure_policy.failure_policy_spec import (
    OnExitCodes,
    OnPodCondition,
    PodFailurePolicy,
    PodFailureRule,
)
from trainyard.kinds.shared.pods import pod_template_rules
from trainyard.schema.object_names import is_qualified_name
from trainyard.schema.problems import Path, Problem, error, suggest, warning

MOST_RULES = 20
MOST_PATTERNS = 20
"""The most entries of `onPodConditions` and of `onReasons`."""
MOST_VALUES = 255
HIGHEST_CODE = 255
"""The highest exit code of a process on Linux."""

_PATH: Path = ("spec", "runPolicy", "podFailurePolicy", "rules")
_FORMS = ("onExitCodes", "onPodConditions", "onReasons")
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?\Z", re.ASCII)
"""https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/ (Condition.reason)"""


def check_failure_policy(
    policy: PodFailurePolicy | None, templates: Mapping[str, Mapping[str, Any]]
) -> Iterator[Problem]:
    """Every problem of a policy; `templates` are the pod templates by replica type."""
    rules = policy.rules if policy else ()
    if len(rules) > MOST_RULES:
        yield error(_PATH, f"has {len(rules)} rules; at most {MOST_RULES} are allowed")
        return
    for index, rule in enumerate(rules):
        yield from _rule(rule, templates, (*_PATH, index))
        sooner = next((i for i, other in enumerate(rules[:index]) if _covers(other, rule)), None)
        if sooner is not None:
            message = f"never decides: rules[{sooner}] matches all that it would"
            yield warning((*_PATH, index), message)


def _covers(first: PodFailureRule, second: PodFailureRule) -> bool:
    """Whether the first rule matches everything that the second does."""
    if first.replica_types and not set(second.replica_types or [None]) <= set(first.replica_types):
        return False
    codes, others = first.on_exit_codes, second.on_exit_codes
    if codes is None or others is None:
        wanted, known = ({*each.on_pod_conditions, *each.on_reasons} for each in (second, first))
        return bool(wanted) and wanted <= known
    if codes.container_name != others.container_name:
        return False
    mine, theirs = set(codes.values), set(others.values)
    match codes.operator, others.operator:
        case "In", "In":
            return theirs <= mine
        case "NotIn", "In":
            return not theirs & mine
        case "NotIn", "NotIn":
            return mine <= theirs
        case _:
            return False


def _rule(
    rule: PodFailureRule, templates: Mapping[str, Mapping[str, Any]], path: Path
) -> Iterator[Problem]:
    given = [rule.on_exit_codes is not None, bool(rule.on_pod_conditions), bool(rule.on_reasons)]
    forms = [name for name, is_given in zip(_FORMS, given, strict=True) if is_given]
    if not forms:
        yield error(path, f"matches nothing; write one of {', '.join(_FORMS)}")
    elif len(forms) > 1:
        yield error(path, f"has {' and '.join(forms)}; make a rule of each")
    yield from _types(rule.replica_types, tuple(templates), (*path, "replicaTypes"))
    if rule.on_exit_codes is not None:
        wanted = rule.replica_types or tuple(templates)
        named = _containers(templates[name] for name in wanted if name in templates)
        yield from _exit_codes(rule.on_exit_codes, named, (*path, "onExitCodes"))
    yield from _conditions(rule.on_pod_conditions, (*path, "onPodConditions"))
    yield from _reasons(rule.on_reasons, (*path, "onReasons"))


def _types(named: Sequence[str], known: Sequence[str], path: Path) -> Iterator[Problem]:
    for index, name in enumerate(named):
        if name not in known:
            yield error((*path, index), *job_rules.unknown_type(name, known))
        elif name in named[:index]:
            yield error((*path, index), f"'{name}' is listed twice")


def _containers(templates: Iterator[Mapping[str, Any]]) -> list[str]:
    found = []
    for template in templates:
        init = (template.get("spec") or {}).get("initContainers") or ()
        found += [each["name"] for each in (*pod_template_rules.containers(template), *init)]
    return found


def _exit_codes(codes: OnExitCodes, containers: Sequence[str], path: Path) -> Iterator[Problem]:
    name = codes.container_name
    if name is not None and name not in containers:
        known = ", ".join(dict.fromkeys(containers)) or "none"
        message = f"there is no container '{name[:63]}' in the pods; they have {known}"
        yield error((*path, "containerName"), message, suggest(name, containers))
    values, here = codes.values, (*path, "values")
    if not 1 <= len(values) <= MOST_VALUES:
        yield error(here, f"has {len(values)} exit codes; 1 to {MOST_VALUES} are allowed")
        return
    for index, value in enumerate(values):
        place = (*here, index)
        if value == 0 and codes.operator == "In":
            yield error(place, "must not be 0 with In: an exit code 0 is no failure")
        elif value in values[:index]:
            yield error(place, f"{value} is listed twice")
        elif index and value < values[index - 1]:
            yield error(place, f"{value} comes after {values[index - 1]}; write them in order")
        elif not 0 <= value <= HIGHEST_CODE:
            yield warning(place, f"no process on Linux ends with {value}; 0 to {HIGHEST_CODE} do")


def _conditions(patterns: Sequence[OnPodCondition], path: Path) -> Iterator[Problem]:
    if len(patterns) > MOST_PATTERNS:
        yield error(path, f"has {len(patterns)} conditions; at most {MOST_PATTERNS} are allowed")
        return
    for index, pattern in enumerate(patterns):
        if not is_qualified_name(pattern.type):
            message = f"'{pattern.type[:80]}' is no type of a condition, such as DisruptionTarget"
            yield error((*path, index, "type"), message)


def _reasons(reasons: Sequence[str], path: Path) -> Iterator[Problem]:
    if len(reasons) > MOST_PATTERNS:
        yield error(path, f"has {len(reasons)} reasons; at most {MOST_PATTERNS} are allowed")
        return
    for index, reason in enumerate(reasons):
        if not _REASON.match(reason):
            yield error((*path, index), f"'{reason[:80]}' is no reason, such as OOMKilled")
