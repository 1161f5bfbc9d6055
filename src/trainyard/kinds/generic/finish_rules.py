"""Success and failure rules of a GenericJob: whom they name, and whether they can ever matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trainyard.kinds.generic.spec import FinishRule
from trainyard.kinds.shared.job_rules import unknown_type
from trainyard.kinds.shared.workload import ReplicaKey
from trainyard.schema.problems import Path, Problem, error, warning

_Replicas = frozenset[ReplicaKey]


def check(
    success: Sequence[FinishRule], failure: Sequence[FinishRule], counts: Mapping[str, int]
) -> Iterator[Problem]:
    """Every problem of the rules; those that are right but for their use are warned about."""
    for key, rules in (("successRules", success), ("failureRules", failure)):
        for index, rule in enumerate(rules):
            yield from _rule(rule, counts, ("spec", key, index))
        yield from _covered(key, [_replicas_of(rule) for rule in rules])
    yield from _ineffective(
        [_replicas_of(rule) for rule in success], [_replicas_of(rule) for rule in failure]
    )


def _rule(rule: FinishRule, counts: Mapping[str, int], path: Path) -> Iterator[Problem]:
    if not any(rule.values()):
        yield error(path, "names no replica; write for example {worker: [0]}")
        return
    for name, indexes in rule.items():
        here = (*path, name)
        if name not in counts:
            yield error(here, *unknown_type(name, counts))
            continue
        if not indexes:
            yield warning(here, f"names no {name}; to name all of them, list all their indexes")
        for position, index in enumerate(indexes):
            if index >= counts[name]:
                message = f"there is no {name}-{index}; {indexes_of(name, counts)}"
                yield error((*here, position), message)
            elif index in indexes[:position]:
                yield warning((*here, position), f"names {name}-{index} a second time")


def _replicas_of(rule: FinishRule) -> _Replicas:
    return frozenset(ReplicaKey(name, index) for name, each in rule.items() for index in each)


def _covered(key: str, rules: Sequence[_Replicas]) -> Iterator[Problem]:
    """A rule holds when all that it names have ended so; one that names fewer held before."""
    for index, rule in enumerate(rules):
        for other, smaller in enumerate(rules):
            is_equal = rule == smaller
            if rule and smaller and (smaller < rule or (is_equal and other < index)):
                what = "is the same" if is_equal else "names some of the same and holds before it"
                yield _never_matters(("spec", key, index), f"{key}[{other}] {what}")
                break


def _ineffective(success: Sequence[_Replicas], failure: Sequence[_Replicas]) -> Iterator[Problem]:
    """Failure rules that never decide: each decides only while a success rule can still be met
    (decision 23)."""
    for index, rule in enumerate(failure):
        if not rule or not all(success):
            continue
        path: Path = ("spec", "failureRules", index)
        if not success:
            yield _never_matters(
                path,
                "without successRules all replicas must succeed, so the job fails with the first "
                "that fails for good; add successRules with those that must succeed",
            )
        elif all(rule & needed for needed in success):
            yield _never_matters(
                path, "when it holds, no success rule can be met any more, and the job fails anyway"
            )


def _never_matters(path: Path, why: str) -> Problem:
    return warning(path, f"can never matter: {why}")


def indexes_of(name: str, counts: Mapping[str, int]) -> str:
    """Which replicas of a type there are."""
    count = counts[name]
    return f"{name} has the indexes 0 to {count - 1}" if count else f"{name} has no replicas"
