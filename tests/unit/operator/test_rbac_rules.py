"""What is missing among rights, by what a server says of them."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from tests.simulation.virtual_time import run
from trainyard.kinds.shared.job_settings import GangBackend, Settings
from trainyard.kube.client import Client
from trainyard.kube.transport import Request, Response
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.install.missing_permissions import (
    INTERVAL_SECONDS,
    PermissionMonitor,
    missing_permissions_of,
)
from trainyard.operator.install.rbac_rules import LEASE_RULE, conditional_rules, rules_for

SHIPPED = [each.rule for each in conditional_rules()] + [LEASE_RULE]


def given(groups: str, resources: str, verbs: str, **more: Any) -> dict[str, Any]:
    split = (groups.split(","), resources.split(","), verbs.split(","))
    return dict(zip(("apiGroups", "resources", "verbs"), split, strict=True)) | more


@pytest.mark.parametrize(
    "scope",
    [{}, {"namespaces": ("team",)}, {"namespace_selector": "a=b"}],
    ids=["all", "one", "selected"],
)
@pytest.mark.parametrize("backend", list(GangBackend))
def test_what_is_shipped_is_enough(scope: dict[str, Any], backend: GangBackend) -> None:
    settings = OperatorSettings(lifecycle=Settings(gang_backend=backend), **scope)
    assert not list(missing_permissions_of([*rules_for(settings), LEASE_RULE], SHIPPED, "ops"))


def test_each_right_that_is_taken_away_is_named() -> None:
    wanted = [*rules_for(OperatorSettings(namespace_selector="a=b")), LEASE_RULE]
    for number, rule in enumerate(SHIPPED):
        for verb in rule["verbs"]:
            left = {**rule, "verbs": [each for each in rule["verbs"] if each != verb]}
            missing = list(
                missing_permissions_of(
                    wanted, [*SHIPPED[:number], left, *SHIPPED[number + 1 :]], "ops"
                )
            )
            is_wanted = any(
                verb in each["verbs"] and set(each["resources"]) & set(rule["resources"])
                for each in wanted
                if each["apiGroups"] == rule["apiGroups"]
            )
            assert bool(missing) is is_wanted
            for resource in rule["resources"] if missing else ():
                assert any(f"no right to {verb} {resource}" in text for text in missing)


@pytest.mark.parametrize(
    ("rule", "is_enough"),
    [
        (given("", "pods", "create,delete"), True),
        (given("*", "*", "*"), True),
        (given("", "*", "*"), True),
        (given("", "pods", "create"), False),
        (given("apps", "pods", "*"), False),
        (given("", "pods", "*", resourceNames=["one"]), False),
    ],
)
def test_wildcards_and_names_are_understood(rule: dict[str, Any], is_enough: bool) -> None:
    wanted = [given("", "pods", "create,delete")]
    assert (not list(missing_permissions_of(wanted, [rule], "team"))) is is_enough


def test_a_subresource_is_a_right_of_its_own() -> None:
    wanted = [given("a", "jobs/status", "update")]
    expected = ["no right to update jobs/status.a in namespace team"]
    assert list(missing_permissions_of(wanted, [given("a", "jobs", "*")], "team")) == expected
    assert not list(missing_permissions_of(wanted, [given("a", "*/status", "update")], "team"))
    assert not list(missing_permissions_of(wanted, [given("a", "*", "update")], "team"))


class Denying:
    """A server that gives whoever asks these rules only."""

    def __init__(self, rules_for: list[dict[str, Any]]) -> None:
        self._answer = {"status": {"resourceRules": rules_for, "incomplete": False}}

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        return Response(201, {}, orjson.dumps(self._answer))

    async def aclose(self) -> None:
        pass


def test_what_is_wanted_later_is_asked_for_at_once() -> None:
    """An operator learns which gang scheduler there is after it has begun to ask."""
    pods, groups = given("", "pods", "create"), given("scheduling.k8s.io", "podgroups", "create")

    async def body() -> None:
        client = Client(Denying([pods]))  # type: ignore[arg-type]
        rights = PermissionMonitor(client, {"team": [pods]})
        task = asyncio.create_task(rights.run())
        await asyncio.sleep(INTERVAL_SECONDS / 2)
        assert rights.missing == ()
        # Twice the same, which is told once.
        rights.require({"team": [pods, groups, groups]})
        await asyncio.sleep(0.1)
        expected = "no right to create podgroups.scheduling.k8s.io in namespace team"
        assert rights.missing == (expected,)
        task.cancel()
        await asyncio.wait([task])

    run(body())
