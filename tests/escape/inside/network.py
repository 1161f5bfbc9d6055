"""Sockets and networks."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import sys

from .trying import (
    HERE,
    attempt,
    connects,
)


@attempt
def connect_to_the_loopback_of_the_machine() -> bool:
    return connects(socket.AF_INET, ("127.0.0.1", HERE["port"]))


@attempt
def connect_to_the_machine() -> bool:
    return connects(socket.AF_INET, (HERE["address"], HERE["port"]))


@attempt
def connect_to_the_machine_by_the_gateway() -> bool:
    return connects(socket.AF_INET, ("10.244.0.1", HERE["port"]))


@attempt
def connect_to_a_socket_without_a_path() -> bool:
    return connects(socket.AF_UNIX, "\0" + HERE["abstract"])


@attempt
def connect_to_a_socket_of_the_machine() -> bool:
    return connects(socket.AF_UNIX, HERE["socket"])


@attempt
def connect_to_a_socket_in_the_state_folder() -> bool:
    return connects(socket.AF_UNIX, f"{HERE['state']}/api.sock")


@attempt
def speak_to_the_hypervisor() -> bool:
    return connects(socket.AF_VSOCK, (2, 1))


@attempt
def change_the_network() -> bool:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        # RTM_NEWLINK: set the loopback interface down.
        link.send(
            bytes.fromhex("20000000100005000100000000000000 00000000010000000000000001000000")
        )
        return int.from_bytes(link.recv(4096)[16:20], sys.byteorder, signed=True) == 0


@attempt
def connect_to_any_socket_of_the_machine() -> bool:
    found = []
    for path in HERE["sockets"]:
        with contextlib.suppress(OSError):
            connects(socket.AF_UNIX, path)
            found.append(path)
    print("connected to", found, file=sys.stderr) if found else None
    return bool(found)


@attempt
def connect_to_a_socket_in_the_working_folder() -> bool:
    return connects(socket.AF_UNIX, "machine.sock")


@attempt
def connect_to_the_abstract_socket_of_another_pod() -> bool:
    return connects(socket.AF_UNIX, "\0escape-victim")


@attempt
def connect_to_another_pod() -> bool:
    return connects(socket.AF_INET, (HERE["victim"], HERE["victim-port"]))


@attempt
def connect_to_the_metadata_of_the_machine() -> bool:
    return connects(socket.AF_INET, ("169.254.169.254", 80))


@attempt
def connect_to_the_machine_by_its_name() -> bool:
    return connects(socket.AF_INET, ("169.254.74.1", HERE["port"]))


@attempt
def connect_to_the_ports_of_the_relay() -> bool:
    """Its sockets in the cluster's network are not for pods to speak to."""
    return connects(socket.AF_INET, (HERE["gateway"], 7479))


@attempt
def send_a_datagram_to_the_machine() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.settimeout(0.5)
        ours.connect((HERE["address"], HERE["datagram-port"]))
        ours.send(b"escaped")
        return ours.recv(100) == b"escaped"


@attempt
def take_the_address_of_another_pod() -> bool:
    address = struct.pack(
        "16sHH4s8x", b"eth0:1", socket.AF_INET, 0, socket.inet_aton(HERE["victim"])
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        fcntl.ioctl(ours, 0x8916, address)  # SIOCSIFADDR
    return True


@attempt
def pose_as_another_pod() -> bool:
    """Tell everybody that its address is ours, as ARP spoofing does."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806)) as ours:
        ours.bind(("eth0", 0))
        own = ours.getsockname()[4]
        addresses = (
            own + socket.inet_aton(HERE["victim"]),
            b"\xff" * 6 + socket.inet_aton(HERE["gateway"]),
        )
        head = b"\xff" * 6 + own + bytes.fromhex("08060001080006040002")
        return ours.send(head + addresses[0] + addresses[1]) > 0


@attempt
def trace_the_packets_of_the_machine() -> bool:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as ours:
        ours.settimeout(0.2)
        names = {name for _, name in socket.if_nameindex()}
        return not names <= {"lo", "eth0"}
