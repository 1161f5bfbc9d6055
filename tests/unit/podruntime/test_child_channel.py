"""A child's reports are received, however it ends."""

from __future__ import annotations

import os

from trainyard.podruntime.processes.child_channel import ChildChannel, send_report
from trainyard.podruntime.processes.child_tasks import ChildReport


def test_what_was_said_is_read_after_an_end_that_left_an_order_unread() -> None:
    """A zygote that cannot fork says why, and closes the end in which the order lies."""
    channel = ChildChannel()
    with open(os.devnull) as order:
        channel.send([order.fileno()])
    send_report(channel.theirs, ChildReport(error="no more processes", code=128))
    channel.close_theirs()
    message = channel.receive()
    assert message is not None
    assert message[1] == ChildReport(error="no more processes", code=128)
    assert channel.receive() is None
    channel.close()


def test_an_end_that_left_an_order_unread_and_said_nothing_is_the_end() -> None:
    channel = ChildChannel()
    with open(os.devnull) as order:
        channel.send([order.fileno()])
    channel.close_theirs()
    assert channel.receive() is None
    channel.close()
