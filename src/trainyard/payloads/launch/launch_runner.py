"""Runs the launch of a job over ssh, on DeepSpeed's worker-0 or ColossalAI's launcher.

It waits until ssh answers on every replica, and starts the real launcher (``deepspeed``,
``colossalai run`` or the user's own command). It watches the ranks through an agent on each
replica, and ends with the exit code of the rank that failed first. An elastic launch starts with
the replicas that answer, and starts again when the members change. Runs in the user's image:
standard library, Python 3.8.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from trainyard.payloads.crash_stack import write_crash
from trainyard.payloads.launch.hostfile import address
from trainyard.payloads.launch.launcher_programs import (
    MissingProgram,
    Program,
    describe_exit,
    program,
    require,
    shell_exit_code,
)
from trainyard.payloads.launch.preflight import (
    PreflightQuery,
    ReplicasNotReady,
    describe_missing,
    differences,
    is_nowhere,
)
from trainyard.payloads.launch.replica_agent import log_line
from trainyard.payloads.launch.ssh_connections import (
    LaunchEvent,
    LaunchProgress,
    ReplicaConnection,
    describe_missing_replicas,
)
from trainyard.payloads.launch.sshd_requirements import PERMANENT

if TYPE_CHECKING:  # types are not shipped to pods
    from trainyard.payloads.payload_messages import AgentOrder, CommandLaunch, LaunchDescription

FIRST_FAILURE_SECONDS = 1.0
"""How long reports are collected before the earliest counts as the first."""
KILL_AFTER_SECONDS = 5.0
"""How long the ranks have to end after a failure of one of them."""
STOP_SECONDS = 5.0
"""How long the launcher has to end after its ranks."""
LAST_OUTPUT_SECONDS = 1.0
"""How long the launcher has to hand on what its ranks wrote last."""
END_SECONDS = 5.0
NOT_FOUND, LOST = 127, 137
UNREADY = 2  # as Python's own for a script that is not there
"""``LOST`` stands for a replica that vanished. It counts as killed by SIGKILL, after which a
restart is allowed (decision 19)."""


class RankFailure(NamedTuple):
    """A rank that failed, or a replica that vanished; ordered by time."""

    time: float
    code: int
    text: str
    host: str
    lost: bool = False
    crash: str = ""
    """The stack of a crash on its host."""


class LaunchRunner:
    """Launches again and again, until one launch is the last."""

    def __init__(self, spec: LaunchDescription, run: Path) -> None:
        self.spec, self.run = spec, run
        self.program: Program = program(spec, run)
        self.hosts: list[str] = spec["hosts"]
        self.elastic = spec.get("elastic")
        self.events: queue.SimpleQueue[LaunchEvent] = queue.SimpleQueue()
        self.connections = {
            host: ReplicaConnection(
                host, (address(spec["places"], host), spec["port"]), self.events
            )
            for host in self.hosts
        }
        self.progress = LaunchProgress(run)
        self.ready: set[str] = set()
        self.members: list[str] = []
        self.changed_at = time.monotonic()
        self.stopping = False
        """Whether the ranks have been asked to end. How they end from then on means nothing."""
        self.failures: list[RankFailure] = []
        self.started_ranks: set[str] = set()
        self.ended_ranks: set[str] = set()
        self.ended_hosts: set[str] = set()
        self.have_reset: set[str] = set()
        self.terminated = 0
        self.leaving = False
        """Whether a member is being deleted. Its peers then have time for an orderly end."""

    def next_event(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds for one event, and handle it."""
        try:
            event = self.events.get(timeout=max(timeout, 0.01))
        except queue.Empty:
            return
        if event.what == "report":
            self.take_report(event)
        elif event.what == "ready":
            self.ready.add(event.host)
            self.changed_at = time.monotonic()
        elif event.what == "lost" and event.host in self.ready:
            self.lose_replica(event.host, event.detail)
        elif event.what == "signal":
            self.terminated = int(event.detail)

    def take_report(self, event: LaunchEvent) -> None:
        """``start-<rank>``, ``end-<rank>-<code>-<unix ns>``, ``leaving``, ``bye``, ``forgot``."""
        kind, *fields = event.detail.split("-")
        if kind == "start":
            self.started_ranks.add(f"{event.host} {fields[0]}")
            self.progress.done()
        elif kind == "end":
            rank, code, nanoseconds = fields[0], int(fields[1]), int(fields[2])
            self.ended_ranks.add(f"{event.host} {rank}")
            if code and self.program.failures_count and not self.stopping:
                when = nanoseconds / 1e9 - self.connections[event.host].clock_ahead
                who = "the launch" if rank.startswith("s") else f"rank {rank}"
                text = f"{who} on {event.host} {describe_exit(code)}"
                at = when if nanoseconds else time.time()
                failure = RankFailure(at, code, text, event.host, crash=event.crash)
                self.failures.append(failure)
        elif kind == "leaving":
            self.leaving = self.leaving or event.host in self.members
            self.lose_replica(event.host, "it is being deleted")
        elif kind == "bye":
            self.ended_hosts.add(event.host)
        elif kind == "forgot":
            self.have_reset.add(event.host)

    def lose_replica(self, host: str, reason: str) -> None:
        """Note that a replica is gone. What its peers report from now on is a consequence."""
        self.ready.discard(host)
        self.changed_at = time.monotonic()
        if host in self.members and not self.stopping:
            text = f"{host} was lost: {reason}"
            self.failures.append(RankFailure(time.time(), LOST, text, host, lost=True))

    # -- waiting ---------------------------------------------------------------------------

    def can_start(self) -> bool:
        """Whether all replicas answer, or enough do.

        Fewer are enough for an elastic launch, once membership has settled (decision 31).
        """
        if len(self.ready) == len(self.hosts):
            return True
        elastic = self.elastic
        if not elastic or len(self.ready) < elastic["min"] or self.hosts[0] not in self.ready:
            return False
        return time.monotonic() - self.changed_at >= elastic["settleSeconds"]

    def wait_for_replicas(self) -> None:
        """Wait until the launch can start, or this pod is to end."""
        while not self.can_start() and not self.terminated:
            self.next_event(0.2)
            missing = [self.connections[host] for host in self.hosts if host not in self.ready]
            self.progress.wait(describe_missing_replicas(missing))

    # -- running ---------------------------------------------------------------------------

    def check(self) -> None:
        """Run the preflight: ask the replicas what they have, and log how they differ.

        Raises ReplicasNotReady where one lacks what the ranks need.
        """
        preflight_request = self.program.preflight_request() if len(self.members) > 1 else None
        if preflight_request is None:
            return
        questions = [PreflightQuery(host, preflight_request) for host in self.members]
        for question in questions:
            question.start()
        while any(question.is_alive() for question in questions) and not self.terminated:
            self.next_event(0.05)
        found = {each.host: each.found for each in questions if each.found is not None}
        if missing := describe_missing(found):
            raise ReplicasNotReady(
                f"the preflight failed with exit code {UNREADY}: missing are {missing}",
                is_permanent=len(found) == len(self.members) and is_nowhere(found),
            )
        slots = cast("CommandLaunch", self.spec["launch"]).get("slots", 0)
        differing = differences(found, slots)
        for difference in differing:
            log_line(f"preflight: {difference}")
        self.progress.note = f"preflight: {'. '.join(differing)}" if differing else ""

    def start(self) -> subprocess.Popen[bytes]:
        """Start the real launcher in a process group of its own."""
        self.members = [host for host in self.hosts if host in self.ready]
        argv, environment = self.program.command(self.members)
        self.check()
        self.stopping = False
        self.failures, self.started_ranks, self.ended_ranks = [], set(), set()
        self.leaving = False
        log_line(f"launching on {', '.join(self.members)}: {' '.join(argv)}")
        try:
            folder = self.program.folder()
            process = subprocess.Popen(argv, env=environment, cwd=folder, start_new_session=True)
        except OSError as error:
            raise MissingProgram(argv[0], error.strerror or "cannot be run") from error

        def reap() -> None:
            self.events.put(LaunchEvent("ended", detail=str(process.wait())))

        threading.Thread(target=reap, daemon=True, name="reaper").start()
        if not self.program.must_start_ranks:
            self.progress.done()
        return process

    def should_stop(self) -> bool:
        """Whether a failure has lasted long enough, members can join, or this pod is to end."""
        if self.terminated or self.leaving:
            return True
        if self.failures:
            return time.time() - min(self.failures).time >= FIRST_FAILURE_SECONDS
        joining = self.ready - set(self.members)
        return bool(self.elastic and joining) and self.can_start()

    def run_once(self) -> int:
        """One launch, from its start to the end of the last rank; the launcher's exit code."""
        process = self.start()
        while process.poll() is None and not self.should_stop():
            self.next_event(0.1)
            if self.program.must_start_ranks and not self.started_ranks:
                self.progress.wait(f"{self.program.name} was started, but no rank has begun")
        if process.poll() is None:
            self.stop(process)
        else:
            self.collect_late_reports()
        self.stopping = True
        return process.wait(STOP_SECONDS)

    def collect_late_reports(self) -> None:
        """Wait for reports of ranks that may arrive after the launcher's own end."""
        deadline = time.monotonic() + FIRST_FAILURE_SECONDS
        while time.monotonic() < deadline and (
            self.failures or self.started_ranks - self.ended_ranks
        ):
            self.next_event(0.1)
        while not self.events.empty():
            self.next_event(0.01)

    def stop_seconds(self) -> float:
        """Seconds that the ranks have to end.

        If a pod is being deleted, it is what the pods' grace period allows (decision 97).
        """
        orderly = self.terminated or self.leaving
        return self.spec["graceSeconds"] if orderly else KILL_AFTER_SECONDS

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """End the ranks on every replica; the launcher ends with them, or else is killed."""
        self.stopping = True
        seconds = self.stop_seconds()
        for link in self.connections.values():
            link.send("stop", str(seconds))
        deadline = time.monotonic() + seconds + STOP_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            self.next_event(0.1)
            if self.started_ranks and not self.running_ranks():
                deadline = min(deadline, time.monotonic() + LAST_OUTPUT_SECONDS)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)

    def running_ranks(self) -> set[str]:
        """Ranks that have not ended, on replicas with a connection."""
        running = self.started_ranks - self.ended_ranks
        return {rank for rank in running if self.connections[rank.split()[0]].ssh is not None}

    # -- ending ----------------------------------------------------------------------------

    def exit_code(self, launcher_code: int) -> int:
        """The exit code: that of the first failure, never 0 if any rank failed (decision 19)."""
        if self.terminated:
            return 128 + self.terminated
        if self.failures:
            first = min(self.failures, key=lambda failure: (not failure.lost, failure.time))
            log_line(first.text)
            write_crash(first.crash)
            return first.code
        if launcher_code:
            log_line(f"{self.program.name} ended with exit code {launcher_code}")
            return shell_exit_code(launcher_code)
        if self.started_ranks - self.ended_ranks:
            log_line(f"{len(self.started_ranks - self.ended_ranks)} ranks ended without a trace")
            return 1
        if self.program.must_start_ranks and not self.started_ranks:
            log_line(f"{self.program.name} ended with 0, but no rank was started")
            return 1
        return 0

    def should_launch_again(self) -> bool:
        """Whether the launch ended because members came or went, and not because training ended."""
        if not self.elastic or self.terminated:
            return False
        if self.failures:
            return any(failure.lost for failure in self.failures) or self.leave_out_newcomer()
        return bool(self.ready - set(self.members))

    def leave_out_newcomer(self) -> bool:
        """If the first to fail was a rank of a newcomer: let that replica alone end with its code.
        Its peers' failures follow from it, and cost nothing (decision 131)."""
        first = min(self.failures, key=lambda failure: failure.time)
        if first.host == self.hosts[0] or not self.connections[first.host].joins:
            return False
        log_line(f"{first.text}; it joined the others, which go on without it")
        self.connections[first.host].send("fail", str(first.code))
        self.ready.discard(first.host)
        self.changed_at = time.monotonic()
        return True

    def ask(self, order: AgentOrder, answered: set[str], seconds: float = END_SECONDS) -> None:
        """Send an order to every replica, and wait for the answers."""
        answered.clear()
        asked = set(self.ready)
        for host in asked:
            self.connections[host].send(order)
        deadline = time.monotonic() + seconds
        while (asked & self.ready) - answered and time.monotonic() < deadline:
            self.next_event(0.1)

    def main(self) -> int:
        """Launch until the training has ended; return the pod's exit code."""
        require("ssh", "install openssh-client in the image")
        for link in self.connections.values():
            link.start()
        while True:
            self.wait_for_replicas()
            if self.terminated:
                return 128 + self.terminated
            code = self.run_once()
            if (code == 0 and not self.failures) or not self.should_launch_again():
                return self.exit_code(code)
            log_line("the replicas that answer have changed; launching again with those that do")
            self.ask("reset", self.have_reset, self.stop_seconds() + STOP_SECONDS)


def main() -> int:
    """Run the launch that a file describes. If it was the last, release the other replicas."""
    spec: LaunchDescription = json.loads(Path(sys.argv[1]).read_text())
    run = Path(sys.argv[2])
    launch = LaunchRunner(spec, run)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(
            number, lambda got, _: launch.events.put(LaunchEvent("signal", detail=str(got)))
        )
    try:
        code = launch.main()
    except ReplicasNotReady as unready:
        log_line(f"{PERMANENT if unready.is_permanent else ''}{spec['pod']}: {unready}")
        code = UNREADY
    except MissingProgram as missing:
        log_line(f"{PERMANENT}{spec['pod']}: {missing}")
        code = NOT_FOUND
    # A pod that is only replaced, or started again alone, needs the others where they are.
    if not launch.terminated and (code == 0 or not spec.get("workersStay")):
        launch.stopping = True
        launch.ask("end", launch.ended_hosts)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
