"""Recognizes exceptions that are consequences of another failure (decision 138).

A process lost its peer, was asked to end, or reports that a child failed.
"""

from __future__ import annotations

import re

from trainyard.evidence.tracebacks import RaisedException

_TYPE = re.compile(
    r"(?:^|\.)(?:DistNetworkError|Rendezvous(?:Connection|Closed|State|GracefulExit)Error"
    r"|SignalException|BrokenPipeError"
    r"|Connection(?:Reset|Aborted)Error|KeyboardInterrupt)$"
)
_MESSAGE = re.compile(
    r"(?i)connection (?:closed|reset) by (?:remote )?peer|broken pipe|connection was likely closed"
    r"|socket closed|remote process (?:exited|has failed)|pair closure|ncclRemoteError"
    r"|Watchdog caught collective|Some NCCL operations have failed|wait timeout after"
    r"|Timed out waiting \d+ms for (?:recv|send)|killed by signal: Terminated|Read error \[|"
    r"Gloo connectFullMesh failed"
)
"""Messages of a process that lost a peer, by torch 2.13, gloo and NCCL."""
_SERVER_CLIENTS = re.compile(
    r"/(?:urllib|urllib3|http|requests|aiohttp|httpx|httpcore|huggingface_hub|fsspec|boto3"
    r"|botocore|smart_open|wandb|mlflow)/"
)
"""Client packages of servers. What fails below them is no loss of a peer."""
_OF_CHILD = re.compile(
    r"(?:^|\.)(?:ChildFailedError|Process(?:Exited|Raised)Exception|CalledProcessError"
    r"|BrokenProcessPool)$"
)


def is_secondary(raised: RaisedException) -> bool:
    """Whether it only says that a peer failed first, or that the process was asked to end."""
    if comes_from_server(raised):
        return False
    if _TYPE.search(raised.type) or _MESSAGE.search(raised.message):
        return True
    return (
        raised.root is not None
        and raised.type.endswith("DistStoreError")
        and is_secondary(raised.root)
    )


def comes_from_server(raised: RaisedException) -> bool:
    """Whether it was raised inside a client of a server."""
    return any(_SERVER_CLIENTS.search(frame.file) for frame in raised.frames)


def reports_child_failure(raised: RaisedException) -> bool:
    """Whether it only says that a child process failed."""
    return _OF_CHILD.search(raised.type) is not None
