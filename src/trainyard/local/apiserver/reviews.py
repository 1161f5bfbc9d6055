"""Reviews of one's own rights. The embedded cluster has one user, who may do everything."""

from __future__ import annotations

from typing import Any

from trainyard.kube.resources import Resource
from trainyard.local.apiserver import formats
from trainyard.local.apiserver.http import Request, Response
from trainyard.local.failures import no_such_path
from trainyard.local.resources.resource import Served

Object = dict[str, Any]

USER = "trainyard-admin"
_AUTHORIZATION, _AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"
GROUPS = (_AUTHORIZATION, _AUTHENTICATION)


def _review(group: str, kind: str) -> Served:
    return Served(
        Resource(group, "v1", f"{kind.lower()}s", kind, namespaced=False), verbs=("create",)
    )


_EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
_ALL_URLS = {"verbs": ["*"], "nonResourceURLs": ["*"]}
_ANSWERS: tuple[tuple[Served, Object], ...] = (
    (
        _review(_AUTHORIZATION, "SelfSubjectAccessReview"),
        {"allowed": True, "reason": "one user, who owns the cluster"},
    ),
    (
        _review(_AUTHORIZATION, "SelfSubjectRulesReview"),
        {
            "resourceRules": [_EVERYTHING],
            "nonResourceRules": [_ALL_URLS],
            "incomplete": False,
        },
    ),
    (
        _review(_AUTHENTICATION, "SelfSubjectReview"),
        {"userInfo": {"username": USER, "groups": ["system:masters", "system:authenticated"]}},
    ),
)
REVIEWS = tuple(served for served, _ in _ANSWERS)
"""What discovery tells of them; no objects are kept."""
_STATUS = {served.resource.plural: status for served, status in _ANSWERS}


def respond(request: Request, parts: list[str]) -> Response:
    """Answer a POST to one of the review resources."""
    status = _STATUS.get(parts[-1])
    if status is None or request.method != "POST":
        raise no_such_path()
    review, _ = formats.body_object(request)
    review.setdefault("metadata", {})
    return formats.json_response(201, {**review, "status": status})
