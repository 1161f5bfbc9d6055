"""Derives the cause of a process's end from its exit code, signal and last lines."""

from __future__ import annotations

import re
import signal

from trainyard.diagnosis.log_meanings import CHECK_PATHS, Reading, find_meaning
from trainyard.evidence.launcher_reports import own_lines
from trainyard.evidence.secondary_exceptions import is_secondary, reports_child_failure
from trainyard.evidence.start_failures import NEVER_RAN, never_starts
from trainyard.evidence.tracebacks import RaisedException
from trainyard.kinds.shared.reasons import preflight_failure
from trainyard.kinds.shared.workload import ASKS_FOR_RESTART

NOT_EXECUTABLE, NOT_FOUND, SIGNAL_BASE = 126, 127, 128
_FROM_OUTSIDE = (130, 137, 143)
"""Signals that a program does not get for what it did, whatever it wrote before."""
_REFUSED = re.compile(r"(\S+): Permission denied")
_OF_CONNECTIONS = re.compile(r"Connection(?:Reset|Aborted|Refused)Error$|RemoteDisconnected$")
_PORT_TAKEN = "another container of the pod may hold the port"
"""In the words of `payloads.launch.sshd_requirements`."""
_WHERE_IT_CRASHED = "set PYTHONFAULTHANDLER=1 to see where"

TAKEN = {
    "EvictionByEvictionAPI": "its pod was evicted, as `kubectl drain` does",
    "PreemptionByScheduler": "its pod gave way to one of a higher priority",
    "DeletionByTaintManager": "its node has a taint that it does not tolerate, such as a lost one",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node ended it, being short of something or shut down",
    "NodeLost": "its node was lost",
    "BadNode": "its node did badly in the check before the start",
    "NoOtherNode": "no node took it but one that its job avoids",
    "Deleted": "its pod was deleted",
    "Evicted": "its node was short of memory or disk",
    "NodeAffinity": "its node does not fit its node selector any more",
    **dict.fromkeys(("NodeShutdown", "Shutdown", "Terminated"), "its node was shut down"),
    "Preempting": "its node gave its place to a critical pod",
    "UnexpectedAdmissionError": "its node did not admit it",
}
"""What takes pods away that were well, by the reason of the attempt."""

_EXCEPTION = re.compile(
    r"^(?:\[rank\d+\]: )?([A-Za-z_][\w.]*(?:Error|Exception): .+)$", re.MULTILINE
)
"""The last line of a traceback, where nothing else of it is left."""


def is_taken(reason: str) -> bool:
    """Whether the cluster took a pod away that was well, or would not have it."""
    return reason in TAKEN or reason.startswith("OutOf")


def explain_exit(
    code: int | None, reason: str = "", message: str = "", raised: RaisedException | None = None
) -> Reading:
    """The meaning of an exit code, the container's reason, its last lines, and the exception that
    ended it."""
    if code is None and is_taken(reason):
        advice = ("request what it needs",) if reason == "Evicted" else ()
        return Reading(TAKEN.get(reason, "its node had too little left for it"), advice)
    if (reading := _from_reason(reason, message)) is not None:
        return reading
    if (meaning := _from_output(code, message, raised)) is not None:
        return meaning
    if raised is not None:
        return _from_exception(raised)
    first_line = message.strip().splitlines()[0] if reason in NEVER_RAN and message.strip() else ""
    if first_line and code not in (NOT_FOUND, NOT_EXECUTABLE):
        return Reading(f"it could not be started: {first_line}")
    why = f": {first_line}" if first_line else ""
    if code == NOT_FOUND:
        return Reading(
            f"its command was not found{why}",
            ("check the command's spelling, and that the image (or --image PATTERN=ENV) has it",),
        )
    if code == NOT_EXECUTABLE:
        return Reading(f"its command is no program{why}", ("make the file executable (chmod +x)",))
    if code is not None and code > SIGNAL_BASE:
        return _from_signal(code - SIGNAL_BASE)
    if exceptions := _EXCEPTION.findall(message):
        return Reading(f"its program ended with {exceptions[-1]}")
    return Reading("its program ended with an error", is_guess=True)


