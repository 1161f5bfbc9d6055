"""`runPolicy.podFailurePolicy` is judged as batch/v1 judges its own (decision 114)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.kinds import manifests as m

from trainyard.kinds.kind_admission import admit, check

Rule = dict[str, Any]
RULES = "spec.runPolicy.podFailurePolicy.rules"
ONE_OF = "must be one of "
INIT = {"name": "fetch", "image": "i"}


def rule(action: str | None = "FailJob", /, **on: Any) -> Rule:
    return {"action": action, **on} if action is not None else on


def codes(*values: Any, operator: str | None = "In", **more: Any) -> dict[str, Any]:
    given = {"operator": operator} if operator is not None else {}
    return {"onExitCodes": {**given, "values": list(values), **more}}


def conditions(*patterns: dict[str, str]) -> dict[str, Any]:
    return {"onPodConditions": list(patterns)}


TARGET = {"type": "DisruptionTarget", "status": "True"}

REFUSED: dict[str, tuple[list[Rule], dict[str, str]]] = {
    "the same value twice": (
        [rule(**codes(11, 11))],
        {"[0].onExitCodes.values[1]": "11 is listed twice"},
    ),
    "too many values": (
        [rule(**codes(*range(1, 257)))],
        {"[0].onExitCodes.values": "has 256 exit codes; 1 to 255 are allowed"},
    ),
    "too many rules": ([rule(**codes(1))] * 21, {"": "has 21 rules; at most 20 are allowed"}),
    "too many conditions": (
        [rule(**conditions(*({**TARGET, "type": f"Custom_{i}"} for i in range(21))))],
        {"[0].onPodConditions": "has 21 conditions; at most 20 are allowed"},
    ),
    "values again and again": (
        [rule(**codes(12, 13, 13, 13))],
        {
            "[0].onExitCodes.values[2]": "13 is listed twice",
            "[0].onExitCodes.values[3]": "13 is listed twice",
        },
    ),
    "out of order": (
        [rule(**codes(19, 11))],
        {"[0].onExitCodes.values[1]": "11 comes after 19; write them in order"},
    ),
    "no value": (
        [rule(**codes())],
        {"[0].onExitCodes.values": "has 0 exit codes; 1 to 255 are allowed"},
    ),
    "no action": ([rule(None, **codes(1))], {"[0].action": "is required"}),
    "unknown action": (
        [rule("FailIndex", **codes(1))],
        {"[0].action": ONE_OF + "FailJob, Ignore, Count, Restart, not the string 'FailIndex'"},
    ),
    "no operator": (
        [rule(**codes(1, operator=None))],
        {"[0].onExitCodes.operator": "is required"},
    ),
    "unknown operator": (
        [rule(**codes(1, operator="UnknownOperator"))],
        {"[0].onExitCodes.operator": "must be one of In, NotIn, not the string 'UnknownOperator'"},
    ),
    "two at once": (
        [rule(**codes(1), **conditions(TARGET))],
        {"[0]": "has onExitCodes and onPodConditions; make a rule of each"},
    ),
    "ours at once": (
        [rule(**codes(1), onReasons=["OOMKilled"])],
        {"[0]": "has onExitCodes and onReasons; make a rule of each"},
    ),
    "none": (
        [rule("Ignore")],
        {"[0]": "matches nothing; write one of onExitCodes, onPodConditions, onReasons"},
    ),
    "0 with In": (
        [rule(**codes(0, 2))],
        {"[0].onExitCodes.values[0]": "must not be 0 with In: an exit code 0 is no failure"},
    ),
    "unknown container": (
        [rule(**codes(1)), rule(**codes(5, containerName="mian"))],
        {
            "[1].onExitCodes.containerName": "there is no container 'mian' in the pods; they have "
            "main, fetch; did you mean 'main'?"
        },
    ),
    "unknown status": (
        [rule(**conditions({**TARGET, "status": "Yes"}))],
        {"[0].onPodConditions[0].status": ONE_OF + "True, False, Unknown, not the string 'Yes'"},
    ),
    "a status without quotes": (
        [rule(**conditions({"type": "DisruptionTarget", "status": True}))],  # type: ignore[dict-item]
        {
            "[0].onPodConditions[0].status": ONE_OF
            + "True, False, Unknown, not true; did you mean 'True'?"
        },
    ),
    "no type": (
        [rule(**conditions({"status": "True"}))],
        {"[0].onPodConditions[0].type": "is required"},
    ),
    "an impossible type": (
        [rule(**conditions({**TARGET, "type": "Invalid Condition Type"}))],
        {
            "[0].onPodConditions[0].type": "'Invalid Condition Type' is no type of a condition, "
            "such as DisruptionTarget"
        },
    ),
    "no reason": (
        [rule(onReasons=["OOM killed"])],
        {"[0].onReasons[0]": "'OOM killed' is no reason, such as OOMKilled"},
    ),
    "too many reasons": (
        [rule(onReasons=[f"R{i}" for i in range(21)])],
        {"[0].onReasons": "has 21 reasons; at most 20 are allowed"},
    ),
    "an unknown type of replica": (
        [rule(**codes(1), replicaTypes=["worker", "wroker", "worker"])],
        {
            "[0].replicaTypes[1]": "there is no replica type 'wroker'; the job has worker; did you "
            "mean 'worker'?",
            "[0].replicaTypes[2]": "'worker' is listed twice",
        },
    ),
    "an unknown field": (
        [rule(**codes(1), onExitCode={})],
        {"[0].onExitCode": "unknown field; did you mean 'onExitCodes'?"},
    ),
}


def pytorch(rules: list[Rule]) -> dict[str, Any]:
    obj = m.pytorch(runPolicy={"podFailurePolicy": {"rules": rules}})
    return m.changed(obj, "spec.replicaSpecs.0.template.spec.initContainers", [INIT])


@pytest.mark.parametrize(("rules", "problems"), REFUSED.values(), ids=list(REFUSED))
def test_what_kubernetes_refuses_is_refused(rules: list[Rule], problems: dict[str, str]) -> None:
    """The cases of TestValidateJob (pkg/apis/batch/validation) about it, and ours."""
    found = {p.where: p.detail.removeprefix(f"{p.where}: ") for p in check(pytorch(rules)).errors}
    assert found == {f"{RULES}{path}": text for path, text in problems.items()}


ACCEPTED: dict[str, list[Rule]] = {
    "one of each sort": [
        rule("FailJob", **codes(1, 2, 3)),
        rule("Ignore", **codes(0, 4, operator="NotIn", containerName="main")),
        rule("Count", **codes(7, containerName="fetch")),
        rule("Ignore", **conditions(TARGET, {"type": "example.com/Custom", "status": "Unknown"})),
        rule("Restart", onReasons=["OOMKilled", "Evicted"], replicaTypes=["worker"]),
    ],
    "the status has a default": [rule("Ignore", **conditions({"type": "DisruptionTarget"}))],
    "as many as may be": [rule(**codes(*range(i + 1, 237 + i))) for i in range(20)],
    "as many codes as may be": [rule(**codes(*range(1, 256)))],
    "no rule": [],
}


@pytest.mark.parametrize("rules", ACCEPTED.values(), ids=list(ACCEPTED))
def test_what_kubernetes_takes_is_taken(rules: list[Rule]) -> None:
    assert [p.detail for p in check(pytorch(rules)).problems] == []


@pytest.mark.parametrize("build", m.BUILDERS.values(), ids=list(m.BUILDERS))
def test_every_kind_has_one_and_keeps_it(build: Callable[..., dict[str, Any]]) -> None:
    old = build(runPolicy={"podFailurePolicy": {"rules": [rule(**codes(1))]}})
    new = build(runPolicy={"podFailurePolicy": {"rules": [rule("Ignore", **codes(1))]}})
    assert admit(old).allowed
    (problem,) = admit(new, old).errors
    assert problem.where == f"{RULES}[0].action"
    wrong = build(runPolicy={"podFailurePolicy": {"rules": [rule(replicaTypes=["nobody"])]}})
    assert {p.where for p in check(wrong).errors} == {f"{RULES}[0]", f"{RULES}[0].replicaTypes[0]"}


def test_a_container_is_looked_for_in_the_types_of_the_rule() -> None:
    both = [rule(**codes(1, containerName="launcher"))]
    workers = [rule(**codes(1, containerName="launcher"), replicaTypes=["worker"])]
    assert not check(m.colossalai(runPolicy={"podFailurePolicy": {"rules": both}})).errors
    (problem,) = check(m.colossalai(runPolicy={"podFailurePolicy": {"rules": workers}})).errors
    assert "they have worker" in problem.message


@pytest.mark.parametrize("code", [-1, 256])
def test_an_exit_code_that_no_process_has_is_warned_about(code: int) -> None:
    (problem,) = check(pytorch([rule(**codes(code))])).warnings
    assert problem.where == f"{RULES}[0].onExitCodes.values[0]"
    assert f"no process on Linux ends with {code}" in problem.message


NEVER_DECIDE: dict[str, tuple[Rule, Rule, bool]] = {
    "some of the same codes": (rule(**codes(1, 2)), rule(**codes(2)), True),
    "another code": (rule(**codes(1, 2)), rule(**codes(2, 3)), False),
    "a code of NotIn": (rule(**codes(1, operator="NotIn")), rule(**codes(2)), True),
    "the code that NotIn leaves": (rule(**codes(1, operator="NotIn")), rule(**codes(1)), False),
    "NotIn of more": (
        rule(**codes(1, operator="NotIn")),
        rule(**codes(1, 2, operator="NotIn")),
        True,
    ),
    "NotIn of less": (
        rule(**codes(1, 2, operator="NotIn")),
        rule(**codes(1, operator="NotIn")),
        False,
    ),
    "NotIn after In": (rule(**codes(1)), rule(**codes(1, operator="NotIn")), False),
    "another container": (rule(**codes(1)), rule(**codes(1, containerName="main")), False),
    "the same condition": (rule(**conditions(TARGET)), rule(**conditions(TARGET)), True),
    "another status": (
        rule(**conditions(TARGET)),
        rule(**conditions({**TARGET, "status": "False"})),
        False,
    ),
    "the same reason": (rule(onReasons=["A", "B"]), rule(onReasons=["B"]), True),
    "another reason": (rule(onReasons=["A"]), rule(onReasons=["A", "B"]), False),
    "of another sort": (rule(**codes(1)), rule(onReasons=["A"]), False),
    "codes after reasons": (rule(onReasons=["A"]), rule(**codes(1)), False),
    "for one type": (rule(**codes(1)), rule(**codes(1), replicaTypes=["worker"]), True),
    "after one for a type": (rule(**codes(1), replicaTypes=["worker"]), rule(**codes(1)), False),
    "for the same type": (
        rule(**codes(1), replicaTypes=["worker"]),
        rule(**codes(1), replicaTypes=["worker"]),
        True,
    ),
}


@pytest.mark.parametrize(
    ("first", "second", "warned"), NEVER_DECIDE.values(), ids=list(NEVER_DECIDE)
)
def test_a_rule_that_never_decides_is_warned_about(first: Rule, second: Rule, warned: bool) -> None:
    found = [p.detail for p in check(pytorch([first, second])).problems]
    text = f"{RULES}[1]: never decides: rules[0] matches all that it would"
    assert found == ([text] if warned else [])
