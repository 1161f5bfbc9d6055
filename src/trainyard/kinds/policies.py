"""A ValidatingAdmissionPolicy that keeps the specs of jobs as they were created.

The CEL rules of a CustomResourceDefinition cannot see into pod templates; those of a policy
(Kubernetes 1.30 and newer) can. It needs no webhook.
https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
"""

from __future__ import annotations

from typing import Any

from trainyard.kinds import crds
from trainyard.kinds.table import BATCH, JOB_KINDS, Kind

_ELASTIC = ("enabled", "enable", "minReplicas", "maxReplicas")
SINCE = (1, 30)
"""The first Kubernetes that serves v1 of these policies."""
_API = "admissionregistration.k8s.io/v1"


def policies() -> list[dict[str, Any]]:
    """A policy and its binding for each job kind."""
    return [item for kind in JOB_KINDS.values() for item in (_policy(kind), _binding(kind))]


def fixed_paths(kind: Kind) -> list[tuple[str, ...]]:
    """What may not change after creation, as paths below ``spec``."""
    schema = crds.schema(kind.kind)["properties"]["spec"]["properties"]
    paths: list[tuple[str, ...]] = [(key,) for key in schema if key not in ("runMode", "elastic")]
    paths += [("runMode", "debug"), ("runMode", "pause", "resumeSpecs")]
    return paths + ([("elastic", key) for key in _ELASTIC] if kind.elastic else [])


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
                        "apiGroups": [BATCH],
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
    return f"immutable-{kind.plural}.{BATCH}"


def _value(root: str, path: tuple[str, ...]) -> str:
    """CEL for the value at a path below ``spec``, null where it is absent."""
    places = [".".join((root, "spec", *path[:end])) for end in range(1, len(path) + 1)]
    present = " && ".join(f"has({place})" for place in places)
    return f"({present} ? dyn({places[-1]}) : dyn(null))"
