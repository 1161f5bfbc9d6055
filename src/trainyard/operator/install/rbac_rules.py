"""The RBAC rules of the operator, each with its condition, and those of users for our kinds.

The roles of `manifests`, of the chart and of kustomize come from this one list, and so does what a
running operator reports as missing. What the settings make needless must not be granted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from trainyard.kinds.kind_registry import JOB_KINDS, KINDS, Kind
from trainyard.kinds.podgroup import POD_GROUPS
from trainyard.kinds.shared.job_settings import GangBackend
from trainyard.kinds.shared.scheduling import kueue_workload
from trainyard.kinds.shared.scheduling.gang_scheduling import POD_GROUPS_OF
from trainyard.kube.resources import CONFIG_MAPS, PODS, SECRETS, SERVICES, Resource
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.schema.dataclass import dataclass

Rule = dict[str, Any]
_SEEN = ["get", "list", "watch"]
_OWN = ["create", "delete", *_SEEN]
_EDIT = ["create", "delete", "deletecollection", "patch", "update"]


@dataclass(frozen=True, slots=True)
class ConditionalRule:
    """A rule, and when it is needed.

    `kinds`: only where one of these kinds is reconciled; empty: always. `viewers`: only where
    viewers are served. `gang`: only with this gang scheduler. `cluster`: for cluster-wide
    resources, which no Role can grant. `selected`: only where namespaces are selected by labels.
    """

    rule: Rule
    kinds: tuple[str, ...] = ()
    viewers: bool = False
    gang: str = ""
    cluster: bool = False
    selected: bool = False
    channel: bool = False
    """Also needed where pods report."""

    def is_needed(self, settings: OperatorSettings) -> bool:
        """Whether an operator with these settings needs it."""
        return (
            (
                not self.kinds
                or not settings.kinds
                or bool({*self.kinds} & {*settings.kinds})
                or (self.channel and settings.has_channel)
            )
            and (not self.viewers or settings.serves_tensorboards)
            and (not self.cluster or not settings.namespaces)
            and (not self.selected or bool(settings.namespace_selector))
        )


def conditional_rules() -> list[ConditionalRule]:
    """Every rule that any operator needs, except for its Lease."""
    return [
        *(each for kind in JOB_KINDS.values() for each in _of_kind(kind)),
        *(each for kind in KINDS.values() if kind.is_viewer for each in _of_viewer(kind)),
        ConditionalRule(_rule(PODS, ["create", "delete", "get", "list", "patch", "watch"])),
        ConditionalRule(_rule(SERVICES, _OWN)),
        ConditionalRule(_rule(SECRETS, _OWN), kinds=ssh_kinds(), channel=True),
        ConditionalRule(_rule(CONFIG_MAPS, _OWN), kinds=ssh_kinds(), channel=True),
        *(ConditionalRule(_rule(each, _OWN), gang=name) for name, each in POD_GROUPS_OF.items()),
        *_of_kueue(),
        ConditionalRule(_of([""], ["events"], ["create", "list", "patch"])),
        # Without it, the loss of a node is noticed only when its pods are deleted.
        ConditionalRule(_of([""], ["nodes"], ["list", "watch"]), cluster=True),
        ConditionalRule(_of([""], ["namespaces"], ["list", "watch"]), cluster=True, selected=True),
    ]


LEASE_RULE: Rule = {
    "apiGroups": ["coordination.k8s.io"],
    "resources": ["leases"],
    "verbs": ["create", "get", "update"],
}
"""In the namespace of the Lease."""
CHANNEL_RULE: Rule = {
    "apiGroups": [""],
    "resources": ["endpoints", "secrets"],
    "verbs": ["create", "get", "update"],
}
"""There too, where pods report: the channel's CA, and the Endpoints of its Service."""


def lease_namespace_rules(settings: OperatorSettings) -> list[Rule]:
    """What an operator needs in the namespace of its Lease."""
    return [LEASE_RULE, *((CHANNEL_RULE,) if settings.has_channel else ())]


