"""Requests and answers between relay and shim for sockets with the caller's address."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from trainyard.podruntime.network import source_ip_sockets
from trainyard.podruntime.network.source_ip_sockets import SourceIpSockets


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The relay's end, and the shim's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_many_ask_at_once_and_each_gets_its_own(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    relay = SourceIpSockets(ours)
    found: dict[str, tuple[str, int]] = {}

    def ask(address: str) -> None:
        with relay.open(address) as made:
            found[address] = made.getsockname()

    addresses = [f"10.244.0.{n}" for n in range(2, 20)]
    threads = [threading.Thread(target=ask, args=(each,)) for each in addresses]
    for each in threads:
        each.start()
    made: dict[str, tuple[str, int]] = {}
    for number, address, _ in [source_ip_sockets.parse_request(theirs.recv(99)) for _ in addresses][
        ::-1
    ]:
        with socket.socket() as own:
            own.bind(("127.0.0.1", 0))
            made[address] = own.getsockname()
            relay.on_answer(
                source_ip_sockets.pack_answer(number, is_pod=True), [os.dup(own.fileno())]
            )
    for each in threads:
        each.join()
    assert found == made
    assert sorted(made) == sorted(addresses)


def on_answer(
    ends: tuple[socket.socket, socket.socket], given: list[int], *, is_pod: bool
) -> socket.socket:
    ours, theirs = ends
    relay = SourceIpSockets(ours)

    def pod_runtime() -> None:
        number, _, _ = source_ip_sockets.parse_request(theirs.recv(99))
        relay.on_answer(source_ip_sockets.pack_answer(number, is_pod=is_pod), given)

    thread = threading.Thread(target=pod_runtime)
    thread.start()
    try:
        return relay.open("10.0.0.1")
    finally:
        thread.join()


def test_who_is_no_pod_is_served_from_here(ends: tuple[socket.socket, socket.socket]) -> None:
    with on_answer(ends, [], is_pod=False) as made:
        assert made.family == socket.AF_INET


def test_a_pod_without_a_socket_is_never_served_as_another(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    with pytest.raises(OSError, match="no socket for it now"):
        on_answer(ends, [], is_pod=True)


def test_what_nobody_waits_for_is_closed(ends: tuple[socket.socket, socket.socket]) -> None:
    relay = SourceIpSockets(ends[0])
    before = descriptors()
    relay.on_answer(source_ip_sockets.pack_answer(7, is_pod=True), [os.dup(0)])
    assert descriptors() == before


def test_what_comes_too_late_is_closed(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_ip_sockets, "_ANSWER_SECONDS", 0.01)
    relay = SourceIpSockets(ends[0])
    with pytest.raises(OSError, match="no socket for it now"):
        relay.open("10.0.0.1")
    before = descriptors()
    number, _, _ = source_ip_sockets.parse_request(ends[1].recv(99))
    relay.on_answer(source_ip_sockets.pack_answer(number, is_pod=True), [os.dup(0)])
    assert descriptors() == before


def test_a_shim_that_is_gone_is_an_error(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[1].close()
    with pytest.raises(OSError, match=r"Broken pipe|not connected"):
        SourceIpSockets(ends[0]).open("10.0.0.1")


@pytest.mark.parametrize("data", [b"x", b"\0" * 12, b"\0" * 14, b"\0" * 13])
def test_a_request_that_cannot_be_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"buffer|no kind"):
        source_ip_sockets.parse_request(data)
