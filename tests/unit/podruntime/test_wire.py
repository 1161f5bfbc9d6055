"""Messages between agent and shim arrive whole, in order, with their descriptors."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.podruntime import protocol, wire


@given(st.lists(st.dictionaries(st.text(), st.integers()), max_size=5), st.integers(1, 20))
def test_any_cut_of_the_stream_gives_the_same_messages(messages: list, size: int) -> None:
    data = b"".join(map(wire.encode, messages))
    decoder, found = wire.Decoder(), []
    for start in range(0, len(data), size):
        found += decoder.feed(data[start : start + size])
    assert [wire.parse(frame) for frame in found] == messages


def test_descriptors_that_got_lost_are_not_replaced_by_those_of_the_next_message() -> None:
    ours, theirs = socket.socketpair()
    readers = [os.pipe() for _ in range(2)]
    with ours, theirs:
        for number, (_, writer) in enumerate(readers):
            socket.send_fds(ours, [wire.encode({"n": number})], [writer])
            os.close(writer)
        decoder = wire.Decoder()
        frames: list[bytes] = []
        while len(frames) < 2:
            frames += decoder.receive(theirs) or ()
        with pytest.raises(protocol.ProtocolError, match="1 of 2 descriptors arrived"):
            decoder.take_descriptors(2)
        assert os.read(readers[0][0], 1) == b"", "what nobody can use is closed"
        (second,) = decoder.take_descriptors(1)
        os.write(second, b"x")
        os.close(second)
        assert os.read(readers[1][0], 1) == b"x"
    for reader, _ in readers:
        os.close(reader)


def test_descriptors_that_no_message_speaks_of_end_the_connection() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        decoder = wire.Decoder()

        def send_many() -> None:
            for _ in range(100):
                socket.send_fds(ours, [wire.encode({})], [theirs.fileno()])
                decoder.receive(theirs)

        with pytest.raises(wire.FrameError):
            send_many()
        decoder.close()


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


# Connects as soon as each socket is there; prints how often nobody listened.
_EAGER = """
import os, socket, sys
refused = 0
for number in range(int(sys.argv[2])):
    path = f"{sys.argv[1]}/{number}/shim.sock"
    while not os.path.exists(path):
        pass
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except ConnectionRefusedError:
            refused += 1
print(refused)
"""


def test_a_shim_that_is_found_takes_connections(tmp_path: Path) -> None:
    count = 200
    argv = [sys.executable, "-I", "-S", "-c", _EAGER, str(tmp_path), str(count)]
    listeners = []
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as eager:
        for number in range(count):
            folder = tmp_path / f"{number}"
            folder.mkdir()
            listeners.append(wire.listen(str(folder)))
        assert eager.stdout is not None
        assert eager.stdout.read() == "0\n"
    for listener in listeners:
        listener.close()
