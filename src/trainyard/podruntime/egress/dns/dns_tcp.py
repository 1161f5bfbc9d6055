"""DNS over TCP (RFC 7766): pods that ask over connections, each as many questions as it likes."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from functools import partial

from trainyard.podruntime.egress.dns import dns_messages
from trainyard.podruntime.egress.egress_policy import Quota, is_pod
from trainyard.podruntime.egress.relay_loop import IN, OUT, Poll

_AT_ONCE = 64
_CHUNK = 64 << 10
_IDLE_SECONDS = 30.0
_MOST_UNREAD_BYTES = 1 << 20

Reply = Callable[[bytes], None]
Take = Callable[[dns_messages.Question, bytes, Reply], None]
"""A question, the pod that asks it, and what its answer is given to, now or later."""


class _Conversation:
    """``waiting``: how many questions are not answered yet."""

    def __init__(self, pod: bytes, end: socket.socket) -> None:
        self.pod, self.end = pod, end
        self.read, self.unsent = b"", b""
        self.waiting = 0
        self.has_ended = self.is_closed = False
        self.used_at = time.monotonic()


class Conversations:
    """``listener`` is a socket of the gate."""

    def __init__(self, listener: socket.socket, poll: Poll, quota: Quota, take: Take) -> None:
        self._listener, self._poll, self._quota, self._take = listener, poll, quota, take
        self._open: set[_Conversation] = set()
        poll.watch(listener.fileno(), self._accept)
        poll.every_second(self._sweep)

    def _accept(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            for _turn in range(_AT_ONCE):
                end, (source, _port) = self._listener.accept()
                pod = socket.inet_aton(source)
                if not is_pod(pod) or not self._quota.take(pod):
                    end.close()
                    continue
                end.setblocking(False)
                made = _Conversation(pod, end)
                self._open.add(made)
                self._poll.watch(end.fileno(), partial(self._ready, made))

    def _ready(self, one: _Conversation, events: int) -> None:
        try:
            if events & OUT:
                one.unsent = one.unsent[one.end.send(one.unsent) :]
            if not events & ~OUT:
                self._settle(one)
                return
            data = one.end.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self._close(one)
            return
        one.used_at = time.monotonic()
        one.has_ended |= not data
        messages, one.read = _divided(one.read + data)
        try:
            for message in messages:
                asked = dns_messages.read_question(message)
                one.waiting += 1
                self._take(asked, one.pod, partial(self._reply, one))
        except ValueError:
            self._close(one)
        self._settle(one)

    def _reply(self, one: _Conversation, answer: bytes) -> None:
        one.waiting -= 1
        if one.is_closed:
            return
        one.used_at = time.monotonic()
        one.unsent += struct.pack(">H", len(answer)) + answer
        try:
            one.unsent = one.unsent[one.end.send(one.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._close(one)
            return
        self._settle(one)

    def _settle(self, one: _Conversation) -> None:
        """Wait for what is to come, if anything is."""
        if one.is_closed:
            return
        is_over = one.has_ended and not one.waiting and not one.unsent
        if is_over or len(one.unsent) > _MOST_UNREAD_BYTES:
            self._close(one)
            return
        self._poll.forget(one.end.fileno())
        events = (0 if one.has_ended else IN) | (OUT if one.unsent else 0)
        self._poll.watch(one.end.fileno(), partial(self._ready, one), events)

    def _close(self, one: _Conversation) -> None:
        if not one.is_closed:
            one.is_closed = True
            self._poll.forget(one.end.fileno())
            one.end.close()
            self._open.discard(one)
            self._quota.give_back(one.pod)

    def forget_pod(self, pod: bytes) -> None:
        for one in [each for each in self._open if each.pod == pod]:
            self._close(one)

    def _sweep(self, now: float) -> None:
        for one in [each for each in self._open if each.used_at + _IDLE_SECONDS < now]:
            self._close(one)


def _divided(data: bytes) -> tuple[list[bytes], bytes]:
    """Whole messages, and the beginning of another."""
    messages, place = [], 0
    while len(data) >= place + 2:
        end = place + 2 + int.from_bytes(data[place : place + 2], "big")
        if len(data) < end:
            break
        messages.append(data[place + 2 : end])
        place = end
    return messages, data[place:]