REVIEW_RULES: list[Rule] = [
    {"apiGroups": [f"{group}.k8s.io"], "resources": [resource], "verbs": ["create"]}
    for group, resource in (
        ("authentication", "tokenreviews"),
        ("authorization", "subjectaccessreviews"),
    )
]
"""With metricsSecure, for the cluster; Kubernetes' role `system:auth-delegator` has them."""


def rules_for(settings: OperatorSettings) -> list[Rule]:
    """The rules that an operator with these settings needs, in each of its namespaces; its Lease is
    extra."""
    backend = settings.lifecycle.gang_backend
    return [
        grant.rule
        for grant in conditional_rules()
        if grant.is_needed(settings) and grant.gang in ("", backend)
    ]


def ssh_kinds() -> tuple[str, ...]:
    """The kinds that launch over ssh, whose jobs have keys and scripts of their own."""
    return tuple(name for name, kind in JOB_KINDS.items() if kind.launches_over_ssh)


def user_role_rules() -> dict[str, list[Rule]]:
    """The rules for our kinds in the roles `view`, `edit` and `admin` of a cluster.

    Kubernetes' aggregation gives each of them what the one before it has.
    https://kubernetes.io/docs/reference/access-authn-authz/rbac/#user-facing-roles
    """
    used = [kind for kind in KINDS.values() if kind.is_job or kind.is_viewer]
    scaled = [kind for kind in used if kind.elastic]
    return {
        "view": list(_by_group(KINDS.values(), _SEEN)),
        "edit": [
            *_by_group(used, _EDIT),
            *_by_group(scaled, ["get", "patch", "update"], "/scale"),
        ],
        "admin": [_rule(POD_GROUPS, _EDIT)],
    }


def _of_kind(kind: Kind) -> Iterator[ConditionalRule]:
    yield ConditionalRule(_rule(kind.resource, ["delete", *_SEEN]), kinds=(kind.kind,))
    # Setting an owner reference that blocks deletion takes permission for its finalizers
    # (admission plugin OwnerReferencesPermissionEnforcement).
    parts = [f"{kind.plural}/finalizers", f"{kind.plural}/status"]
    yield ConditionalRule(_of([kind.group], parts, ["update"]), kinds=(kind.kind,))


def _of_viewer(kind: Kind) -> Iterator[ConditionalRule]:
    yield ConditionalRule(_rule(kind.resource, _OWN))
    parts = [f"{kind.plural}/finalizers", f"{kind.plural}/status"]
    yield ConditionalRule(_of([kind.group], parts, ["update"]), viewers=True)


def _of_kueue() -> Iterator[ConditionalRule]:
    """Workloads and their status, flavors and priority classes."""
    name = GangBackend.KUEUE
    parts = [f"{kueue_workload.WORKLOADS.plural}/status"]
    yield ConditionalRule(_rule(kueue_workload.WORKLOADS, sorted([*_OWN, "patch"])), gang=name)
    yield ConditionalRule(_of([kueue_workload.GROUP], parts, ["patch"]), gang=name)
    yield ConditionalRule(_rule(kueue_workload.FLAVORS, ["list", "watch"]), gang=name, cluster=True)
    yield ConditionalRule(_rule(kueue_workload.PRIORITY_CLASSES, ["get"]), gang=name, cluster=True)


def _by_group(kinds: Iterable[Kind], verbs: list[str], part: str = "") -> Iterator[Rule]:
    """One rule for each API group: a kind from outside may have its own."""
    plurals: dict[str, list[str]] = {}
    for kind in kinds:
        plurals.setdefault(kind.group, []).append(kind.plural + part)
    return (_of([group], sorted(names), verbs) for group, names in plurals.items())


def _rule(resource: Resource, verbs: list[str]) -> Rule:
    return _of([resource.group], [resource.plural], verbs)


def _of(groups: list[str], resources: list[str], verbs: list[str]) -> Rule:
    return {"apiGroups": groups, "resources": resources, "verbs": list(verbs)}
