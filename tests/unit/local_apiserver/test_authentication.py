"""Who may ask is judged by a request's head alone."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from tests.unit.local_apiserver.port import TOKEN, Port, head, serving

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
