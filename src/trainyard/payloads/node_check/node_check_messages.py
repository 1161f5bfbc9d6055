"""What a pod whose node is checked tells the controller. Types only, not shipped; see
`payload_messages`."""

from __future__ import annotations

from typing import Literal, TypedDict


class PairResult(TypedDict):
    """How a collective with the partner of that pod went: the seconds of the best, or why none
    came to an end."""

    replica: str
    seconds: float
    error: str


class NodeCheck(TypedDict):
    """What a pod tells whose node is checked: its ``stage``, where the others find it, the seconds
    of its matmul and the pairs of ``run``; ``error`` is of the matmul, or says why it ``left``."""

    uid: str
    attempt: int
    stage: Literal["begun", "ready", "testing", "done", "left"]
    run: str
    host: str
    port: int
    seconds: float
    pairs: list[PairResult]
    error: str
