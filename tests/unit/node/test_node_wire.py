"""Messages between agent and shim arrive whole, in order, with their descriptors."""

from __future__ import annotations

import os
import socket

from hypothesis import given
from hypothesis import strategies as st

from trainyard.shim import wire


@given(st.lists(st.dictionaries(st.text(), st.integers()), max_size=5), st.integers(1, 20))
def test_any_cut_of_the_stream_gives_the_same_messages(messages: list, size: int) -> None:
    data = b"".join(map(wire.encode, messages))
    decoder, found = wire.Decoder(), []
    for start in range(0, len(data), size):
        found += decoder.feed(data[start : start + size])
    assert [wire.parse(frame) for frame in found] == messages


def test_descriptors_come_with_their_message() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    with ours, theirs:
        socket.send_fds(ours, [wire.encode({"n": 1})], [writer])
        os.close(writer)
        decoder = wire.Decoder()
        assert [wire.parse(frame) for frame in decoder.receive(theirs) or ()] == [{"n": 1}]
        (received,) = decoder.take_descriptors(1)
        os.write(received, b"through")
        os.close(received)
        ours.close()
        assert decoder.receive(theirs) is None
    assert os.read(reader, 10) == b"through"
    os.close(reader)
