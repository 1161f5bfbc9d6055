"""A judge for every text of a diagnosis: whether it is true of what happened.

A text that no row knows is untrue by itself, as among conditions and events (`judges`).
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import click

from tests.simulation import restart_budgets
from tests.simulation.diagnosing import Diagnosed, Said, commands_in, said_of
from tests.simulation.truth import PodTruth
from trainyard.cli.main import cli
from trainyard.diagnosis.failure_card import failure_card_of
from trainyard.kinds.shared.reasons import STOPPED

ENDS = ("Succeeded", "Failed")
RESTARTABLE = (130, 137, 138, 143)
"""Exit codes after which ExitCode restarts, as documented."""
WHO = (
    r"(?:rank (?P<rank>\d+) on )?(?P<who>[\w-]+?)"
    r"(?:'s (?P<init>init )?container (?P<container>\S+))?"
)
ENDING = r"(?:exit code (?P<code>\d+)(?:, (?P<with>\w+))?|(?P<reason>\w+))"
AGE = r"(?P<age>(?:\d+[dhms])+|<invalid>)"
NAMES = r"(?P<names>[^:;]+?)"

Judge = Callable[[Diagnosed, re.Match[str]], Iterator[str]]


class _Row(NamedTuple):
    place: re.Pattern[str]
    words: re.Pattern[str]
    judge: Judge


ROWS: list[_Row] = []


def says(place: str, *texts: str) -> Callable[[Judge], Judge]:
    """Registers the judge of texts."""

    def register(judge: Judge) -> Judge:
        ROWS.extend(_Row(re.compile(place), re.compile(t, re.DOTALL), judge) for t in texts)
        return judge

    return register


def untrue(seen: Diagnosed, judged: Counter[str]) -> Iterator[str]:
    """What a diagnosis says of a job and is not so. `judged` counts the rows that were asked."""
    for said in said_of(seen):
        for problem in _judged(seen, said, judged):
            yield f"{said.place} of its diagnosis says {said.text!r}: {problem}"
        for command in commands_in(said):
            yield from _misdirects(seen, command)


def _judged(seen: Diagnosed, said: Said, judged: Counter[str]) -> Iterator[str]:
    for row in ROWS:
        found = row.words.fullmatch(said.text)
        if found and row.place.fullmatch(said.place):
            judged[f"{row.place.pattern}: {row.words.pattern}"] += 1
            yield from row.judge(seen, found)
            return
    if said.place == "evidence":
        yield from _repeats_a_status(seen, said.text)
    else:
        yield "no judge knows this text; give it one in tests/simulation/diagnosis_judges.py"


def _repeats_a_status(seen: Diagnosed, line: str) -> Iterator[str]:
    """Evidence that is what a condition or a check says, word for word."""
    check = seen.status.get("nodeCheck") or {}
    known = {str(check.get("message")), *seen.messages}
    known |= {str(each.get("reason")) for each in check.get("badNodes") or ()}
    for message in seen.messages:
        known |= {*message.split(": ", 1)[-1].split("; "), message.strip()}
    yield from _if(line not in known and line.strip() not in known, "nothing says so")


def _if(problem: bool, text: str) -> Iterator[str]:
    if problem:
        yield text


# Commands.


def _misdirects(seen: Diagnosed, command: str) -> Iterator[str]:
    """Whether a command cannot be given as it stands."""
    words = shlex.split(command)
    if words[0] != "trainyard" or "FILE" in words:
        return
    found = cli.get_command(click.Context(cli), words[1])  # type: ignore[attr-defined]
    if found is None:
        yield f"`{command}`: there is no such command"
        return
    try:
        given = found.make_context(words[1], words[2:], resilient_parsing=False)
    except click.UsageError as error:
        yield f"`{command}`: {error.format_message()}"
        return
    named = {value for name, value in given.params.items() if name in ("job", "name", "jobs")}
    flat = [each for value in named for each in (value if isinstance(value, tuple) else (value,))]
    real = seen.job["metadata"]["name"]
    yield from _if(bool(flat) and flat != [real], f"`{command}` is about {flat}, not {real}")
    replica = given.params.get("replica")
    for one in replica if isinstance(replica, tuple) else (replica,) if replica else ():
        yield from _if(
            one not in seen.entries and not seen.pods_of(one),
            f"`{command}`: there is no replica {one}",
        )


def are(seen: Diagnosed, names: str, holds: Callable[[dict[str, Any]], bool]) -> Iterator[str]:
    """All of the replicas that are named have pods of which that holds."""
    pods = {seen.situation.replica(pod): dict(pod.obj) for pod in seen.situation.pods}
    for name in re.sub(r" and \d+ more$", "", names).split(", "):
        yield from _if(name not in pods or not holds(pods[name]), f"{name} is {pods.get(name)}")


# How a job stands as a whole.


@says("headline", r"(?P<kind>\w+) default/(?P<job>[\w-]+) is (?P<state>[\w ]+?): .+")
def _headline(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    real = (seen.job["kind"], seen.job["metadata"]["name"])
    yield from _if((found["kind"], found["job"]) != real, f"it is {real}")
    is_deleting = "deletionTimestamp" in seen.job["metadata"]
    state = "being deleted" if is_deleting else seen.phase
    yield from _if(found["state"] != state, f"it is {state}")


@says(
    "headline",
    r"(?P<kind>\w+) default/(?P<job>[\w-]+) is (?P<state>\w+), and nothing is wrong with it that "
    r"can be seen\.(?: (?P<run>\d+) of (?P<all>\d+) replicas run\.)?"
    rf"(?:\n    attempt (?P<attempt>\d+|\?) was ended by {WHO} \({ENDING}\) {AGE} ago(?:; .+)?)?",
)
def _nothing_wrong(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from _headline(seen, found)
    yield from _if(seen.phase in ("Failed", "Paused"), f"phase {seen.phase}")
    yield from _if(seen.condition("Hung").get("status") == "True", "it hangs")
    if found["run"]:
        real = (seen.count("Running"), len(seen.entries))
        yield from _if((int(found["run"]), int(found["all"])) != real, f"{real} run")
    if found["attempt"]:
        yield from _blamed(seen, found)


@says(
    "verdict",
    r"(?P<kind>\w+) (?P<job>[\w-]+): (?P<phase>\w+) after \d+\.\d s, (?P<n>\d+) restarts?",
)
def _verdict(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from _if(found["phase"] != seen.phase, f"phase {seen.phase}")
    yield from _restarts(seen, int(found["n"]))
    yield from _if((found["n"] == "1") != found[0].endswith("restart"), "one or several")


def _restarts(seen: Diagnosed, number: int) -> Iterator[str]:
    """How many there were: one for each incident where replicas start together."""
    if "backoffCount" in seen.status:
        real = seen.status["backoffCount"]
    else:
        counts = {t["type"]: t.get("restartCount", 0) for t in seen.status.get("tasks") or ()}
        real = counts.get("launcher", sum(counts.values()))
        if counts.get("launcher", number) < number <= sum(counts.values()):
            real = number  # in one of them it had no pod yet
        if restart_budgets.refills(seen.job) and number < real:
            real = seen.status.get("restartCount", 0)
    yield from _if(number != real, f"there were {real} restarts")


@says("verdict", r"  (?P<line>.+)")
def _why(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    message = seen.condition("Failed").get("message")
    yield from _if(found["line"] != message, f"its condition says {message}")


@says("warning", rf"(?P<kind>\w+): (?P<text>.+) \({AGE} ago\)")
def _warned(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    told = [e for e in seen.situation.events if e.get("reason") == found["kind"]]
    texts = {str(e.get("message")).strip() for e in told if e.get("type") == "Warning"}
    yield from _if(found["text"] not in texts, "no event warns so")
    yield from _if(found["text"].startswith("Startup probe failed"), "it is still starting")


@says("cause", "it has done its work")
def _succeeded(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    yield from _if(seen.phase != "Succeeded", f"phase {seen.phase}")


@says("evidence", r"it took .+", r"it was active for .+")
def _took(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    yield from _if(seen.phase not in ENDS, f"phase {seen.phase}")


@says("evidence", rf"still running, as (?P<field>\w+) (?P<value>\w+) has it: {NAMES}")
def _left(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    run = seen.spec.get("runPolicy") or seen.spec
    policy = run.get("cleanUpPolicy", "None")
    cleans = found["field"] == "cleanUpPolicy" and policy != found["value"]
    yield from _if(cleans, f"cleanUpPolicy is {policy}")
    yield from are(seen, found["names"], lambda pod: pod["status"].get("phase") == "Running")


@says("cause", "its spec is invalid, so that nothing of it was started")
def _invalid(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    yield from _if(seen.condition("Failed").get("reason") != "InvalidSpec", "it is not")
    yield from _if(bool(seen.truth.pods), "it had pods")


@says("cause|card.reason", r"it ran longer than its deadline of (?P<seconds>\d+) s")
def _overdue(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    limit = (seen.spec.get("runPolicy") or seen.spec).get("activeDeadlineSeconds")
    yield from _if(limit != int(found["seconds"]), f"the deadline is {limit}")
    yield from _if(seen.condition("Failed").get("reason") != "DeadlineExceeded", "it failed else")


@says("cause|card.reason", r"its queue ended it: it ran longer than the queue's maxDuration")
def _queue_ended(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    yield from _if(seen.condition("Failed").get("reason") != "QueueMaxDuration", "it did not")


@says("cause", "its pods are deleted until it is resumed")
@says("evidence", r"spec\.runMode\.pause\.enabled is true")
def _paused(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    pause = (seen.spec.get("runMode") or {}).get("pause") or {}
    yield from _if(not pause.get("enabled"), "it is not paused")


@says("evidence", rf"(?:still ending|pods that are left): {NAMES}")
def _still_there(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from are(seen, found["names"], lambda pod: True)


@says("cause", "it goes as soon as what it owns is gone")
@says("evidence", rf"deletion began {AGE} ago", r"finalizers: .+")
def _going(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    deleting = "deletionTimestamp" in seen.job["metadata"]
    pods = any(pod.metadata.get("finalizers") for pod in seen.situation.pods)
    yield from _if(not deleting and not pods, "it is not deleted")


@says("cause", "no controller has taken notice of it")
@says("evidence", rf"it was created {AGE} ago and has no status")
def _unseen(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    yield from _if(bool(seen.status.get("phase")), "it has a status")


@says("cause", "it was resumed, and waits for all of its replicas to run")
def _resuming(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    yield from _if(seen.phase != "Resuming", f"phase {seen.phase}")


@says("cause", "it is in debug mode: its replicas wait, and nothing trains by itself")
@says("evidence", r"spec\.runMode\.debug\.enabled is true")
@says("advice", r"`trainyard exec \S+` opens a shell in a replica")
@says("advice", r"to train, create the job again without spec\.runMode\.debug")
def _debugged(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    debug = (seen.spec.get("runMode") or {}).get("debug") or {}
    yield from _if(not debug.get("enabled"), "it is not in debug mode")


NOT_RUNNING = {
    "it asks for scheduler.t9kScheduler, and no scheduler here places pods together": (
        "NoGangScheduler"
    ),
    "a name that it needs is held by an object of somebody else": "NameConflict",
    "Kueue has not admitted it: it waits in its queue": "WaitsForAdmission",
    "nothing says where its pods may run": "FlavorUnknown",
    "the API server refuses to create what it needs": "CreationRefused",
    "the namespace's quota does not allow what it needs": "CreationRefused",
    "an admission webhook of the cluster refuses what it needs": "CreationRefused",
}


@says("cause", *map(re.escape, NOT_RUNNING))
def _not_running(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    told = seen.condition("Running")
    yield from _if(told.get("status") == "True", "it runs")
    yield from _if(told.get("reason") != NOT_RUNNING[found[0]], f"the reason is {told}")
    yield from _if("quota" in found[0] and "quota" not in told["message"], f"it is {told}")


# Failures, and what follows.


def _pod_blamed(seen: Diagnosed, found: re.Match[str]) -> list[PodTruth]:
    return [pod for pod in seen.pods_of(found["who"]) if not pod.disturbed or pod.own_end]


def _blamed(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    """The replica that is named has ended so, as often as is known; rank and container exist."""
    if found["who"] not in seen.entries and not seen.pods_of(found["who"]):
        yield f"there is no replica {found['who']}"
        return
    if found["code"] is None:
        told = [str(a.get("reason")) for a in seen.status.get("attempts") or ()]
        yield from _if(found["reason"] not in told, f"the attempts were ended by {told}")
        return
    code = int(found["code"])
    ends = [pod.own_end for pod in seen.pods_of(found["who"])]
    stopped = any(pod.own_end is None for pod in seen.pods_of(found["who"]))
    yield from _if(code not in ends and not stopped, f"it has ended with {ends}")
    with suppress(IndexError):
        if found["init"]:
            inits = [c["name"] for c in _template(seen, found["who"]).get("initContainers") or ()]
            yield from _if(found["container"] not in inits, f"its init containers are {inits}")


def _template(seen: Diagnosed, replica: str) -> dict[str, Any]:
    spec = seen.situation.job.replica_spec(replica)
    found: dict[str, Any] = (spec.get("template") or {}).get("spec") or {}
    return found


RESTARTED = rf"{WHO} (?:failed|was (?P<taken>taken away)) \({ENDING}\)"


@says("cause", rf"{RESTARTED}, and replicas are started again")
def _restarting(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from _blamed(seen, found)
    yield from _goes_on(seen)
    taken = seen.last_attempt.get("exitCode") is None
    is_taken = taken and seen.last_attempt.get("reason") not in ("Hung", "LaunchTimeout")
    yield from _if(bool(found["taken"]) != is_taken, f"the attempt is {seen.last_attempt}")


@says("cause", rf"{RESTARTED}; the next try is in (?P<wait>\S+)")
def _waiting(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from _restarting(seen, found)
    yield from _if(seen.wait is None, "nothing waits for its next try")


def _goes_on(seen: Diagnosed) -> Iterator[str]:
    yield from _if(seen.phase in ENDS, f"phase {seen.phase}")
    attempts = seen.status.get("attempts") or ()
    last = int(seen.last_attempt.get("number", 0))
    wanted = [r.get("attempt", 1) for r in (seen.account.get("replicas") or {}).values()]
    again = [*wanted, seen.account.get("floor", 1), *(a["number"] for a in attempts[-1:])]
    yield from _if(max(map(int, again)) <= last, f"no attempt follows {last}")


READINGS: dict[str, tuple[int, ...]] = {
    r"its program ended with .+": (),
    r"it was interrupted \(SIGINT\), as Ctrl-C does": (130,),
    r"it asked to be restarted \(exit code 138\), or got SIGUSR1": (138,),
    r"it used more memory than it may": (137,),
    r"it was killed \(SIGKILL\), by the kernel for want of memory or by somebody": (137,),
    r"it was ended by SIGTERM": (143,),
    r"it lost a peer, and no log says why that one went": (1,),
    r"the Python package nets is not there": (),
    r"a port was in use already": (),
    r"the other end of a connection went away, or was not there": (),
    r"the launch was not started: missing are .+": (2,),
}
"""What an end is read as, with the exit codes that may be read so (none: any)."""
TAKEN = {
    "its pod was evicted, as `kubectl drain` does": ("EvictionByEvictionAPI",),
    "its pod gave way to one of a higher priority": ("PreemptionByScheduler",),
    "its node has a taint that it does not tolerate, such as a lost one": (
        "DeletionByTaintManager",
    ),
    "its node is gone": ("DeletionByPodGC",),
    "its node ended it, being short of something or shut down": ("TerminationByKubelet",),
    "its node was lost": ("NodeLost",),
    "its node did badly in the check before the start": ("BadNode",),
    "no node took it but one that its job avoids": ("NoOtherNode",),
    "its pod was deleted": ("Deleted",),
    "its node was short of memory or disk": ("Evicted",),
    "its node was shut down": ("NodeShutdown", "Shutdown", "Terminated"),
    "its node does not fit its node selector any more": ("NodeAffinity",),
    "its node gave its place to a critical pod": ("Preempting",),
    "its node did not admit it": ("UnexpectedAdmissionError",),
}
FAILED = rf"{WHO} failed \({ENDING}\): (?P<reading>.+)"


@says("cause", FAILED)
def _failed(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from _if(seen.phase != "Failed", f"phase {seen.phase}")
    yield from _blamed(seen, found)
    yield from _read(seen, found)


def _read(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    reading, code = found["reading"], found["code"]
    if code is None:
        if reading.startswith("its launch did not start in time: "):
            yield from _if(found["reason"] != "LaunchTimeout", f"the reason is {found['reason']}")
            return
        if reading.startswith("it hung: "):
            yield from _if(found["reason"] != "Hung", f"the reason is {found['reason']}")
            return
        reasons = TAKEN.get(reading)
        yield from _if(reasons is None, f"no judge knows the reading {reading!r}")
        wrong = bool(reasons) and found["reason"] not in (reasons or ())
        yield from _if(wrong, f"the reason is {found['reason']}")
        return
    row = next((codes for text, codes in READINGS.items() if re.fullmatch(text, reading)), None)
    yield from _if(row is None, f"no judge knows the reading {reading!r}")
    yield from _if(bool(row) and int(code) not in (row or ()), f"the code is {code}")
    yield from _raised(seen, reading)


def _raised(seen: Diagnosed, reading: str) -> Iterator[str]:
    raised = re.fullmatch("its program ended with (?!an error$)(.+)", reading)
    if raised is not None:
        yield from _if(raised[1] not in seen.words, "no pod has written it")


@says(
    "evidence",
    rf"attempt (?P<attempt>\d+|\?) was ended by {WHO} \({ENDING}\) {AGE} ago: (?P<reading>.+)",
)
def _attempt(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from _blamed(seen, found)
    number = str(seen.last_attempt.get("number", "?"))
    yield from _if(found["attempt"] != number, f"the last one that ended is {number}")
    yield from _read(seen, found)


@says("cause", "a replica failed for good")
def _some(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    yield from _if(bool(seen.last_attempt), f"the last attempt is {seen.last_attempt}")


@says("cause|card.reason", r"it hung: (?P<text>.+)")
def _hung(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from _if(seen.last_attempt.get("reason") != "Hung", f"it is {seen.last_attempt}")
    message = seen.condition("Hung").get("message")
    yield from _if(found["text"] != message, f"the condition says {message}")


@says("evidence", r"(?P<spent>\d+) of (?P<limit>\d+) restarts are used up")
def _budget(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    real = (seen.status.get("backoffCount"), limit_of(seen))
    yield from _if((int(found["spent"]), int(found["limit"])) != real, f"{real}")


def limit_of(seen: Diagnosed, replica: str = "") -> int:
    if "backoffCount" in seen.status:
        return int((seen.spec.get("runPolicy") or {}).get("backoffLimit", 3))
    return seen.situation.job.restart_policy(replica)[1]


@says(
    "evidence",
    r"its restarts are used up: (?P<n>\d+) of (?P<limit>\d+)",
    r"its restarts do not suffice for all that failed: (?P<n>\d+) of (?P<limit>\d+) so far",
)
def _used_up(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from _restarts(seen, int(found["n"]))
    reason = seen.condition("Failed").get("reason")
    yield from _if(reason != "BackoffLimitExceeded", f"the job failed for {reason}")
    limit, blamed = int(found["limit"]), str(seen.last_attempt.get("replica"))
    real = limit_of(seen, seen.situation.replica(blamed))
    yield from _if(limit != real, f"the limit is {real}")
    yield from _if((int(found["n"]) < limit) != found[0].endswith("so far"), "some are left")


@says("evidence", r"its restarts are used up: (?P<field>[\w.]+) is (?P<limit>\d+)")
def _used_up_of_replica(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    limits = {limit_of(seen, replica) for replica in seen.entries}
    yield from _if(int(found["limit"]) not in limits, f"limits are {limits}")
    yield from field_of(seen, found["field"])


def field_of(seen: Diagnosed, field: str) -> Iterator[str]:
    real = "runPolicy.backoffLimit" if "backoffCount" in seen.status else "restartPolicy.limit"
    yield from _if(field != real, f"the field is {real}")


@says(
    "evidence",
    r"restartPolicy is (?P<policy>\w+): it is not restarted",
    r"restartPolicy is (?P<policy>\w+), but (?P<field>[\w.]+) is (?P<limit>0)",
    r"restartPolicy is (?P<policy>ExitCode), which restarts after 130, 137, 138, 143 only",
    r"(?P<rule>.+); restartPolicy is (?P<policy>\w+), (?P<field>[\w.]+) is (?P<limit>\d+)",
)
def _policy(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    parts = found.groupdict()
    policies = {seen.situation.job.restart_policy(replica)[0] for replica in seen.entries}
    yield from _if(parts["policy"] not in policies, f"policies are {policies}")
    yield from _if(seen.phase != "Failed", f"phase {seen.phase}")
    if parts.get("limit"):
        limits = {limit_of(seen, replica) for replica in seen.entries}
        yield from _if(int(parts["limit"]) not in limits, f"limits are {limits}")
        yield from field_of(seen, parts["field"])
    if parts["policy"] == "ExitCode" and "limit" not in parts:
        code = seen.last_attempt.get("exitCode")
        yield from _if(code in RESTARTABLE, f"the code is {code}")
    if parts.get("rule"):
        yield from _ruled(seen, parts["rule"])


RULES = r"(?:podFailurePolicy\.rules\[\d+\] \(.+\)|runPolicy\.hang) "


@says("evidence", rf"(?P<rule>{RULES}.+)")
def _rule(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from _ruled(seen, found["rule"])


def _ruled(seen: Diagnosed, rule: str) -> Iterator[str]:
    told = seen.last_attempt.get("message")
    yield from _if(rule != told, f"the attempt says {told}")
    ends = rule.endswith("restarts after this failure") and seen.phase in ENDS
    yield from _if(ends, "nothing is restarted any more")


@says("evidence", r"another try would end the same way, so there is none")
def _never_starts(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    said = any("cannot start: " in line for line in seen.words)
    yield from _if(not said, "it may start at another try")


@says("evidence", r"runPolicy\.restartJudge has it end here(?:, with restarts left)?")
def _judged_in_vain(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    reason = seen.condition("Failed").get("reason")
    yield from _if(reason != "RestartsInVain", f"the job failed for {reason}")
    if "backoffCount" in seen.status:
        left = limit_of(seen) - seen.status["backoffCount"]
        yield from _if(bool(left) != found[0].endswith("with restarts left"), f"{left} are left")


@says("evidence", r"restarts are delayed, the longer the more have failed: next at [\d:]+ UTC")
def _delayed(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    yield from _if(seen.wait is None, "none is")


# What pods wrote.


@says("evidence", r"\| (?P<line>.+)")
@says("card.source", r"(?P<line>.+)")
def _quoted(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    line = found["line"].strip()
    if place := re.fullmatch(r"(\S+):(\d+) in \w+: (.+)", line):
        line = place[3]
    elif launch := re.fullmatch(r"trainyard: (.+)", line):
        line = launch[0]
    told = [line in words for words in seen.words]
    yield from _if(not any(told), "no pod has written it")


# The card.


@says("card.job", r"(?P<kind>\w+) (?P<job>[\w-]+)")
def _card_job(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    real = (seen.job["kind"], seen.job["metadata"]["name"])
    yield from _if((found["kind"], found["job"]) != real, f"it is {real}")


@says(
    "card.outcome",
    r"Failed(?: after (?P<s>\d+\.\d) s)?(?:, (?P<n>\d+) restarts?)?"
    r"(?:, the last (?P<alike>\d+) failures alike: another will not help)?",
)
def _outcome(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from _if(seen.phase != "Failed", f"phase {seen.phase}")
    yield from _restarts(seen, int(found["n"] or 0))
    alike = seen.last_attempt.get("repeated") or 1
    yield from _if(int(found["alike"] or 1) != alike, f"{alike} were alike")


PEERS = (
    r"(?:(?P<followed>\d+) peers? (?P<verb>was stopped|were stopped|ended) because of it)?(?:, )?"
    r"(?:(?P<alone>\d+) peers? failed too)?"
)


def _phase_at_end(entry: dict[str, Any]) -> str:
    """Its phase, before clean-up deleted its pod."""
    if entry["phase"] == "Deleted" and entry.get("reason"):
        return "Failed"
    own = [c for c in entry["containers"] if "role" not in c]
    if entry["phase"] == "Deleted" and own and all(c.get("exitCode") == 0 for c in own):
        return "Succeeded"
    return str(entry["phase"])


@says("card.who", rf"{WHO} failed \({ENDING}\)(?:; {PEERS})?")
def _card_who(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from _blamed(seen, found)
    others = {name: e for name, e in seen.entries.items() if name != found["who"]}
    if seen.job["kind"] in ("ColossalAIJob", "DeepSpeedJob"):
        kind = found["who"].rpartition("-")[0]
        others = {name: e for name, e in others.items() if name.rpartition("-")[0] == kind}
    told = int(found["followed"] or 0), int(found["alone"] or 0)
    last = {name: all_[-1].own_end for name in others if (all_ := seen.pods_of(name))}
    fell = {name for name, end in last.items() if end}
    # A pod that is held begins again where its truth ends by itself.
    held = (seen.spec.get("runPolicy") or {}).get("restartMode") == "InPlace"
    phases = {name: _phase_at_end(entry) for name, entry in others.items()}
    failed = {n for n, e in others.items() if phases[n] == "Failed" and e.get("reason") != STOPPED}
    alone = fell | failed
    yield from _if(told[1] > len(alone), f"{sorted(alone)} failed by themselves")
    pods = {seen.situation.replica(pod): pod for pod in seen.situation.pods}
    well = {n for n, phase in phases.items() if phase in ("Succeeded", "Creating", "Pending")}
    well -= {n for n, pod in pods.items() if pod.status.get("reason")}  # stopped meanwhile
    absent = {n for n, e in others.items() if e["phase"] == "Deleted" and not e["uid"]}
    ran = set(others) - well - absent
    most = len(ran) + len(absent & fell)
    yield from _if(not len(ran) <= sum(told) <= most, f"others are {others}, last ends {last}")
    yield from _if(told[0] < len(ran - alone), f"{sorted(ran - alone)} were stopped")
    unseen = {n for n, phase in phases.items() if phase == "Deleted" and n not in pods}
    by_signal = {n for n, end in last.items() if held or end in (137, 143)} | unseen
    stopped = len(ran - (fell - by_signal)) + len(absent & fell & by_signal)
    says_stopped = str(found["verb"] or "").endswith("stopped")
    yield from _if(says_stopped and told[0] > stopped, f"{stopped} were stopped: ends are {last}")


@says(
    "card.who",
    rf"{WHO} failed \({ENDING}\); (?:another process|(?P<alike>\d+) other processes) failed alike",
)
def _failed_alike(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from _blamed(seen, found)
    ends = [pod.message for pod in seen.truth.pods.values() if pod.own_end]
    ends += [c.termination_message for pod in seen.situation.pods for c in pod.containers]
    same = max((ends.count(words) for words in ends), default=0)
    yield from _if(int(found["alike"] or 1) + 1 > same, f"{same} wrote the same")


@says("card.reason", r"it ended with exit code (?P<code>\d+); its log went with its pod")
@says("advice", "read its log where the logs of pods that are gone are kept, if they are")
def _unread(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    name = str(seen.last_attempt.get("replica"))
    yield from _if(seen.situation.pod(name) is not None, "it is there")


@says("card.reason", r"it ended with exit code (?P<code>\d+), and wrote nothing of why")
def silent(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    card = failure_card_of(seen.situation)  # it may blame another one than the attempt names
    assert card is not None
    ends = [p for p in seen.pods_of(card.replica) if p.own_end == int(found["code"])]
    yield from _if(bool(ends) and all(pod.message for pod in ends), f"it wrote {ends[-1:]}")


@says("card.reason", r"(?P<reading>(?:it|its|the launch) .+)")
def _card_reading(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    known = any(
        re.fullmatch(text, found["reading"]) for text in (*READINGS, *map(re.escape, TAKEN))
    )
    invalid = found["reading"] == "its spec is invalid, so that nothing of it was started"
    late = found["reading"].startswith("its launch did not start in time: ")
    yield from _if(not known and not invalid and not late, "no judge knows this reading")
    yield from _raised(seen, found["reading"])


@says("card.reason", r"(?P<line>.+)")
def _card_words(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    if any(re.fullmatch(text, found["line"]) for text in READINGS):
        return
    said = {re.sub(r"\s+", " ", words) for words in seen.words}
    yield from _if(found["line"] not in said, "no pod has written it")


@says("card.place", r"train\.py:\d+ in main")
@says(
    "card.cause",
    r"these are its last words; none of them says why it ended with exit code \d+",
    r"with these words its program ended \(exit code \d+\)",
)
def _place(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    yield from _if(not any(seen.words), "no pod has written anything")


@says("card.cause", r"(?P<seen>rank (?P<rank>\d+) stood at .+)")
def _stood(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    told = seen.last_attempt.get("lastSeen")
    yield from _if(found["seen"] != told, f"the attempt says {told}")


@says("card.cause", r"(?P<reading>.+)")
def _card_cause(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    if (reasons := TAKEN.get(found["reading"])) is not None:
        told = seen.last_attempt.get("reason")
        yield from _if(told not in reasons, f"the reason is {told}")
    elif not any(re.fullmatch(text, found["reading"]) for text in READINGS):
        yield from _judged(seen, Said("evidence", found["reading"]), Counter())


@says("command", r"trainyard (?:logs|explain|stacks) .+")
def _command(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    yield from ()  # `_misdirects` has judged it
