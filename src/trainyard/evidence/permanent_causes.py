"""Finds the permanent cause of a failure, in a form in which two failures can be compared.

Transient failures have none: a network, a server, a device or a port that is in use, a signal from
outside. In doubt there is no permanent cause (decision 229).
"""

from __future__ import annotations

import re
import signal
from functools import lru_cache

from trainyard.evidence.launcher_reports import find_blamed_rank, own_lines
from trainyard.evidence.secondary_exceptions import (
    comes_from_server,
    is_secondary,
    reports_child_failure,
)
from trainyard.evidence.start_failures import NEVER_RAN, never_starts
from trainyard.evidence.tracebacks import RaisedException, find_exceptions, lines_of_roots
from trainyard.schema.dataclass import dataclass

_OWN_REASONS = ("", "Error", "OOMKilled", "ContainerCannotRun", "StartError")
"""Of a container's end; with any other, somebody ended it."""
_SIGNAL_BASE = 128
_CRASHES = (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)
_GENERIC_CODE = 1
"""An exit code that any failure, or that of a peer, may lead to."""
_QUOTED_LINES = 3
_LONGEST = 160
_TRANSIENT_TYPE = re.compile(
    r"(?i)timeout|timedout|connect|network|unavailable|temporar|retry|throttl|ratelimit|toomany"
    r"|disconnect|incompleteread|sslerror|httperror|requestexception|rpcerror|gaierror|herror"
    r"|endpoint|dist(?:network|backend|store)|rendezvous|^signal|interrupt|brokenp|^eoferror"
    r"|protocolerror|chunkedencoding|slowdown|servererror|preempt|deadlock|blockingio|contention"
    r"|localentrynotfound|offlinemode|staleelement|hungup"
)
"""Classes whose failures come and go."""
_TRANSIENT_MESSAGE = re.compile(
    r"(?i)timed? ?out|temporar|try(?:ing)? again|retr(?:y|ies)\b|unavailable|unreachable|reset by"
    r"|refused|connection|broken pipe|name or service not known|name resolution|couldn't connect"
    r"|could not (?:connect|resolve)|no route to host|too many requests|rate.?limit|slow ?down"
    r"|(?<![-\w./])(?:429|50[0234])(?![-\w/])|bad gateway|gateway time"
    r"|internal server error|server error"
    r"|in use\b|EADDRINUSE|stale (?:NFS )?file handle|input/output error|transport endpoint"
    r"|resource busy|temporarily|is locked|could not acquire|ECC error|unspecified launch failure"
    r"|CUDA error: unknown error"
    r"|busy or unavailable|fallen off the bus|nvlink|system not yet initialized"
    r"|\bnccl|\bgloo|socket|\bpeer\b|rendezvous|remote end|handshake|unexpected eof|eof occurred"
    r"|SIG(?:KILL|TERM|INT|HUP)|killed by signal: |terminated abruptly|exited unexpectedly"
    r"|\bkilled\b|preempt|shutting down|interrupted system call|text file busy"
    r"|cannot reach|host key"
)
"""Words of what passes: of Python, torch, curl, ssh, servers, file systems and drivers."""
_REFUSED_PERMANENTLY = re.compile(
    r"\b(?:400|401|403|404|405|410|422) Client Error|RepositoryNotFound|GatedRepo|RevisionNotFound"
    r"|EntryNotFoundError: 404|Invalid(?:URL|Schema)|MissingSchema|HTTP Error 40[0134]\b"
)
"""What a server says of a request that it will never take."""
_VARYING = re.compile(
    r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d)?(?:[.,]\d+)?Z?|\b\d\d:\d\d:\d\d(?:[.,]\d+)?Z?"
    r"|0x[0-9a-fA-F]+|\b\d{5,}\b|\b[0-9a-f]{8,}\b"
)
"""Times, addresses and numbers of processes, which differ from one end to the next."""
_UNINFORMATIVE = re.compile(r"trainyard: \S+ was lost: |^frame #\d+: ", re.MULTILINE)
"""`launch_runner` says so of a replica; and a stack of C++ below words that were cut off."""
_CUT = 2000
"""Characters of a message that begins within a line; the kubelet keeps 2048 bytes of a log."""
_ABORTED = "Aborted"
"""faulthandler's name of SIGABRT."""
_PROGRAM_ERROR = re.compile(
    r"(?:^|\.)(?:ModuleNotFoundError|ImportError|SyntaxError|IndentationError|TabError|NameError"
    r"|UnboundLocalError|AttributeError)$"
)


