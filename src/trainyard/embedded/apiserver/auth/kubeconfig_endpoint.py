"""`/trainyard/v1/kubeconfig`: a kubeconfig with a token of its own for each user."""

from __future__ import annotations

from pathlib import Path

from trainyard.embedded.api_errors import bad_request, forbidden, method_not_allowed
from trainyard.embedded.apiserver.http.http_messages import Request, Response
from trainyard.embedded.apiserver.requests.request_body import parse_json
from trainyard.embedded.apiserver.requests.response_encoding import json_response
from trainyard.embedded.tls_files import make_kubeconfig
from trainyard.embedded.user_tokens import UserTokens
from trainyard.machine.users import User, uid_of
from trainyard.schema.dataclass import dataclass

PATH = "/trainyard/v1/kubeconfig"


@dataclass(frozen=True, slots=True)
class KubeconfigEndpoint:
    """Issues kubeconfigs and renews tokens."""

    tokens: UserTokens
    port: int
    authority: Path
    owners_token: str

    def respond(self, request: Request) -> Response:
        """POST `{}`: the kubeconfig of the user. With `"renew": true`: one with a new token.

        The cluster's owner can POST `{"renew": true, "user": NAME}`, which returns no token.
        """
        if request.method != "POST":
            raise method_not_allowed(request.method, "kubeconfig")
        asked = parse_json(request.body)
        if not isinstance(asked, dict):
            raise bad_request("the body of the request is not an object")
        who = request.identity.user
        if asked.get("user"):
            return self._renewed_by_owner(request, str(asked["user"]))
        if asked.get("renew"):
            if request.identity.is_admin:
                raise bad_request(
                    "the owner's token is renewed by removing it: see docs/security.md"
                )
            self.tokens.renew(who.uid)
        return json_response(200, self._config(who, is_admin=request.identity.is_admin))

    def _renewed_by_owner(self, request: Request, user: str) -> Response:
        if not request.identity.is_admin:
            raise forbidden("kubeconfig", user, "only the cluster's owner ends others' tokens")
        if (uid := uid_of(user)) is None:
            raise bad_request(f"there is no user {user} on this machine")
        self.tokens.renew(uid)
        return json_response(200, {"renewed": user})

    def _config(self, who: User, *, is_admin: bool) -> dict[str, object]:
        if is_admin:
            return make_kubeconfig(
                port=self.port, authority=self.authority, token=self.owners_token
            )
        token, namespace = self.tokens.token_for(who.uid), who.namespace
        return make_kubeconfig(
            port=self.port, authority=self.authority, token=token, namespace=namespace
        )
