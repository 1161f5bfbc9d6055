"""Exceptions that only follow: a process lost its peer, or was asked to end (decision 138)."""

from __future__ import annotations

import re

from trainyard.evidence.tracebacks import RaisedException

_TYPE = re.compile(
    r"(?:^|\.)(?:DistNetworkError|Rendezvous(?:Connection|Closed|State|GracefulExit)Error"
    r"|SignalException|BrokenPipeError"
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
_SERVER_CLIENTS = re.compile(
    r"/(?:urllib|urllib3|http|requests|aiohttp|httpx|httpcore|huggingface_hub|fsspec|boto3"
    r"|botocore|smart_open|wandb|mlflow)/"
)
"""Packages whose other end is a server of somebody, and no peer."""
_OF_CHILD = re.compile(
    r"(?:^|\.)(?:ChildFailedError|Process(?:Exited|Raised)Exception|CalledProcessError"
    r"|BrokenProcessPool)$"
)


def is_secondary(raised: RaisedException) -> bool:
    """Whether it says no more than that a peer, or whoever ended the process, was there first."""
    if comes_from_server(raised):
        return False
    if _TYPE.search(raised.type) or _WORDS.search(raised.message):
        return True
    return (
        raised.root is not None
        and raised.type.endswith("DistStoreError")
        and is_secondary(raised.root)
    )


def comes_from_server(raised: RaisedException) -> bool:
    """Whether it was raised below a client of somebody's server."""
    return any(_SERVER_CLIENTS.search(frame.file) for frame in raised.frames)


def reports_child_failure(raised: RaisedException) -> bool:
    """Whether it says no more than that a process failed which this one had started."""
    return _OF_CHILD.search(raised.type) is not None
