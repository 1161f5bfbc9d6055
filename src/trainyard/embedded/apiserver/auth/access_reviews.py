"""Access reviews: SelfSubjectAccessReview, SelfSubjectRulesReview, SelfSubjectReview, TokenReview.

They are answered and not stored. Reviews of another user's rights are refused with an alternative.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.embedded.api_errors import bad_request, kind_without_effect, no_such_path
from trainyard.embedded.apiserver.auth.authorization import AccessRequest, Authorizer
from trainyard.embedded.apiserver.auth.request_identity import Identity, TokenHolder
from trainyard.embedded.apiserver.http.http_messages import Request, Response
from trainyard.embedded.apiserver.requests.request_body import body_object
from trainyard.embedded.apiserver.requests.response_encoding import json_response
from trainyard.embedded.resources.resource import ALL_VERBS, READ_VERBS, Object, Served
from trainyard.kube.errors import ApiError
from trainyard.kube.resources import Resource

_AUTHORIZATION, _AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"
GROUPS = (_AUTHORIZATION, _AUTHENTICATION)


def _review(group: str, kind: str, alternative: str = "") -> Served:
    is_local = kind.startswith("Local")
    resource = Resource(group, "v1", f"{kind.lower()}s", kind, namespaced=is_local)
    return Served(resource, verbs=("create",), alternative=alternative)


_ACCESS = _review(_AUTHORIZATION, "SelfSubjectAccessReview")
_RULES = _review(_AUTHORIZATION, "SelfSubjectRulesReview")
_SELF = _review(_AUTHENTICATION, "SelfSubjectReview")
_TOKEN = _review(_AUTHENTICATION, "TokenReview")
_OWN_RIGHTS = "whoever asks is told their own rights: create a SelfSubjectAccessReview"
_REVIEWS_OF_OTHERS = (
    _review(_AUTHORIZATION, "SubjectAccessReview", _OWN_RIGHTS),
    _review(_AUTHORIZATION, "LocalSubjectAccessReview", _OWN_RIGHTS),
)
REVIEWS = (_ACCESS, _RULES, _SELF, _TOKEN, *_REVIEWS_OF_OTHERS)
"""What discovery tells of them."""


def respond(
    request: Request, parts: list[str], authorizer: Authorizer, token_holder: TokenHolder
) -> Response:
    """The answer to a POST to one of the reviews."""
    answers = {_ACCESS.resource.plural: _review_access, _RULES.resource.plural: _review_rules}
    review = next((row for row in REVIEWS if row.resource.plural == parts[-1]), None)
    if request.method != "POST" or review is None:
        raise no_such_path()
    if review.alternative:
        raise kind_without_effect(review.kind, review.resource.api_version, review.alternative)
    body, _ = body_object(request)
    body.setdefault("metadata", {})
    spec = body.get("spec") or {}
    if not isinstance(spec, dict):
        raise bad_request("spec is not an object")
    if review is _TOKEN:
        status = _review_token(spec, token_holder)
    else:
        status = answers.get(parts[-1], _review_self)(request.identity, spec, authorizer)
    return json_response(201, {**body, "status": status})


def _review_self(identity: Identity, spec: Mapping[str, Any], authorizer: Authorizer) -> Object:
    return {"userInfo": _user(identity)}


def _review_token(spec: Mapping[str, Any], token_holder: TokenHolder) -> Object:
    """A TokenReview tells nothing that its sender could not learn by using the token."""
    token = spec.get("token")
    if not isinstance(token, str) or not token:
        raise bad_request("token is required for TokenReview in authentication")
    try:
        identity = token_holder(token.encode(errors="replace"))
    except ApiError as error:  # of one who may no longer use the cluster
        return {"user": {}, "error": str(error)}
    if identity is None:
        return {"user": {}, "error": "it is no token of this cluster"}
    return {"authenticated": True, "user": _user(identity)}


def _user(identity: Identity) -> Object:
    groups = ["system:masters"] if identity.is_admin else []
    user: Object = {"username": identity.name, "groups": [*groups, "system:authenticated"]}
    if not identity.is_admin:
        user["uid"] = str(identity.user.uid)
    return user


def _review_access(identity: Identity, spec: Mapping[str, Any], authorizer: Authorizer) -> Object:
    if identity.is_admin:
        return {"allowed": True, "reason": "the cluster's owner may do everything"}
    asked = spec.get("resourceAttributes")
    if not isinstance(asked, dict):
        verb = (spec.get("nonResourceAttributes") or {}).get("verb")
        return {"allowed": verb in ("get", "head")}
    names = ("verb", "group", "resource", "subresource", "namespace", "name")
    access = AccessRequest(*(str(asked.get(name) or "") for name in names))
    served = authorizer.registry.resources.get(access.full_name)
    if served is not None and not served.resource.namespaced:
        access = access._replace(namespace="")  # kubectl names that of its context all the same
    return {"allowed": authorizer.is_allowed(identity, access)}


def _review_rules(identity: Identity, spec: Mapping[str, Any], authorizer: Authorizer) -> Object:
    everything: Object = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    paths: Object = {"verbs": ["*"], "nonResourceURLs": ["*"]}
    if identity.is_admin:
        return {"resourceRules": [everything], "nonResourceRules": [paths], "incomplete": False}
    rows = [row for row in authorizer.registry.resources if row.resource.namespaced]
    namespace = str(spec.get("namespace") or "")
    rules: list[Object] = []
    for row in rows:
        what = (row.resource.group, row.resource.plural, "", namespace)
        verbs = [
            verb
            for verb in ALL_VERBS
            if authorizer.is_allowed(identity, AccessRequest(verb, *what))
        ]
        if verbs:
            groups, resources = [row.resource.group], [row.resource.plural]
            rules.append({"verbs": verbs, "apiGroups": groups, "resources": resources})
    looking: Object = {"verbs": ["get"], "nonResourceURLs": ["*"]}
    return {
        "resourceRules": [*rules, *_cluster_scoped_rules(authorizer)],
        "nonResourceRules": [looking],
        "incomplete": False,
    }


def _cluster_scoped_rules(authorizer: Authorizer) -> list[Object]:
    """Every user may read what is in no namespace."""
    return [
        {
            "verbs": list(READ_VERBS),
            "apiGroups": [row.resource.group],
            "resources": [row.resource.plural],
        }
        for row in authorizer.registry.resources
        if not row.resource.namespaced
    ]
