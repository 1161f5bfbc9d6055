"""The request to be attached to a container: a part of ``protocol``."""

from __future__ import annotations

from typing import NamedTuple


class Attach(NamedTuple):
    """Show what a container writes from now on in a pipe, whose end to write to is attached.

    It is closed when the container's output has ended. To the answer is attached, if there is one,
    the end to write to its input: with a terminal that is the terminal's controlling end, else a
    pipe, which is given away for good where the container's input is to end with the first who has
    attached (``Start.stdin`` is ``once``).
    """

    pod: str
    name: str
    stdin: bool = False
