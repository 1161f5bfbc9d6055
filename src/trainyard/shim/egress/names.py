"""Questions of DNS that are answered without asking anybody, and how answers are written.

Names of the cluster are in every pod's /etc/hosts. What is asked of them here does not exist, and
the pods have no IPv6: both are said at once, so that no program waits for a far name server.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

from trainyard.shim.egress.policy import HOST_ADDRESS, HOST_NAME

_HEADER_BYTES = 12
_A, _AAAA = 1, 28
_INTERNET = 1
_TTL_SECONDS = 5
_RESPONSE, _OPCODE_AND_RESPONSE, _RECURSION = 0x8000, 0xF800, 0x0180
_NO_ERROR, _SERVER_FAILURE, _NO_SUCH_NAME = 0, 2, 3
_POINTER_TO_QUESTION = 0xC00C
_LONGEST_LABEL = 63
# Of pods and Services, by name and by address; names of one label are of hosts in the cluster.
_OURS = ("cluster.local", "trainyard.internal", "244.10.in-addr.arpa", "96.10.in-addr.arpa")


class Question(NamedTuple):
    """``message``: as it was sent, of which the question ends at ``end``."""

    message: bytes
    name: str
    kind: int
    end: int


def question(message: bytes) -> Question:
    """Raises ValueError where it is none, or more than one."""
    if len(message) < _HEADER_BYTES:
        raise ValueError("too short")
    _, flags, count = struct.unpack_from(">HHH", message)
    if flags & _OPCODE_AND_RESPONSE or count != 1:
        raise ValueError("not one question")
    labels, place = [], _HEADER_BYTES
    while place < len(message) and (length := message[place]):
        if length > _LONGEST_LABEL:
            raise ValueError("compressed")
        labels.append(message[place + 1 : place + 1 + length])
        place += 1 + length
    end = place + 5
    if end > len(message):
        raise ValueError("cut off")
    name = b".".join(labels).decode("ascii", "replace").lower()
    return Question(message, name, struct.unpack_from(">H", message, place + 1)[0], end)


def known(asked: Question) -> bytes | None:
    """The answer, if nobody else needs to be asked."""
    name = asked.name
    if name == HOST_NAME:
        return _answer(asked, _NO_ERROR, HOST_ADDRESS if asked.kind == _A else "")
    if any(name == ours or name.endswith(f".{ours}") for ours in _OURS):
        return _answer(asked, _NO_SUCH_NAME)
    if asked.kind in (_A, _AAAA) and "." not in name:
        return _answer(asked, _NO_SUCH_NAME)
    if asked.kind == _AAAA:
        return _answer(asked, _NO_ERROR)
    return None


def failure(asked: Question) -> bytes:
    """That no name server answers."""
    return _answer(asked, _SERVER_FAILURE)


def is_answer(message: bytes, asked: Question) -> bool:
    return (
        len(message) >= _HEADER_BYTES
        and message[:2] == asked.message[:2]
        and bool(message[2] & _RESPONSE >> 8)
    )


def _answer(asked: Question, code: int, address: str = "") -> bytes:
    flags = _RESPONSE | _RECURSION | code
    head = struct.pack(">HHHHH", flags, 1, 1 if address else 0, 0, 0)
    message = asked.message[:2] + head + asked.message[_HEADER_BYTES : asked.end]
    if address:
        record = (_POINTER_TO_QUESTION, _A, _INTERNET, _TTL_SECONDS, 4)
        message += struct.pack(">HHHIH", *record) + socket.inet_aton(address)
    return message
