"""Reviews of one's own rights. The embedded cluster has one user, who may do everything."""

from __future__ import annotations

from typing import Any

from trainyard.local.apiserver import formats
from trainyard.local.apiserver.http import Request, Response
from trainyard.local.failures import no_such_path

Object = dict[str, Any]

USER = "trainyard-admin"
_EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
_ALL_URLS = {"verbs": ["*"], "nonResourceURLs": ["*"]}
_STATUS: dict[str, Object] = {
    "selfsubjectaccessreviews": {"allowed": True, "reason": "one user, who owns the cluster"},
    "selfsubjectrulesreviews": {
        "resourceRules": [_EVERYTHING],
        "nonResourceRules": [_ALL_URLS],
        "incomplete": False,
    },
    "selfsubjectreviews": {
        "userInfo": {"username": USER, "groups": ["system:masters", "system:authenticated"]}
    },
}


def respond(request: Request, parts: list[str]) -> Response:
    """Answer a POST to one of the review resources."""
    status = _STATUS.get(parts[-1])
    if status is None or request.method != "POST":
        raise no_such_path()
    review, _ = formats.body_object(request)
    review.setdefault("metadata", {})
    return formats.json_response(201, {**review, "status": status})
