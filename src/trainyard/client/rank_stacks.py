"""The stacks of a job's ranks: as they are now, or as they were when it hung."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainyard.client.cluster_target import ClusterTarget
from trainyard.client.exec_client import run_in_container
from trainyard.client.job_lookup import pods_of
from trainyard.client.job_view import Job
from trainyard.client.pod_views import PodView
from trainyard.client.replica_commands import Execution
from trainyard.kinds.shared import labels
from trainyard.kube.client import Client, Selection
from trainyard.kube.resources import CONFIG_MAPS
from trainyard.payloads import shipping
from trainyard.schema.dataclass import dataclass

Thread = tuple[str, tuple[tuple[str, int, str], ...]]
_STDOUT = 1
_WAITS = ("waiting", "meeting")
"""Words for what ranks do that wait for others, and so are less odd than these."""
_SPY = str(Path(sysconfig.get_path("scripts"), "py-spy"))
"""Where it is if it was installed with trainyard, which pods of this machine see."""
_IMPORT_SECONDS = 60.0
"""A process that is not observed after so long imports none of the libraries that ranks meet by."""
_AT_ONCE = 16
"""Pods that are asked at a time."""
_STATES = {
    "T": "is stopped (SIGSTOP)",
    "t": "is held by a debugger",
    "R": "does not answer, and runs: it holds its interpreter's lock in a long call",
    "D": "does not answer, and waits for a disk or a device",
    "": "has ended meanwhile",
}


def program() -> str:
    """What asks the processes of a pod, as an argument of `python3 -IS -c`."""
    return shipping.source("observer.stack_collector")


@dataclass(frozen=True, slots=True)
class Stack:
    """One process: its replica, its rank (-1: it has none), what it does, and its threads'
    frames (file, line, function), the innermost first; without threads `doing` says why.
    `answers`: for itself."""

    replica: str
    pid: int
    rank: int
    doing: str
    threads: tuple[Thread, ...] = ()
    answers: bool = True

    @classmethod
    def decode(cls, replica: str, line: str) -> Stack:
        """From a line of the program's; raises ValueError for any other."""
        report = json.loads(line)
        pid, rank = report["pid"], report.get("rank", -1)
        threads = tuple(_thread(each) for each in report.get("threads", ()))
        if "state" not in report:
            return cls(replica, pid, rank, report["doing"].lower(), threads)
        return cls(replica, pid, rank, _silent(report), threads, answers=False)

    @property
    def name(self) -> str:
        """`worker-1 (rank 1)`."""
        return (
            f"{self.replica} ({f'rank {self.rank}' if self.rank >= 0 else f'process {self.pid}'})"
        )


def _silent(report: Mapping[str, Any]) -> str:
    """What is said of a process that does not answer for itself."""
    state, problem = report["state"], report.get("problem")
    doing = _STATES.get(state, f"does not answer ({state})")
    if state and not report.get("observed", True):
        doing = f"is not observed{', and is stopped (SIGSTOP)' if state == 'T' else ''}"
        if state != "T" and report.get("seconds", _IMPORT_SECONDS) < _IMPORT_SECONDS:
            return "may still import its libraries; ask again in a moment"
    if problem == "missing":
        return f"{doing}; only py-spy can tell where: pip install 'trainyard-jobs[stacks]'"
    return f"{doing}; py-spy says: {problem}" if problem else doing


def _thread(report: Mapping[str, Any]) -> Thread:
    return str(report["name"]), tuple((str(f), int(n), str(w)) for f, n, w in report["frames"])


def grouped(stacks: Sequence[Stack], *, all_threads: bool) -> str:
    """As text: equal ones once, and the odd ones first."""
    groups: dict[tuple[str, tuple[Thread, ...]], list[str]] = {}
    for stack in stacks:
        threads = stack.threads if all_threads else stack.threads[:1]
        groups.setdefault((stack.doing, threads), []).append(stack.name)
    parts = []
    for (doing, threads), names in sorted(
        groups.items(), key=lambda group: (len(group[1]), group[0][0] in _WAITS)
    ):
        lines = [f"{', '.join(names)}: {doing}"]
        for name, frames in threads:
            lines += [f"  thread {name}:"] if all_threads else []
            lines += [f"    {function} ({file}:{line})" for file, line, function in frames]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


async def collect(target: ClusterTarget, job: Job, *, all_threads: bool) -> str:
    """The stacks of all ranks that can be asked now; empty if there are none."""
    pods = [pod for pod in await pods_of(target.client, job) if not pod.deleting_since]
    running = [
        pod
        for pod in pods
        if (view := pod.container(job.training_container(pod))) is not None and view.is_running
    ]
    limit = asyncio.Semaphore(_AT_ONCE)
    found = await asyncio.gather(*(_of_pod(target, job, pod, limit) for pod in running))
    stacks = sorted((each for some in found for each in some), key=lambda each: each.rank)
    ranks = [each for each in stacks if each.rank >= 0 or not each.answers]
    return grouped(ranks or stacks, all_threads=all_threads)


async def _of_pod(
    target: ClusterTarget, job: Job, pod: PodView, limit: asyncio.Semaphore
) -> Sequence[Stack]:
    words = ["/usr/bin/env", "python3", "-IS", "-c", program(), pod.name, _SPY]
    written = bytearray()
    wanted = Execution(pod, job.training_container(pod), words, stdin=False)
    async with (
        limit,
        run_in_container(target, wanted) as remote,
        contextlib.aclosing(remote.output()) as chunks,
    ):
        async for stream, data in chunks:
            written += data if stream == _STDOUT else b""
    found = []
    for line in written.decode(errors="replace").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            found.append(Stack.decode(job.replica_of(pod.name), line))
    return found


async def kept(client: Client, job: Job) -> str:
    """What was found when the job hung last; empty if it never did."""
    selector = f"{labels.JOB_UID}={job.uid}"
    listed, _ = await client.list(CONFIG_MAPS, job.namespace, Selection(labels=selector))
    found = [each for each in listed if "stacks" in (each.get("data") or {})]
    if not found:
        return ""
    last = max(found, key=lambda each: str(each["metadata"].get("creationTimestamp")))
    data = last["data"]
    return f"when it hung: {data.get('finding', '')}\n\n{data['stacks']}"
