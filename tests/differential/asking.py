"""Cases played against a server, and what of its answers counts."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.differential.cases import Case, Step
from tests.differential.requests import LATEST

Answer = dict[str, Any]
Ask = Callable[[str, str, bytes | None, str], tuple[int, bytes]]
"""Method, path, body and its type; status and body of the answer."""


@contextmanager
def over(
    connect: Callable[[], http.client.HTTPConnection], headers: dict[str, str]
) -> Iterator[Ask]:
    """Requests over one connection of this thread, made anew where the server closed it."""
    state: list[http.client.HTTPConnection] = []

    def ask(method: str, path: str, body: bytes | None, kind: str) -> tuple[int, bytes]:
        for attempt in (1, 2):
            if not state:
                state.append(connect())
            sent = {**headers, **({"Content-Type": kind} if kind and body is not None else {})}
            try:
                state[0].request(method, path, body=body, headers=sent)
                answer = state[0].getresponse()
                return answer.status, answer.read()
            except (http.client.HTTPException, OSError):
                state.pop().close()
                if attempt == 2:
                    raise
        raise AssertionError

    try:
        yield ask
    finally:
        for connection in state:
            connection.close()


def play(
    case: Case, namespace: str, ask: Ask, counted: Callable[[int, Any], Answer] | None = None
) -> list[Answer]:
    """What every step was answered; `counted`: what of it counts."""
    answers, version = [], ""
    for step in case.steps:
        status, body = ask(*_request(step, namespace, version))
        try:
            told = json.loads(body)
        except ValueError:
            told = None
        answers.append((counted or _counted)(status, told))
        if isinstance(told, dict) and isinstance(told.get("metadata"), dict):
            version = told["metadata"].get("resourceVersion") or version
    return answers


def _request(step: Step, namespace: str, version: str) -> tuple[str, str, bytes | None, str]:
    body = None
    if step.body is not None:
        text = json.dumps(step.body).replace("{ns}", namespace).replace(LATEST, version)
        body = text.encode()
    return step.method, step.path.replace("{ns}", namespace), body, step.content_type


def _counted(status: int, told: Any) -> Answer:
    """Status and reason, the fields that are blamed, or the kind of what came."""
    if not isinstance(told, dict):
        return {"code": status}
    if told.get("kind") != "Status":
        return {"code": status, "kind": told.get("kind", "")}
    found: Answer = {"code": status, "reason": told.get("reason", "")}
    details = told.get("details") or {}
    if fields := sorted({cause.get("field", "") for cause in details.get("causes") or ()}):
        found["fields"] = fields
    return found
