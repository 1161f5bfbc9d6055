"""A machine and what is outside of it, for tests of the way out.

Both are network namespaces with a cable between them, so that nothing depends on the network of
whoever runs the tests. Outside are servers of the standard library; the machine has services of its
own, which pods must not reach. Needs root.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import os
import resource
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from trainyard.podruntime import syscalls
from trainyard.podruntime.network.netlink import LOOPBACK_INDEX, POD_LINK_INDEX, Netlink

MACHINE, SERVER, METADATA = "203.0.113.1", "203.0.113.80", "169.254.169.254"
NOWHERE = "198.51.100.7"
"""No route leads there."""
NAME = "data.example.org"
HTTP_PORT, ECHO_PORT, SINK_PORT, CLOSED_PORT = 80, 7007, 7008, 7009
ALLOWED_PORT, DENIED_PORT, EVERYWHERE_PORT = 5432, 5433, 5434
SIZE = 8 << 20
MS_PRIVATE = 1 << 18


def data() -> bytes:
    """What is downloaded."""
    return hashlib.sha256(b"seed").digest() * (SIZE // 32)


class _Files(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        content = data()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        answer = hashlib.sha256(content).hexdigest().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


class _FileServer(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Clients of these tests may go whenever they want."""


def _thread(serve: Callable[[], None]) -> None:
    threading.Thread(target=serve, daemon=True).start()


def _dns_answer(message: bytes) -> bytes:
    """A of ``NAME``; anything else does not exist."""
    end = message.index(b"\0", 12) + 5
    asked = message[12 : end - 5]
    is_known = asked.lower() == b"".join(bytes([len(p)]) + p.encode() for p in NAME.split("."))
    head = message[:2] + struct.pack(
        ">HHHHH", 0x8180 if is_known else 0x8183, 1, int(is_known), 0, 0
    )
    record = struct.pack(">HHHIH", 0xC00C, 1, 1, 60, 4) + socket.inet_aton(SERVER)
    return head + message[12:end] + (record if is_known else b"")


def _serve_dns(asked: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours, open(asked, "ab", 0) as kept:
        ours.bind((SERVER, 53))
        while True:
            message, client = ours.recvfrom(4096)
            end = message.index(b"\0", 12)
            kept.write(message[12:end] + b"\n")
            ours.sendto(_dns_answer(message), client)


def _serve_long_dns() -> None:
    with socket.create_server((SERVER, 53)) as listener:
        while True:
            client, _ = listener.accept()
            with client, contextlib.suppress(ValueError, struct.error, ConnectionError):
                (length,) = struct.unpack(">H", client.recv(2))
                answer = _dns_answer(client.recv(length))
                client.sendall(struct.pack(">H", len(answer)) + answer)


def _serve_echo() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.bind((SERVER, ECHO_PORT))
        while True:
            message, client = ours.recvfrom(65535)
            ours.sendto(message, client)


def _serve_sink(ended: Path) -> None:
    """Accepts anything, and notes how each connection ends: it says its name first."""
    names: dict[socket.socket, bytes] = {}
    with (
        socket.create_server((SERVER, SINK_PORT), backlog=4096) as listener,
        selectors.DefaultSelector() as ready,
        open(ended, "ab", 0) as kept,
    ):
        ready.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                client = key.fileobj
                assert isinstance(client, socket.socket)
                if client is listener:
                    with contextlib.suppress(ConnectionError):
                        client, _ = listener.accept()
                        names[client] = b""
                        ready.register(client, selectors.EVENT_READ)
                    continue
                how = b"end"
                try:
                    if more := client.recv(1 << 16):
                        names[client] = names[client] or more[:32]
                        continue
                except ConnectionError:
                    how = b"reset"
                ready.unregister(client)
                client.close()
                kept.write(names.pop(client).strip() + b" " + how + b"\n")


def _outside(serve: Callable[[], None], ready: int, cable: int) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    syscalls.unshare(syscalls.CLONE_NEWNET)
    os.write(ready, b"n")
    os.read(cable, 1)
    link = Netlink()
    link.set_up(LOOPBACK_INDEX)
    link.set_up(POD_LINK_INDEX)
    link.add_address(SERVER, 24)
    link.add_address(METADATA, 16)
    serve()
    os.write(ready, b"s")
    signal.pause()


def _serve_all(folder: Path) -> None:
    for address in (SERVER, METADATA):
        files = _FileServer((address, HTTP_PORT), _Files)
        _thread(files.serve_forever)
    _thread(functools.partial(_serve_dns, folder / "asked"))
    _thread(_serve_long_dns)
    _thread(_serve_echo)
    _thread(functools.partial(_serve_sink, folder / "ended"))


def _serve_machine(folder: Path) -> list[socket.socket]:
    """Services of the machine; the one that is allowed answers, the others note who comes."""
    allowed = socket.create_server(("127.0.0.1", ALLOWED_PORT))

    def answer() -> None:
        while True:
            client, _ = allowed.accept()
            with client:
                client.sendall(b"of the machine\n")

    _thread(answer)
    denied = socket.create_server(("127.0.0.1", DENIED_PORT))
    everywhere = socket.create_server(("0.0.0.0", EVERYWHERE_PORT))
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("0.0.0.0", EVERYWHERE_PORT))
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0egress-machine")
    abstract.listen()
    return [denied, everywhere, datagrams, abstract]


def _was_reached(services: list[socket.socket]) -> list[str]:
    found = []
    for each in services:
        each.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            if each.type == socket.SOCK_DGRAM:
                found.append(f"datagram {each.recvfrom(100)!r}")
            else:
                found.append(f"connection to {each.accept()[0].getsockname()!r}")
    return found


def run(place: Path, serve: Callable[[], None], *argv: str) -> int:
    """Run ``argv`` on the machine, with servers outside that ``serve`` has begun; its exit code,
    or 1 where a service of the machine was reached."""
    (ready, told), (wait, cable) = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        syscalls.die_with_parent()
        _outside(serve, told, wait)
    syscalls.unshare(syscalls.CLONE_NEWNET | syscalls.CLONE_NEWNS)
    syscalls.mount("", "/", "", syscalls.MS_REC | MS_PRIVATE)
    assert os.read(ready, 1) == b"n"
    link = Netlink()
    link.set_up(LOOPBACK_INDEX)
    bridge = link.add_bridge()
    link.add_address(MACHINE, 24, bridge)
    link.add_address("169.254.1.1", 16, bridge)
    other = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    link.add_pod_link(1, bridge, other)
    os.close(other)
    os.write(cable, b"c")
    assert os.read(ready, 1) == b"s"
    resolver = place / "resolv.conf"
    resolver.write_text(f"search example.org\nnameserver {SERVER}\n")
    resolver.chmod(0o644)
    syscalls.mount(str(resolver), "/etc/resolv.conf", "", syscalls.MS_BIND)
    services = _serve_machine(place)
    code = subprocess.run([*argv], check=False).returncode
    reached = _was_reached(services)
    if reached:
        print(f"the machine was reached: {reached}", flush=True)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return code or int(bool(reached))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    sys.exit(run(folder, functools.partial(_serve_all, folder), *sys.argv[2:]))
