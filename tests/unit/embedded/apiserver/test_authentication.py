"""Who may ask is judged by a request's head alone."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from tests.unit.embedded.apiserver.port import TOKEN, Port, head, serving
from trainyard.embedded.apiserver.auth.request_identity import Authenticator
from trainyard.embedded.user_tokens import UserTokens
from trainyard.machine.users import AllowList

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
MAPS = "/api/v1/namespaces/default/configmaps"
ENCODED = base64.urlsafe_b64encode(TOKEN.encode()).decode().rstrip("=")


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[Port]:
    async with serving(tmp_path) as served:
        yield served


@pytest.mark.parametrize(
    "line",
    [
        f"Authorization: Bearer {TOKEN}",
        f"Authorization: bearer {TOKEN}",
        f"authorization: BEARER   {TOKEN}  ",
        f"Sec-WebSocket-Protocol: a, base64url.bearer.authorization.k8s.io.{ENCODED}",
    ],
)
async def test_a_token_is_accepted_however_it_is_written(port: Port, line: str) -> None:
    async with port.tls() as client:
        answer = await client.ask(head("GET", MAPS, line, token=""))
    assert answer.status == 200


@pytest.mark.parametrize(
    "line",
    [
        "X: y",
        "Authorization: Bearer",
        "Authorization: Bearer wrong",
        f"Authorization: Basic {TOKEN}",
        f"Authorization: {TOKEN}",
        f"Authorization: Bearer {TOKEN}\r\nAuthorization: Bearer {TOKEN}",
        "Authorization: Bearer \xff\xfe",
        "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.!!!",
    ],
)
async def test_anything_else_is_refused(port: Port, line: str) -> None:
    async with port.tls() as client:
        answer = await client.ask(head("GET", MAPS, line, token=""))
        assert (answer.status, orjson.loads(answer.body)["reason"]) == (401, "Unauthorized")
        assert await client.is_closed()


async def test_a_refusal_does_not_wait_for_the_body(port: Port) -> None:
    async with port.tls() as client:
        answer = await client.ask(head("POST", MAPS, "Content-Length: 1000000", token=""))
    assert answer.status == 401


async def test_nobody_is_told_to_send_a_body_that_will_be_refused(port: Port) -> None:
    lines = ("Content-Length: 1000000", "Expect: 100-continue")
    async with port.tls() as client:
        assert (await client.ask(head("POST", MAPS, *lines, token=""))).status == 401
    async with port.tls() as client:
        assert (await client.ask(head("POST", MAPS, *lines))).status == 100


async def test_every_request_of_a_connection_is_judged_and_answers_keep_their_order(
    port: Port,
) -> None:
    async with port.tls() as client:
        client.send(head("GET", MAPS) + head("GET", MAPS, token="wrong") + head("GET", MAPS))
        assert (await client.answer()).status == 200
        assert (await client.answer()).status == 401
        assert await client.is_closed()


async def test_the_owners_socket_needs_no_token(port: Port) -> None:
    async with port.unix() as client:
        assert (await client.ask(head("GET", MAPS, token=""))).status == 200


async def test_the_certificates_pass_the_strictest_check(port: Port) -> None:
    """That of Python 3.13 and newer, which wants the extensions of RFC 5280."""
    port.context.verify_flags |= ssl.VERIFY_X509_STRICT
    async with port.tls() as client:
        assert (await client.ask(head("GET", "/version"))).status == 200


async def reviewed(port: Port, spec: object) -> tuple[int, dict[str, object]]:
    """What is said of a TokenReview: the code, and its status."""
    body = orjson.dumps({"spec": spec})
    async with port.unix() as client:
        asked = head("POST", TOKEN_REVIEWS, f"Content-Length: {len(body)}", token="")
        answer = await client.ask(asked + body)
    return answer.status, orjson.loads(answer.body)["status"]


async def test_a_token_review_says_whose_token_it_is(tmp_path: Path) -> None:
    authenticator = Authenticator(
        AllowList(users=frozenset({61002})), UserTokens(tmp_path / "tokens")
    )
    async with serving(tmp_path, authenticator=authenticator) as port:
        owner = {
            "username": "trainyard-admin",
            "groups": ["system:masters", "system:authenticated"],
        }
        assert await reviewed(port, {"token": TOKEN}) == (
            201,
            {"authenticated": True, "user": owner},
        )
        bob = {"username": "61002", "groups": ["system:authenticated"], "uid": "61002"}
        assert await reviewed(port, {"token": authenticator.tokens.token_for(61002)}) == (
            201,
            {"authenticated": True, "user": bob},
        )


@pytest.mark.parametrize("token", [f"{TOKEN}x", "ü", "61002.0.0"])
async def test_a_token_review_of_a_token_that_is_nobodys_says_so(port: Port, token: str) -> None:
    code, status = await reviewed(port, {"token": token})
    assert (code, status["user"], status.get("authenticated")) == (201, {}, None)
    assert "no token of this cluster" in str(status["error"])


async def test_a_token_review_tells_of_who_may_no_longer_use_the_cluster(tmp_path: Path) -> None:
    authenticator = Authenticator(
        AllowList(users=frozenset({61002})), UserTokens(tmp_path / "tokens")
    )
    async with serving(tmp_path, authenticator=authenticator) as port:
        code, status = await reviewed(port, {"token": authenticator.tokens.token_for(61003)})
    assert (code, status["user"], status.get("authenticated")) == (201, {}, None)
    assert "user 61003 may not use this cluster" in str(status["error"])


@pytest.mark.parametrize("spec", [{}, {"token": ""}, {"token": 1}])
async def test_a_token_review_without_a_token_is_refused(port: Port, spec: object) -> None:
    assert await reviewed(port, spec) == (400, "Failure")
