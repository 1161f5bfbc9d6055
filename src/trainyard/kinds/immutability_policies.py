"""A ValidatingAdmissionPolicy that keeps the specs of jobs as they were created.

The CEL rules of a CustomResourceDefinition cannot see into pod templates; those of a policy
(Kubernetes 1.30 and newer) can. It needs no webhook (decision 9).
https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.kinds.kind_registry import JOB_KINDS, Kind
from trainyard.kinds.shared.job import MUTABLE

SINCE = (1, 30)
"""The first Kubernetes that serves v1 of these policies."""
_API = "admissionregistration.k8s.io/v1"


def policies() -> list[dict[str, Any]]:
    """A policy and its binding for each job kind."""
    return [item for kind in JOB_KINDS.values() for item in (_policy(kind), _binding(kind))]


def fixed_paths(kind: Kind) -> list[tuple[str, ...]]:
    """The fields that may not change after creation, as paths below ``spec``."""
    spec = kind.schema["properties"]["spec"]
    found = _fixed(spec, ("spec",), kind)
    return sorted((path[1:] for path in found), key=lambda path: len(path) > 1)


def mutable_paths(kind: Kind) -> set[tuple[str, ...]]:
    """What may change after creation, in every spelling."""
    return {spelling for path in MUTABLE for spelling in (path, *_old_spellings(kind, path))}


def _old_spellings(kind: Kind, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    renames = kind.legacy.renames if kind.legacy else ()
    return [(*path[:-1], r.old) for r in renames if (*r.parent, r.new) == path]


def _fixed(node: Mapping[str, Any], path: tuple[str, ...], kind: Kind) -> Iterator[tuple[str, ...]]:
    """The outermost places below `path` under which nothing may change; an old spelling follows
    today's."""
    mutable = mutable_paths(kind)
    properties = node["properties"]
    today = {r.old: r.new for r in (kind.legacy.renames if kind.legacy else ()) if r.parent == path}
    order = list(properties)
    for key in sorted(order, key=lambda key: order.index(today.get(key, key))):
        here = (*path, key)
        if not any(each[: len(here)] == here for each in mutable):
            yield here
        elif here not in mutable:
            yield from _fixed(properties[key], here, kind)


def _policy(kind: Kind) -> dict[str, Any]:
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": _name(kind)},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [kind.group],
                        "apiVersions": [kind.version],
                        "operations": ["UPDATE"],
                        "resources": [kind.plural],
                    }
                ]
            },
            "validations": [
                {
                    "expression": f"{_value('object', path)} == {_value('oldObject', path)}",
                    "message": f"spec.{'.'.join(path)} cannot be changed after creation; "
                    "delete the job and create it again",
                }
                for path in fixed_paths(kind)
            ],
        },
    }


def _binding(kind: Kind) -> dict[str, Any]:
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": _name(kind)},
        "spec": {"policyName": _name(kind), "validationActions": ["Deny"]},
    }


def _name(kind: Kind) -> str:
    return f"immutable-{kind.full_name}"


def _value(root: str, path: tuple[str, ...]) -> str:
    """CEL for the value at a path below ``spec``, null where it is absent."""
    places = [".".join((root, "spec", *path[:end])) for end in range(1, len(path) + 1)]
    present = " && ".join(f"has({place})" for place in places)
    return f"({present} ? dyn({places[-1]}) : dyn(null))"
