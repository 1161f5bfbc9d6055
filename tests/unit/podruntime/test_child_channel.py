"""What a child has said is heard, however it ends."""

from __future__ import annotations

import os

from trainyard.podruntime.processes.child_channel import Channel, tell
from trainyard.podruntime.processes.child_tasks import Progress


def test_what_was_said_is_read_after_an_end_that_left_an_order_unread() -> None:
    """A zygote that cannot fork says why, and closes the end in which the order lies."""
    channel = Channel()
    with open(os.devnull) as order:
        channel.send([order.fileno()])
    tell(channel.theirs, Progress(error="no more processes", code=128))
    channel.close_theirs()
    message = channel.receive()
    assert message is not None
    assert message[1] == Progress(error="no more processes", code=128)
    assert channel.receive() is None
    channel.close()


def test_an_end_that_left_an_order_unread_and_said_nothing_is_the_end() -> None:
    channel = Channel()
    with open(os.devnull) as order:
        channel.send([order.fileno()])
    channel.close_theirs()
    assert channel.receive() is None
    channel.close()
