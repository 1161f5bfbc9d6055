"""Judges of what a diagnosis says of jobs that have not ended, and of its advice."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.simulation.diagnosing import Diagnosed
from tests.simulation.diagnosis_judges import (
    AGE,
    ENDS,
    NAMES,
    RESTARTABLE,
    _if,
    are,
    field_of,
    limit_of,
    says,
    silent,
)
from trainyard.schema.times import parse

# Pods that do not run (yet).


@says("cause", r"(?P<who>[\w-]+) is lost with its node (?P<node>\S+)")
def _lost(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from _if(found["node"] not in seen.lost, f"lost are {sorted(seen.lost)}")


@says("cause", r"(?P<who>[\w-]+) is stuck while it terminates, and its successor waits")
def _stuck(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from are(seen, found["who"], lambda pod: "deletionTimestamp" in pod["metadata"])


@says("evidence", rf"it should have ended {AGE} ago, after a grace of \d+ s")
def _late(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    moments = [parse(pod.deleting_since) for pod in seen.situation.pods if pod.deleting_since]
    yield from _if(not any(at and at < seen.now for at in moments), f"they go at {moments}")


@says("cause", rf"{NAMES} cannot be scheduled: .+")
def _unplaced(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from are(seen, found["names"], lambda pod: not pod["spec"].get("nodeName"))


@says("evidence", r"PodScheduled is False: (?P<text>.+)")
def _refusal(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    told = [pod.no_place for pod in seen.situation.pods]
    yield from _if(found["text"] not in told, f"pods say {told}")


@says("cause", r"(?P<who>[\w-]+) is still preparing: init container (?P<name>\S+) runs")
def _prepares(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from are(seen, found["who"], lambda pod: pod["status"].get("phase") == "Pending")
    pod = next(p for p in seen.situation.pods if seen.situation.replica(p) == found["who"])
    container = pod.container(found["name"])
    yield from _if(container is None or not container.is_running, f"it is {container}")


@says("evidence", rf"it has been running for {AGE}")
def _for_long(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    yield from _if(not any(c.is_running for p in seen.situation.pods for c in p.containers), "no")


@says("cause", r"container (?P<name>\S+) of (?P<who>[\w-]+) ends again and again: .+")
def _ends_again(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    pod = next(p for p in seen.situation.pods if seen.situation.replica(p) == found["who"])
    container = pod.container(found["name"])
    reason = container.reason if container else ""
    yield from _if(reason != "CrashLoopBackOff", f"it is {container}")


@says("evidence", r"container (?P<name>\S+) waits: (?P<reason>\w+)")
def _container_waits(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    told = [(c.name, c.reason) for p in seen.situation.pods for c in p.containers if c.waiting]
    yield from _if((found["name"], found["reason"]) not in told, f"{told}")


@says(
    "cause",
    r"(?P<run>\d+) of (?P<all>\d+) replicas run(?: and wait for (?P<what>their peers at the "
    r"rendezvous|the sshd of their peers, before the launch))?",
)
def _for_peers(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    real = (seen.count("Running"), len(seen.entries))
    yield from _if((int(found["run"]), int(found["all"])) != real, f"{real} run")
    over_ssh = seen.job["kind"] in ("ColossalAIJob", "DeepSpeedJob")
    what = str(found["what"])
    yield from _if(("sshd" in what) != over_ssh, f"it is a {seen.job['kind']}")
    free = seen.job["kind"] == "GenericJob"
    yield from _if(free != (what == "None"), "replicas of a GenericJob wait for nobody")


@says("cause", rf"its replicas are being started: {NAMES}")
@says("evidence", rf"not running yet: {NAMES}")
def _started(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    named = re.findall(r"([\w-]+) \((\w+)\)", found["names"])
    more = re.search(r" and (\d+) more$", found["names"])
    for name, phase in named:
        real = seen.entries[name]["phase"]
        yield from _if(phase != real, f"{name} is {real}")
    if found[0].startswith("not running"):
        number = len(named) + (int(more[1]) if more else 0)
        missing = seen.count("Creating", "Pending")
        yield from _if(number != missing, f"{missing} do not run yet")


@says("cause", r"it is elastic and runs with (?P<run>\d+) of (?P<all>\d+) replicas")
def _elastic(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    real = (seen.count("Running"), (seen.spec.get("elastic") or {}).get("expectedReplicas"))
    yield from _if((int(found["run"]), int(found["all"])) != real, f"{real} run")


@says("evidence", r"it needs (?P<n>\d+) at least")
def _least(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    least = (seen.spec.get("elastic") or {}).get("minReplicas")
    yield from _if(int(found["n"]) != least, f"it needs {least}")


@says("advice", r"the other one joins as soon as possible", r"the other (?P<n>\d+) join as .+")
def _joins(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    number = int(found.groupdict().get("n") or 1)
    awaited = seen.count("Creating", "Pending", "Unknown")
    yield from _if(number != awaited, f"{awaited} may come")


@says("cause", r"(?P<n>\d+) of its replicas failed for good, and it goes on without (?:it|them)")
def _lost_for_good(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    failed = [name for name, entry in seen.entries.items() if entry["phase"] == "Failed"]
    yield from _if(int(found["n"]) > len(failed), f"{failed} failed")
    records = seen.account.get("replicas") or {}
    for name in failed:
        pods = seen.pods_of(name)
        record = records.get(f"{seen.situation.job.base}-{name}") or {}
        wanted = record.get("attempt", seen.account.get("floor", 1))
        again = bool(pods) and pods[-1].attempt < wanted
        yield from _if(again and int(found["n"]) == len(failed), f"{name} is started again")


# Launches, checks, hangs.


@says("cause", rf"its launch has not started for {AGE}: (?P<words>.+)")
def _not_launched(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    told = [str(e.get("message")) for e in seen.situation.events]
    told.append(str(seen.condition("Launched").get("message")))
    silent = found["words"] == "it does not say yet what it waits for"
    yield from _if(not silent and not any(found["words"] in text for text in told), f"{told}")
    starts = [c.obj.get("started") for p in seen.situation.pods for c in p.main_containers]
    yield from _if(False not in starts, "no container has yet to start")


@says("evidence", r"(?P<who>[\w-]+) launches the training, which may take (?P<s>\d+) s in all")
def _limit_of_launch(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    limit = (seen.spec.get("runPolicy") or {}).get("launchTimeoutSeconds", 600)
    yield from _if(int(found["s"]) != limit, f"it may take {limit} s")


@says("cause", "the hosts of its launch are not alike")
def _differ(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    yield from _if(seen.condition("Launched").get("reason") != "HostsDiffer", "they are")


@says("cause", rf"its nodes are being checked before the commands start, for {AGE}")
@says("advice", "wait: it takes seconds, and three minutes at most")
def _checking(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    yield from _state(seen, "Checking")


@says("cause", "the check of its nodes before the start is not complete; it runs all the same")
@says("advice", "the image has to have torch, and its replicas must reach each other at any port")
@says("advice", r"`trainyard logs \S+` shows what each replica says of it")
def _incomplete(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    yield from _state(seen, "Incomplete")


@says(
    "cause",
    r"the node of (?P<who>[\w-]+)(?:, (?P<node>\S+),)? did badly in the check before the start",
)
def _bad_node(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from _state(seen, "BadNodes")
    bad = [each["node"] for each in seen.status["nodeCheck"].get("badNodes") or ()]
    yield from _if((found["node"] or "") not in bad, f"bad are {bad}")


def _state(seen: Diagnosed, state: str) -> Iterator[str]:
    real = (seen.status.get("nodeCheck") or {}).get("state")
    yield from _if(real != state, f"its state is {real}")


@says("advice", "look at that node; pods of this job are kept off it")
@says("advice", "look at that node, or keep the job off it by its template's affinity")
def _kept_off(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from _state(seen, "BadNodes")
    avoided = bool(seen.status["nodeCheck"].get("avoided"))
    yield from _if("are kept off" in found[0] and not avoided, "no node is avoided")


@says(
    "cause",
    rf"it hangs, as is known for {AGE}: (?P<text>.+)",
    r"it gets no further for now: (?P<text>.+)",
    r"it may hang: (?P<text>.+)",
    r"it does nothing at present: (?P<text>.+)",
)
def _hangs(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    told = seen.condition("Hung")
    yield from _if(found["text"] != told.get("message"), f"the condition says {told}")
    is_hang = found[0].startswith("it hangs")
    yield from _if(is_hang != (told.get("status") == "True"), f"the condition is {told}")
    yield from _if(seen.phase in (*ENDS, "Paused"), f"phase {seen.phase}")


@says("evidence", "that is no hang, as long as it works")
def _works(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    yield from _if(seen.condition("Hung").get("reason") != "WaitsForBusyRank", "none works")


@says(
    "cause",
    rf"(?P<who>[\w-]+) \(rank (?P<rank>\d+)\) is late at most collectives, as is known for {AGE}: "
    r"others wait for it (?P<percent>\d+)% of the time",
)
def _straggles(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    told = [(e["rank"], e["latePercent"]) for e in seen.status.get("stragglers") or ()]
    yield from _if((int(found["rank"]), int(found["percent"])) not in told, f"late are {told}")


@says("evidence", r"it runs on (?P<node>\S+)")
def _runs_on(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    nodes = {pod.node for pod in seen.situation.pods}
    yield from _if(found["node"] not in nodes, f"pods run on {nodes}")


# Advice.


@says("advice", r"more restarts are allowed by (?P<field>[\w.]+), if a restart can help")
def _more(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from field_of(seen, found["field"])
    yield from _if(seen.phase != "Failed", f"phase {seen.phase}")


@says("advice", r"if a restart can help, change that rule of spec\.runPolicy\.podFailurePolicy")
def _change_rule(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    reason = seen.condition("Failed").get("reason")
    yield from _if(reason != "PodFailurePolicy", f"the job failed for {reason}")


@says("advice", "restartPolicy ExitCode or OnFailure would have restarted it")
def _would(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    replica = seen.situation.replica(str(seen.last_attempt.get("replica")))
    limit, code = limit_of(seen, replica), seen.last_attempt.get("exitCode")
    yield from _if(limit == 0, "the limit is 0, so it would not")
    yield from _if(code not in RESTARTABLE, f"the code is {code}")


@says(
    "advice",
    "a restart will not help before that is corrected",
    r"a restart will not help: it has failed (?P<n>\d+) times in a row so, and got no further in "
    "between",
)
def _in_vain(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    if number := found.groupdict().get("n"):
        real = seen.last_attempt.get("repeated")
        yield from _if(int(number) != real, f"it has {real} times")
    yield from _if(seen.phase != "Failed", f"phase {seen.phase}")


@says("advice", r"have the program say why before it ends with exit code (?P<code>\d+)")
def _say_why(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from silent(seen, found)


@says("advice", r"correct train\.py, line (?P<line>\d+)")
def _correct(seen: Diagnosed, found: re.Match[str]) -> Iterator[str]:
    yield from _if(not any(f"line {found['line']}," in words for words in seen.words), "no such")


READING_ADVICE = (
    r"run it again, if that was not meant",
    r"(?:raise resources\.limits\.memory of the container, or )?use less memory",
    r"look for `Out of memory` in the kernel's log \(dmesg\)",
    r"look at the logs of the others, and at the machines and the network between them",
    r"look whether that server runs and can be reached from where the replica runs",
    r"install it for the Python that the replica runs, .+",
    r"let another port be used, .+",
    r"check the path, `workingDir` and the volume mounts; .+",
    r"request what it needs",
    r"look at what it wrote before",
)


@says("advice", *READING_ADVICE)
def _of_reading(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    yield from _if(not seen.last_attempt, "nothing has failed")


STEADY_ADVICE = (
    (
        r"`trainyard logs \S+(?: --replica \S+)?(?: -c \S+)?(?: --previous)?`"
        r"(?: shows (?:what it wrote|what they wrote|how far it came))?"
    ),
    r"`trainyard events \S+` tells what happened to the others",
    r"`trainyard events \S+` tells whether something keeps them from it",
    r"`trainyard resume \S+`",
    r"`trainyard stacks \S+` shows (?:what every rank does|the stacks of all ranks at that time)",
    r"`trainyard delete \S+` ends what goes on; with spec\.\S+: \S+ it ends with the job",
    r"`kubectl get localqueues,workloads\.kueue\.x-k8s\.io -n \S+` shows who holds the quota",
    (
        r"correct the manifest \(`trainyard validate -f FILE` checks it\), "
        r"then `trainyard delete \S+` and submit it again"
    ),
    (
        r"it will be deleted by force after some minutes; by hand: "
        r"`kubectl delete pod \S+ --force --grace-period=0`"
    ),
    r"delete that object, or give the job another name",
    (
        r"ask for less, end other jobs of namespace \S+, or have its ResourceQuota raised; the "
        r"creation is tried again by itself"
    ),
    r"change what the message names; the creation is tried again by itself",
    r"install Kueue, Volcano or scheduler-plugins and start the operator anew, .+",
    r"whoever runs the operator must let it list resourceflavors\.kueue\.x-k8s\.io",
    r"give all replicas the same image or environment, .+",
    r"no sshd listens there: .+",
    r"replicas find each other by DNS: .+",
    r"the launcher itself hangs or has failed: .+",
    r"look at what that rank has to do more than others .+",
    r"look at that line: what it waits for does not come(?:; .+)?",
    r"have every rank call the same collectives, .+",
    r"let it go on \(SIGCONT\), or find out what stopped it(?:; .+)?",
    r"pods end within their grace period; wait for it",
    r"whoever set the finalizers must remove them",
    r"raise (?:--timeout|spec\.runPolicy\.activeDeadlineSeconds), .+",
    r"raise maxDuration of the queue, .+",
    r"after some minutes the pod is deleted by force and replaced, at no cost",
    r"`kubectl describe node \S+` tells more",
    r"correct nodeSelector or affinity of the pod template",
    r"or label a node: .+",
    r"`trainyard status`, and its log, tell whether the controller runs",
    r"look at what the probe asks for; the job itself does not wait for it",
)
"""What is right whenever its cause is, which has its judge; its commands are judged apart."""


@says("advice", *STEADY_ADVICE)
def _steady(seen: Diagnosed, _: re.Match[str]) -> Iterator[str]:
    yield from _if(seen.phase == "Succeeded" and "goes on" not in _[0], "it has succeeded")
