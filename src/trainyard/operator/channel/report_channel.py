"""The pods' channel: where replicas tell how they do, over HTTPS, with a token of their job.

What it takes in becomes something observed (`reports.py`); nothing that a pod says is done.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

import orjson

from trainyard.operator.channel.channel_ca import ChannelCA
from trainyard.operator.channel.report_http import HttpReply, HttpRequest, ReportServer
from trainyard.operator.channel.trainer_status import BadReport
from trainyard.schema.dataclass import dataclass

log = logging.getLogger(__name__)

_PATH = re.compile(
    r"/apis/(?P<group>[^/]+)/(?P<version>[^/]+)/namespaces/(?P<namespace>[^/]+)"
    r"/(?P<plural>[^/]+)/(?P<name>[^/]+)/status"
)
_RENEW_SECONDS = 3600.0
_RETRY = {"Retry-After": "1"}
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    409: "Conflict",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
}


@dataclass(frozen=True, slots=True)
class ReportedJob:
    """The job that a report is about."""

    uid: str
    ended: bool
    has_pod: bool
    """Whether the pod that it names is the job's."""


class ReportListener(Protocol):
    """Whoever reports are for: the controller."""

    @property
    def is_working(self) -> bool:
        """Whether it leads."""

    def find_job(self, plural: str, namespace: str, name: str, pod: str) -> ReportedJob | None:
        """The job, if it is known."""

    def allows(self, uid: str, pod: str) -> bool:
        """Whether another report of the pod may come in now, which is then counted."""

    def receive(self, uid: str, pod: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take in a report; raises BadReport."""


Renew = Callable[[], Awaitable[ChannelCA]]


class ReportChannel:
    """Serves the reports of pods. `authority` is what is trusted now; `renew` looks whether it is
    still good, now and then."""

    def __init__(
        self, authority: ChannelCA, renew: Renew, told: Callable[[int], None] = lambda status: None
    ) -> None:
        """`told` is given the status of every answer."""
        self.authority = authority
        self._renew, self._told = renew, told
        self._context: ssl.SSLContext | None = None
        self._listener: ReportListener | None = None

    async def serve(self, end: socket.socket, listener: ReportListener) -> None:
        """Answer on a listening socket until cancelled."""
        self._listener = listener
        door = ReportServer(self._tls, self._answer, self._refuse)
        async with asyncio.TaskGroup() as group:
            group.create_task(door.serve(end))
            group.create_task(self._keep_good())

    async def _keep_good(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                found = await self._renew()
            except Exception as error:  # what there is, is good for months
                log.warning("the channel's certificate could not be looked after: %s", error)
                continue
            if found is not self.authority:
                self.authority, self._context = found, None

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = self.authority.server_ssl_context()
        return self._context

    def _answer(self, request: HttpRequest) -> HttpReply:
        try:
            reply = self._judge(request)
        except Exception:  # a defect met by one report must not end the others
            log.exception("a report could not be taken in")
            reply = _status(500, "InternalError", "the report could not be taken in")
        self._told(reply.status)
        return reply

    def _refuse(self, status: int, text: str) -> HttpReply:
        self._told(status)
        return _refusal(status, text)

    def _judge(self, request: HttpRequest) -> HttpReply:
        assert self._listener is not None
        if not self._listener.is_working:
            return _refusal(503, "this controller stands by; another leads")
        url = urlsplit(request.target)
        found = _PATH.fullmatch(url.path)
        if found is None:
            return _refusal(404, "there is nothing here but the status of jobs")
        if request.method not in ("POST", "PUT"):
            return _refusal(405, "reports are sent by POST")
        pod = next(iter(parse_qs(url.query).get("pod", ())), "")
        plural, namespace, name = (unquote(found[e]) for e in ("plural", "namespace", "name"))
        subject = self._listener.find_job(plural, namespace, name, pod)
        if not self._is_trusted(request, subject) or subject is None:
            return _refusal(401, "no token of this job: see KUBEFLOW_TRAINER_SERVER_TOKEN")
        if not subject.has_pod:
            return _refusal(404, f"the job has no pod {pod}")
        if not self._listener.allows(subject.uid, pod):
            return _refusal(429, "too many reports")
        return self._take(subject, pod, request.body)

    def _is_trusted(self, request: HttpRequest, subject: ReportedJob | None) -> bool:
        # What is compared where there is no such job takes as long, and is never right.
        token = self.authority.token("" if subject is None else subject.uid)
        scheme, _, given = request.headers.get(b"authorization", b"").partition(b" ")
        same = hmac.compare_digest(given.strip(), token.encode())
        return same and scheme.lower() == b"bearer" and subject is not None

    def _take(self, subject: ReportedJob, pod: str, text: bytes) -> HttpReply:
        assert self._listener is not None
        if subject.ended:
            return _refusal(409, "the job has ended")
        try:
            body = orjson.loads(text)
        except ValueError as error:
            return _refusal(400, f"the report is not JSON: {error}")
        if not isinstance(body, dict):
            return _refusal(422, "the report is not an object")
        try:
            answer = self._listener.receive(subject.uid, pod, body)
        except BadReport as error:
            return _refusal(422, str(error))
        return HttpReply(200, text if answer is body else orjson.dumps(answer))


def _refusal(status: int, text: str) -> HttpReply:
    return _status(status, _REASONS.get(status, "BadRequest"), text)


def _status(code: int, reason: str, message: str) -> HttpReply:
    """As an API server tells what is wrong."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return HttpReply(code, orjson.dumps(body), _RETRY if code in (429, 503) else {})
