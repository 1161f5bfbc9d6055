"""Name look-ups of pods: names of the cluster are known here, the machine's name servers are asked
for the rest."""

from __future__ import annotations

import contextlib
import socket
from functools import partial

from trainyard.podruntime.egress.dns import dns_local_answers, dns_messages
from trainyard.podruntime.egress.dns.cluster_zone import Zone
from trainyard.podruntime.egress.dns.dns_tcp import Conversations, Reply
from trainyard.podruntime.egress.dns.dns_upstream import Upstream
from trainyard.podruntime.egress.egress_policy import Quota, is_pod
from trainyard.podruntime.egress.relay_loop import Poll

_AT_ONCE = 64

Client = tuple[str, int]


class Resolver:
    """``questions`` and ``long_questions`` (TCP) are sockets of the gate."""

    def __init__(
        self,
        questions: socket.socket,
        long_questions: socket.socket,
        poll: Poll,
        zone: Zone,
        quota: Quota,
        connections: Quota,
    ) -> None:
        self._questions, self._zone, self._quota = questions, zone, quota
        self._upstream = Upstream(poll)
        take = partial(self._take, is_long=True)
        self._conversations = Conversations(long_questions, poll, connections, take)
        poll.watch(questions.fileno(), self._read)

    def forget_pod(self, pod: bytes) -> None:
        self._conversations.forget_pod(pod)

    def _read(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for _turn in range(_AT_ONCE):
                message, client = self._questions.recvfrom(dns_messages.MOST_BYTES)
                try:
                    asked = dns_messages.read_question(message)
                except ValueError:
                    continue
                pod = socket.inet_aton(client[0])
                if is_pod(pod):
                    self._take(asked, pod, partial(self._answer, client), is_long=False)

    def _answer(self, client: Client, message: bytes) -> None:
        with contextlib.suppress(OSError):
            self._questions.sendto(message, client)

    def _take(
        self, asked: dns_messages.Question, pod: bytes, reply: Reply, *, is_long: bool
    ) -> None:
        """Answer it, now or when a name server has."""
        room = dns_messages.MOST_BYTES if is_long else asked.room
        local = dns_local_answers.known(asked, self._zone)
        if local is not None and not local.elsewhere:
            reply(dns_messages.write(asked, local.answer, room))
            return
        failure = dns_messages.write(asked, dns_messages.Answer(dns_messages.SERVER_FAILURE))
        if not self._quota.take(pod):
            reply(failure)
            return

        def done(message: bytes | None) -> None:
            self._quota.give_back(pod)
            if message is not None and local is not None:
                message = _joined(asked, local.answer, message, room)
            reply(failure if message is None else message)

        message = asked.message
        if local is not None:
            message = dns_messages.question(asked.message[:2], local.elsewhere, asked.kind)
        self._upstream.ask(message, done, is_long=is_long)


def _joined(
    asked: dns_messages.Question, known: dns_messages.Answer, message: bytes, room: int
) -> bytes | None:
    """What is known here, and then what a name server says of where that leads."""
    try:
        found = dns_messages.read_answer(message, asked.kind)
        records = (*known.records, *found.records)
        return dns_messages.write(asked, found._replace(records=records), room)
    except ValueError:
        return None
