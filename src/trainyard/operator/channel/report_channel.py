"""The report channel: pods send reports over HTTPS, with the token of their job.

A report becomes part of what the controller observes (`report_intake.py`). The channel must not act
on anything that a pod says. Its own HTTP server stays: aiohttp's takes twice the processor time a
report, and importing it costs every embedded cluster 0.2 s and 14 MB (decision 217).
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
    is_finished: bool
    owns_pod: bool
    """Whether the pod that the report names belongs to the job."""


class ReportListener(Protocol):
    """The receiver of reports: the controller."""

    @property
    def is_working(self) -> bool:
        """Whether it leads; a standby would lose reports."""

    def find_job(self, plural: str, namespace: str, name: str, pod: str) -> ReportedJob | None:
        """The job, or None where it is unknown."""

    def allows(self, uid: str, pod: str) -> bool:
        """Whether the rate limits of pod and job allow another report, which is then counted."""

    def receive(self, uid: str, pod: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take in a report; returns the answer's body. Raises BadReport."""


Renew = Callable[[], Awaitable[ChannelCA]]


class ReportChannel:
    """Serves reports of pods; `renew` is asked once an hour for the CA that is valid now."""

    def __init__(
        self, ca: ChannelCA, renew: Renew, answered: Callable[[int], None] = lambda status: None
    ) -> None:
        """`answered` is called with the HTTP status of every answer."""
        self.ca = ca
        self._renew, self._answered = renew, answered
        self._context: ssl.SSLContext | None = None
        self._listener: ReportListener | None = None

    async def serve(self, listening: socket.socket, listener: ReportListener) -> None:
        """Answer on a listening socket until cancelled."""
        self._listener = listener
        server = ReportServer(self._tls, self._answer, self._refuse)
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(listening))
            group.create_task(self._renew_certificates())

    async def _renew_certificates(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                found = await self._renew()
            except Exception as error:  # the present one is valid for months
                log.warning("the channel's certificate could not be looked after: %s", error)
                continue
            if found is not self.ca:
                self.ca, self._context = found, None

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = self.ca.server_ssl_context()
        return self._context

    def _answer(self, request: HttpRequest) -> HttpReply:
        try:
            reply = self._handle(request)
        except Exception:  # a defect that one report runs into must not end the channel
            log.exception("a report could not be taken in")
            reply = _status(500, "InternalError", "the report could not be taken in")
        self._answered(reply.status)
        return reply

    def _refuse(self, status: int, text: str) -> HttpReply:
        self._answered(status)
        return _refusal(status, text)

    def _handle(self, request: HttpRequest) -> HttpReply:
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
        job = self._listener.find_job(plural, namespace, name, pod)
        if not self._is_authorized(request, job) or job is None:
            return _refusal(401, "no token of this job: see KUBEFLOW_TRAINER_SERVER_TOKEN")
        if not job.owns_pod:
            return _refusal(404, f"the job has no pod {pod}")
        if not self._listener.allows(job.uid, pod):
            return _refusal(429, "too many reports")
        return self._receive(job, pod, request.body)

    def _is_authorized(self, request: HttpRequest, job: ReportedJob | None) -> bool:
        # For an unknown job a comparison takes as long, and always fails.
        token = self.ca.token("" if job is None else job.uid)
        scheme, _, given = request.headers.get(b"authorization", b"").partition(b" ")
        same = hmac.compare_digest(given.strip(), token.encode())
        return same and scheme.lower() == b"bearer" and job is not None

    def _receive(self, job: ReportedJob, pod: str, text: bytes) -> HttpReply:
        assert self._listener is not None
        if job.is_finished:
            return _refusal(409, "the job has ended")
        try:
            body = orjson.loads(text)
        except ValueError as error:
            return _refusal(400, f"the report is not JSON: {error}")
        if not isinstance(body, dict):
            return _refusal(422, "the report is not an object")
        try:
            answer = self._listener.receive(job.uid, pod, body)
        except BadReport as error:
            return _refusal(422, str(error))
        return HttpReply(200, text if answer is body else orjson.dumps(answer))


def _refusal(status: int, text: str) -> HttpReply:
    return _status(status, _REASONS.get(status, "BadRequest"), text)


def _status(code: int, reason: str, message: str) -> HttpReply:
    """A Status object, as an API server answers with."""
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
