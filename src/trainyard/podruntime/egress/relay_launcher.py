"""A process that stays in the machine's namespaces and starts egress relays there on request.

The shim itself cannot go back there, at least without root. This is forked from it before it
leaves, and holds nothing but a socket. Each message there brings what a new relay needs.
"""

from __future__ import annotations

import os
import signal
import socket

from trainyard.podruntime import event_loop
from trainyard.podruntime import syscalls as sys
from trainyard.podruntime.processes.child_channel import receive_descriptors
from trainyard.podruntime.source_copy import SourceCopy


def start(sources: SourceCopy) -> socket.socket:
    """Fork the launcher; returns its request socket, with which it ends. Raises OSError.

    ``sources``: what relays are started from.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        theirs.close()
        return ours
    try:
        sys.die_with_parent()
        sys.set_process_name("egress-starter")
        sys.close_others({theirs.fileno(), sources.fileno()})
        os.chdir("/")
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # relays are reaped by the kernel
        while True:
            data, descriptors = receive_descriptors(theirs, 1)
            if not data:
                os._exit(0)
            _start_relay(sources, descriptors)
            for fd in descriptors:
                os.close(fd)
    except BaseException as error:
        event_loop.log(f"egress-starter: {error}")
    finally:
        os._exit(1)


def _start_relay(sources: SourceCopy, descriptors: list[int]) -> None:
    module = "trainyard.podruntime.egress.relay"
    argv, passed = sources.command(module, ",".join(map(str, descriptors)))
    passed.update(descriptors)
    if sys.clone(0):
        return
    try:
        sys.die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        sys.close_others(passed)
        for fd in passed:
            os.set_inheritable(fd, True)
        os.execve(argv[0], argv, {})
    except BaseException as error:
        event_loop.log(f"cannot run {argv[0]}: {error}")
    finally:
        os._exit(1)
