"""Checks whether the user and the operator have the permissions that each needs, one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from trainyard.kinds.kind_registry import JOB_KINDS
from trainyard.kube.client import Client
from trainyard.kube.errors import KubeError
from trainyard.kube.resources import Resource
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.doctor.doctor_context import DoctorContext, Finding, Object
from trainyard.operator.install.rbac_rules import (
    REVIEW_RULES,
    Rule,
    lease_namespace_rules,
    rules_for,
)

_REVIEW = "authorization.k8s.io"
_OWN_ACCESS = Resource(
    _REVIEW, "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
_ACCESS = Resource(_REVIEW, "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
_AT_ONCE = 16
_USER_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
_USER_RULES = (
    *(([k.group], [k.plural], _USER_VERBS) for k in JOB_KINDS.values()),
    ([""], ["pods"], ("get", "list", "watch")),
    ([""], ["pods/log"], ("get",)),
    ([""], ["pods/exec"], ("create",)),
    ([""], ["events"], ("list", "watch")),
)
"""What the commands about jobs need."""


class Account(NamedTuple):
    """Whose permissions are checked; user "": the caller."""

    user: str = ""
    groups: tuple[str, ...] = ()


async def check_permissions(context: DoctorContext) -> AsyncIterator[Finding]:
    """The user's permissions where jobs are submitted, and those of the operator's account."""
    if not context.as_operator:
        asked = [
            (g, r, v)
            for groups, names, verbs in _USER_RULES
            for g in groups
            for r in names
            for v in verbs
        ]
        yield await _access_finding(context, "your rights", Account(), asked, context.namespace)
    account = _operator_account(context)
    if account is None:
        if context.pods or context.as_operator:
            yield Finding("operator's rights", "note", "its service account is not known")
        return
    for place, wanted in _operator_rules(context).items():
        asked = [
            (group, resource, verb)
            for rule in wanted
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        ]
        yield await _access_finding(context, "operator's rights", account, asked, place)


def _operator_rules(context: DoctorContext) -> dict[str, list[Rule]]:
    """The rules that the operator needs, by namespace."""
    known = context.settings
    operator = known.operator if known else OperatorSettings(namespaces=(context.namespace,))
    if context.gang is not None:
        lifecycle = replace(operator.lifecycle, gang_backend=context.gang)
        operator = replace(operator, lifecycle=lifecycle)
    wanted = {each: rules_for(operator) for each in operator.namespaces or (context.namespace,)}
    if known is None:
        home = context.lease["metadata"]["namespace"] if context.lease else context.namespace
    else:
        home = known.lease.namespace if known.lease else ""
    if home:
        wanted[home] = [*wanted.get(home, ()), *lease_namespace_rules(operator)]
    if known is not None and known.metrics_secure:
        wanted[home or next(iter(wanted))] += REVIEW_RULES
    return wanted


def _operator_account(context: DoctorContext) -> Account | None:
    if context.as_operator:
        return Account()
    for pod in context.pods:
        namespace, name = pod["metadata"]["namespace"], pod["spec"].get("serviceAccountName")
        if name:
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
            user = f"system:serviceaccount:{namespace}:{name}"
            return Account(user, (*groups, "system:authenticated"))
    return None


async def _access_finding(
    context: DoctorContext,
    check: str,
    account: Account,
    asked: Sequence[tuple[str, str, str]],
    namespace: str,
) -> Finding:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def ask(right: tuple[str, str, str]) -> bool:
        async with slots:
            return await _is_allowed(context.client, account, right, namespace)

    try:
        answers = await asyncio.gather(*map(ask, asked))
    except KubeError as error:
        return Finding(check, "note", f"{error}, so they are not known")
    missing: dict[str, list[str]] = {}
    for (group, resource, verb), allowed in zip(asked, answers, strict=True):
        if not allowed:
            missing.setdefault(f"{resource}.{group}" if group else resource, []).append(verb)
    where = f"in namespace {namespace}"
    if not missing:
        return Finding(check, "ok", f"all {len(asked)} {where}")
    text = "; ".join(f"no right to {', '.join(verbs)} {name}" for name, verbs in missing.items())
    fix = "bind a role that has them; docs/operations/permissions.md lists all"
    return Finding(check, "problem", f"{text} {where}", fix)


async def _is_allowed(
    client: Client, account: Account, right: tuple[str, str, str], namespace: str
) -> bool:
    group, resource, verb = right
    name, _, subresource = resource.partition("/")
    attributes = {"group": group, "resource": name, "verb": verb, "namespace": namespace}
    if subresource:
        attributes["subresource"] = subresource
    spec: Object = {"resourceAttributes": attributes}
    if account.user:
        spec |= {"user": account.user, "groups": list(account.groups)}
    kind = _ACCESS if account.user else _OWN_ACCESS
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
    return bool(((await client.create(kind, body)).get("status") or {}).get("allowed"))
