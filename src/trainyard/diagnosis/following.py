"""Exceptions that only follow: a process lost its peer, or was asked to end (decision 138)."""

from __future__ import annotations

import re

from trainyard.diagnosis.tracebacks import Raised

_TYPE = re.compile(
    r"(?:^|\.)(?:DistNetworkError|Rendezvous(?:Connection|Closed|State|GracefulExit)Error"
    r"|SignalException|ChildFailedError|Process(?:Exited|Raised)Exception|BrokenPipeError"
    r"|Connection(?:Reset|Aborted)Error|KeyboardInterrupt)$"
)
_WORDS = re.compile(
    r"(?i)connection (?:closed|reset) by (?:remote )?peer|broken pipe|connection was likely closed"
    r"|socket closed|remote process (?:exited|has failed)|pair closure|ncclRemoteError"
    r"|Watchdog caught collective|Some NCCL operations have failed|wait timeout after"
    r"|Timed out waiting \d+ms for (?:recv|send)|killed by signal: Terminated|Read error \[|"
    r"Gloo connectFullMesh failed"
)
"""What a process says that lost a peer, in torch 2.13's words and those of gloo and NCCL."""


def follows(raised: Raised) -> bool:
    """Whether it says no more than that a peer, or whoever ended the process, was there first."""
    if _TYPE.search(raised.type) or _WORDS.search(raised.message):
        return True
    return (
        raised.root is not None and raised.type.endswith("DistStoreError") and follows(raised.root)
    )
