"""Answers pods' DNS queries: cluster names here, the rest by the machine's name servers."""

from __future__ import annotations

import contextlib
import socket
from functools import partial

from trainyard.podruntime.egress.dns import dns_local_answers, dns_messages
from trainyard.podruntime.egress.dns.cluster_zone import ClusterZone
from trainyard.podruntime.egress.dns.dns_tcp import DnsTcpServer, Reply
from trainyard.podruntime.egress.dns.dns_upstream import UpstreamServers
from trainyard.podruntime.egress.egress_policy import PodQuota, is_pod
from trainyard.podruntime.egress.relay_loop import RelayLoop

_AT_ONCE = 64

Client = tuple[str, int]


class Resolver:
    """``questions`` and ``long_questions`` (TCP) are sockets of ``tproxy_setup``."""

    def __init__(
        self,
        questions: socket.socket,
        long_questions: socket.socket,
        loop: RelayLoop,
        zone: ClusterZone,
        quota: PodQuota,
        connections: PodQuota,
    ) -> None:
        self._questions, self._zone, self._quota = questions, zone, quota
        self._upstream = UpstreamServers(loop)
        handler = partial(self._handle, is_long=True)
        self._tcp_server = DnsTcpServer(long_questions, loop, connections, handler)
        loop.watch(questions.fileno(), self._read)

    def forget_pod(self, pod: bytes) -> None:
        self._tcp_server.forget_pod(pod)

    def _read(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for _turn in range(_AT_ONCE):
                message, client = self._questions.recvfrom(dns_messages.MAX_MESSAGE_BYTES)
                try:
                    asked = dns_messages.read_question(message)
                except ValueError:
                    continue
                pod = socket.inet_aton(client[0])
                if is_pod(pod):
                    self._handle(asked, pod, partial(self._answer, client), is_long=False)

    def _answer(self, client: Client, message: bytes) -> None:
        with contextlib.suppress(OSError):
            self._questions.sendto(message, client)

    def _handle(
        self, asked: dns_messages.DnsQuestion, pod: bytes, reply: Reply, *, is_long: bool
    ) -> None:
        """Answer a query, now or once a name server has answered."""
        max_bytes = dns_messages.MAX_MESSAGE_BYTES if is_long else asked.max_bytes
        local = dns_local_answers.answer_locally(asked, self._zone)
        if local is not None and not local.elsewhere:
            reply(dns_messages.build_answer(asked, local.answer, max_bytes))
            return
        failure = dns_messages.build_answer(
            asked, dns_messages.DnsAnswer(dns_messages.SERVER_FAILURE)
        )
        if not self._quota.take(pod):
            reply(failure)
            return

        def done(message: bytes | None) -> None:
            self._quota.give_back(pod)
            if message is not None and local is not None:
                message = _join_answers(asked, local.answer, message, max_bytes)
            reply(failure if message is None else message)

        message = asked.message
        if local is not None:
            message = dns_messages.build_query(asked.message[:2], local.elsewhere, asked.kind)
        self._upstream.ask(message, done, is_long=is_long)


def _join_answers(
    asked: dns_messages.DnsQuestion,
    local_answer: dns_messages.DnsAnswer,
    message: bytes,
    max_bytes: int,
) -> bytes | None:
    """Join the local beginning of an answer with what a name server says; None if it is invalid."""
    try:
        found = dns_messages.read_answer(message, asked.kind)
        records = (*local_answer.records, *found.records)
        return dns_messages.build_answer(asked, found._replace(records=records), max_bytes)
    except ValueError:
        return None