@dataclass(frozen=True, slots=True)
class Cause:
    """What an end was, in words, and what equal ends have in common."""

    text: str
    """`ModuleNotFoundError: No module named 'nets' (train.py:3)`."""
    key: str


@lru_cache(maxsize=512)  # asked again in each pass while the pod is there
def permanent_cause(code: int | None, reason: str, message: str) -> Cause | None:
    """The cause of a container's end by its exit code, reason and last lines; None for one that
    may pass, or that does not tell."""
    if code is None or code == 0 or reason not in _OWN_REASONS:
        return None
    if reason == "OOMKilled":
        last = _last_lines(message.split("\n"))[-1:]
        return _cause("OOMKilled", last[0] if last else "")
    if code > _SIGNAL_BASE and code - _SIGNAL_BASE not in _CRASHES:
        return None
    lines = message.split("\n")
    if len(message) >= _CUT:
        del lines[0]
    blamed = find_blamed_rank(lines)
    if blamed is not None and _is_signal_from_outside(blamed.code):
        return None
    found = find_exceptions(lines)
    roots = lines_of_roots(found)
    left = [each for each in found if each.first not in roots]
    left = [each for each in left if reports_child_failure(each) or not each.is_logged]
    if any(_is_transient(each) and not is_secondary(each) for each in left):
        return None
    own = [each for each in left if not is_secondary(each) and not reports_child_failure(each)]
    if own:
        return _from_exception(own[-1])
    if _UNINFORMATIVE.search(message) or any(is_secondary(each) for each in left):
        return None
    # Below stands what those wrote that had started the program.
    end = min((each.first for each in left if reports_child_failure(each)), default=len(lines))
    return _from_last_lines(blamed.code if blamed else code, reason, lines[:end])


def is_program_error(raised: RaisedException) -> bool:
    """Whether an exception is one of the program's text, which another start does not change."""
    return _PROGRAM_ERROR.search(raised.type) is not None and not _is_transient(raised)


def _is_signal_from_outside(code: int) -> bool:
    number = -code if code < 0 else code - _SIGNAL_BASE
    return number > 0 and number not in _CRASHES


def _is_transient(raised: RaisedException) -> bool:
    """Whether this, or that from which it followed, may not be so the next time."""
    each: RaisedException | None = raised
    while each is not None:
        name = each.type.rpartition(".")[2]
        if not _REFUSED_PERMANENTLY.search(each.text) and (
            comes_from_server(each)
            or _is_unexplained_abort(each)
            or _TRANSIENT_TYPE.search(name)
            or _TRANSIENT_MESSAGE.search(each.message)
        ):
            return True
        each = each.root
    return False


def _is_unexplained_abort(raised: RaisedException) -> bool:
    """Where C++ aborts, its words say why, such as NCCL's; they may be in the log alone."""
    return raised.is_native and raised.text == _ABORTED


def _from_exception(raised: RaisedException) -> Cause:
    frame = raised.place
    if frame is None:
        return _cause(raised.text, "")
    place = f"{frame.file}:{frame.line}"
    text = f"{raised.text[:_LONGEST]} ({frame.where})"
    return Cause(text, f"{raised.type.rpartition('.')[2]} {place}"[-_LONGEST:])


def _from_last_lines(code: int, reason: str, lines: list[str]) -> Cause | None:
    """Of a program that raised nothing, by its last lines."""
    last = _last_lines(lines)
    text = "\n".join(last)
    if reason in NEVER_RAN:
        return _cause(f"exit code {code}", last[-1]) if never_starts(reason, text) else None
    if _TRANSIENT_MESSAGE.search(text):
        return None
    if not last and code == _GENERIC_CODE:
        return None
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return _cause(how, last[-1] if last else "")


def _last_lines(lines: list[str]) -> tuple[str, ...]:
    return own_lines(lines, _QUOTED_LINES)


def _cause(what: str, line: str) -> Cause:
    text = f"{what}: {line.strip()}" if line else what
    return Cause(text[:_LONGEST], _VARYING.sub("#", text)[:_LONGEST])