def _from_output(code: int | None, message: str, raised: RaisedException | None) -> Reading | None:
    """What is meant by the words of an exception, or by the last ones of a log without any."""
    if raised is not None:
        if reports_child_failure(raised):
            return _from_child(raised, message)
        return find_meaning(f"{raised.text}\n{raised.place.source if raised.place else ''}")
    if code == NOT_EXECUTABLE and (refused := _REFUSED.search(message)):
        return Reading(
            f"{refused[1]} is no program that may be run", ("make the file executable (chmod +x)",)
        )
    return None if code in _FROM_OUTSIDE else find_meaning(_program_lines(message))


def _program_lines(message: str) -> str:
    """The last lines of a log that are of the program, or the lines of a message; what was written
    long before the end explains nothing."""
    return "\n".join(own_lines(message.split("\n")))


def _from_child(raised: RaisedException, message: str) -> Reading:
    """Of a process that it had started, and that told of no exception; by its last words."""
    last_lines = own_lines(message.split("\n")[: raised.first], 1)
    meaning = find_meaning(raised.text) or (find_meaning(last_lines[-1]) if last_lines else None)
    last = f": {last_lines[-1].strip()}" if last_lines else ""
    return meaning or Reading(
        f"a process that it had started failed{last}", ("look at what that one wrote",)
    )


def _from_exception(raised: RaisedException) -> Reading:
    """Of one that nothing more is known of than where it was raised."""
    place = raised.place
    if raised.is_native:
        at = f" below {place.where}" if place else ""
        advice = "look at what that line calls" if at else _WHERE_IT_CRASHED
        return Reading(f"native code crashed{at}", (advice,))
    if is_secondary(raised):
        return Reading(
            "it lost a peer, and no log says why that one went",
            ("look at the logs of the others, and at the machines and the network between them",),
        )
    if _OF_CONNECTIONS.search(raised.type):
        return Reading(
            "the other end of a connection went away, or was not there",
            ("look whether that server runs and can be reached from where the replica runs",),
        )
    what = f"its program ended with {raised.text}"
    if raised.root is not None and raised.root.place is not None:
        what += f", which followed from {raised.root.text} ({raised.root.place.where})"
    if place is None or not place.is_own:
        return Reading(what)
    return Reading(what, (f"correct {place.file.rpartition('/')[2]}, line {place.line}",))


def _from_reason(reason: str, message: str) -> Reading | None:
    """Where reason or words leave nothing to guess."""
    if reason == "OOMKilled":
        return Reading(
            "it used more memory than it may",
            ("raise resources.limits.memory of the container, or use less memory",),
        )
    if reason == "Evicted":
        return Reading(TAKEN[reason], ("request what it needs",))
    if reason == "Hung":
        return Reading(f"it hung: {message or '?'}")
    if reason == "LaunchTimeout":
        return Reading(f"its launch did not start in time: {message.partition('): ')[2] or '?'}")
    if _PORT_TAKEN in message:
        return Reading(
            "the port of its sshd is taken by another container of its pod",
            ("let that container listen on another port",),
        )
    if missing := preflight_failure(message):
        return Reading(f"the launch was not started: {missing}", (CHECK_PATHS,))
    if reason not in NEVER_RAN and (missing := never_starts(reason, message)):
        return Reading(f"it can never start there: {missing}")
    return None


def _from_signal(number: int) -> Reading:
    if SIGNAL_BASE + number == ASKS_FOR_RESTART:
        return Reading(f"it asked to be restarted (exit code {ASKS_FOR_RESTART}), or got SIGUSR1")
    try:
        name = signal.Signals(number).name
    except ValueError:
        return Reading("its program ended with an error", is_guess=True)
    if number == signal.SIGKILL:
        return Reading(
            "it was killed (SIGKILL), by the kernel for want of memory or by somebody",
            ("look for `Out of memory` in the kernel's log (dmesg)",),
        )
    if number == signal.SIGINT:
        return Reading(
            "it was interrupted (SIGINT), as Ctrl-C does",
            ("run it again, if that was not meant",),
        )
    if number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT):
        advice: tuple[str, ...] = (f"native code crashed; {_WHERE_IT_CRASHED}",)
        if number == signal.SIGBUS:
            full = "/dev/shm may be full: mount an emptyDir with medium Memory there"
            advice = (full, *advice)
        return Reading(f"it crashed ({name})", advice)
    return Reading(f"it was ended by {name}")
