"""Operators of single namespaces, and what an operator says that cannot do its work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.cluster.kubelet import running_kubelet
from tests.cluster.yard import PYTORCH, Operator, Yard, pytorch_job, until
from trainyard.kube.resources import LEASES, NAMESPACES
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.install.install_manifests import Install, dump, service_account
from trainyard.operator.install.install_manifests import role_and_binding as grant
from trainyard.operator.install.rbac_rules import LEASE_RULE, rules_for

Object = dict[str, Any]


async def bind_role(yard: Yard, needed: list[Object]) -> None:
    """The operator's account has these rights in the namespace, and no others."""
    install = Install("none", yard.namespace)
    objects = [service_account(install), *grant(install, needed, install.name, yard.namespace)]
    await yard.kubectl("apply", "--server-side", "-f", "-", stdin=dump(objects))


def shipped(yard: Yard) -> list[Object]:
    """What an operator of the namespace needs."""
    return [*rules_for(OperatorSettings(namespaces=(yard.namespace,))), LEASE_RULE]


def without(rules: list[Object], resource: str, verb: str) -> list[Object]:
    """The rules but for one right."""
    left = []
    for rule in rules:
        others = [name for name in rule["resources"] if name != resource]
        left += [{**rule, "resources": others}] if others else []
        if resource in rule["resources"]:
            verbs = [each for each in rule["verbs"] if each != verb]
            left += [{**rule, "resources": [resource], "verbs": verbs}] if verbs else []
    return left


async def token(yard: Yard) -> Path:
    """A kubeconfig of the operator's account."""
    text = (await yard.kubectl("create", "token", "trainyard-operator")).strip()
    return yard.plane.write_kubeconfig(f"operator-{yard.namespace}", text)


async def says(operator: Operator, wanted: str) -> None:
    """Wait until `/readyz` answers with this."""
    await until(lambda: operator.answer("/readyz"), lambda text: re.search(wanted, text))


async def test_operators_of_two_namespaces_do_not_wait_for_each_other(yard: Yard) -> None:
    """Even if their Leases are kept in one place."""
    other = f"{yard.namespace}-other"
    await yard.client.create(NAMESPACES, {"metadata": {"name": other}})
    place = ("--lease-namespace", yard.namespace)
    try:
        async with (
            yard.operator(*place) as first,
            yard.operator(*place, "--namespace", other) as second,
            yard.operator("--namespace", other) as third,
        ):
            for operator in (first, second, third):
                await operator.leads()
        names = (yard.namespace, other)
        for name in names:
            assert await yard.client.get(LEASES, f"trainyard-controller-{name}", yard.namespace)
        assert await yard.client.get(LEASES, f"trainyard-controller-{other}", other)
    finally:
        await yard.client.delete(NAMESPACES, other)


async def test_a_right_that_is_missing_is_told_and_the_rest_goes_on(yard: Yard) -> None:
    """One that this job does not need, and one without which nothing is seen."""
    rules = shipped(yard)
    await bind_role(yard, without(rules, "configmaps", "create"))
    async with (
        yard.operator(kubeconfig=await token(yard)) as operator,
        running_kubelet(yard.client, yard.namespace, lambda pod: 0),
    ):
        await says(operator, f"^no right to create configmaps in namespace {yard.namespace}$")
        await yard.client.create(PYTORCH, pytorch_job("digits"), yard.namespace)
        await yard.reaches("digits", "Succeeded")
        await bind_role(yard, rules)
        await says(operator, "^leading$")
    await bind_role(yard, without(rules, "secrets", "list"))
    async with yard.operator(kubeconfig=await token(yard)) as operator:
        await says(operator, "(?s)no right to list secrets .*\ncannot list secrets")


async def test_a_lease_that_cannot_be_had_is_told(yard: Yard) -> None:
    """A namespace that is not there is no standby, and one that comes is noticed."""
    absent = f"{yard.namespace}-absent"
    async with yard.operator("--lease-namespace", absent) as operator:
        await says(operator, f'cannot create Lease {absent}/.* namespaces "{absent}" not found')
        await yard.client.create(NAMESPACES, {"metadata": {"name": absent}})
        try:
            await operator.leads()
        finally:
            await yard.client.delete(NAMESPACES, absent)
