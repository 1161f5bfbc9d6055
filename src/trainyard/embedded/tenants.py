"""Tenants: users other than the cluster's owner, as whom pods of their namespaces run.

A pod runs as the user to whom its namespace belongs (decision 89). On the host it can do what that
user can: whatever would give it the cluster's own rights is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.embedded.api_errors import StatusCause, forbidden
from trainyard.embedded.cluster_objects import Objects
from trainyard.kube.embedded_contract import OWNER, OWNER_UID
from trainyard.kube.resources import NAMESPACES
from trainyard.machine.users import User, parse_id, user_with_uid
from trainyard.podruntime.protocol import Account, Program

Object = Mapping[str, Any]
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_ALL_CAPABILITIES = (1 << 64) - 1
_ALWAYS_SHARED = ("PATH", "VIRTUAL_ENV")


def owner_uid(namespace: Object) -> int | None:
    """The id of the user to whom a namespace belongs; None: the cluster's owner.

    Raises Forbidden where the namespace names a user but their id cannot be read: to take the
    cluster's owner for them would give more rights.
    """
    metadata = namespace["metadata"]
    annotations = metadata.get("annotations") or {}
    if OWNER_UID not in annotations and OWNER not in annotations:
        return None
    text = annotations.get(OWNER_UID)
    uid = parse_id(text) if isinstance(text, str) else None
    if uid is None:
        raise forbidden(
            NAMESPACES.full_name,
            metadata["name"],
            f"its annotation {OWNER_UID} is {text!r}, which is no user's id, so nothing runs in "
            "it: the cluster's owner can set it, or remove it and "
            f"{OWNER} for a namespace of their own",
        )
    return uid


def tenant_of(objects: Objects, namespace: str) -> User | None:
    """The user to whom a namespace belongs; None: the cluster's owner.

    Raises Forbidden where that cannot be read, NotFound where there is no such namespace. What is
    in none ("") is the cluster's owner's.
    """
    if not namespace:
        return None
    uid = owner_uid(objects.get(NAMESPACES.full_name, "", namespace))
    return None if uid is None else user_with_uid(uid)


def tenant_environment(owners: Mapping[str, str], tenant: User) -> dict[str, str]:
    """The variables of the owner's containers that a tenant's containers have too.

    Those that name the owner's home folder are left out: the tenant cannot read it.
    """
    home = owners.get("HOME", "/").rstrip("/")
    shared = {
        name: value
        for name, value in owners.items()
        if name in _ALWAYS_SHARED or not home or home not in value
    }
    return shared | {"HOME": tenant.home or "/", "USER": tenant.name, "LOGNAME": tenant.name}


def account(tenant: User) -> Account:
    """A tenant in the shim's terms."""
    return Account(tenant.uid, tenant.gid, tenant.groups)


def restrict_program(program: Program, tenant: User) -> Program:
    """The program as this user, without privileges or a way to gain any."""
    return program._replace(
        user=tenant.uid,
        group=tenant.gid,
        groups=tenant.groups,
        privileged=False,
        unconfined=False,
        capabilities=0,
        dropped=_ALL_CAPABILITIES,
        no_new_privileges=True,
    )


def forbidden_fields(obj: Object, tenant: User) -> list[StatusCause]:
    """Fields of a pod, or of any pod template in an object, that this user may not set."""
    return [
        StatusCause(f"{path}.{field}", f"Forbidden: {why}", "FieldValueForbidden")
        for path, spec in _pod_specs(obj, "")
        for field, why in _forbidden_in_pod(spec, tenant)
    ]


def _pod_specs(value: Any, path: str) -> Iterator[tuple[str, Object]]:
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield path, value
        for key, each in value.items():
            if key not in ("metadata", "status"):
                yield from _pod_specs(each, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _pod_specs(each, f"{path}[{index}]")


def _forbidden_in_pod(spec: Object, tenant: User) -> Iterator[tuple[str, str]]:
    shared = spec.get("securityContext")
    yield from _forbidden_identity(
        "securityContext", shared if isinstance(shared, dict) else {}, tenant
    )
    for list_name in _CONTAINERS:
        for index, container in enumerate(spec.get(list_name) or ()):
            context = container.get("securityContext") if isinstance(container, dict) else None
            if not isinstance(context, dict):
                continue
            where = f"{list_name}[{index}].securityContext"
            yield from _forbidden_identity(where, context, tenant)
            if context.get("privileged"):
                yield f"{where}.privileged", "only the cluster's owner has privileged containers"
            if (context.get("capabilities") or {}).get("add"):
                yield f"{where}.capabilities.add", "only the cluster's owner can add capabilities"


def _forbidden_identity(where: str, context: Object, tenant: User) -> Iterator[tuple[str, str]]:
    if context.get("runAsUser") not in (None, tenant.uid):
        yield f"{where}.runAsUser", f"pods here run as {tenant.name} ({tenant.uid}): leave it out"
    groups = sorted({tenant.gid, *tenant.groups})
    wanted = [context.get("runAsGroup"), context.get("fsGroup")]
    wanted += context.get("supplementalGroups") or ()
    if any(group not in (None, *groups) for group in wanted):
        listed = ", ".join(map(str, groups))
        yield where, f"{tenant.name} is in the groups {listed} only"
