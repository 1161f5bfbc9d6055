"""First process of the training container, in a job that restarts in place.

It starts the command and, when that has failed, keeps the pod: it reports to the controller how the
attempt ended, and waits for the answer that starts the command again. If the controller stays
silent for too long, the pod ends with the command's exit code, as it would without this program,
and new pods take its place. Runs in the user's image: standard library, Python 3.8.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.payloads import processes
from trainyard.payloads.crash_stack import read_crash, write_crash
from trainyard.payloads.in_place.in_place_process import CommandProcess
from trainyard.payloads.report_client import ReportClient

if TYPE_CHECKING:  # types are not shipped to pods
    from trainyard.payloads.payload_messages import AttemptReport

VARIABLE, UID = "TRAINYARD_HOLD", "TRAINYARD_POD_UID"
"""``attempt=1,grace=30,every=0.25,preload=torch+numpy,files=/t9k/channel,url=https://…``, and the
pod's own UID."""
OBSERVE, ATTEMPT = "TRAINYARD_OBSERVE", "TRAINYARD_ATTEMPT"
RESTART_COUNT = "TORCHELASTIC_RESTART_COUNT"
PATIENCE_SECONDS = 60.0
"""How long an ended attempt waits for a decision, and after that for any answer."""
RUNNING_SECONDS = 0.5
"""How often the controller is asked while the command runs."""
KILLED_SECONDS = 5.0
STANDBY_SECONDS = 10.0
"""After the command has begun: its own start is not to be slowed down."""
NOT_FOUND = 127
PR_SET_CHILD_SUBREAPER = 36
ANSWER_SIGNAL = signal.SIGALRM
"""The signal by which the reporting thread says that there is an answer."""
PASSED_ON = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGWINCH),
)
WATCHED = (signal.SIGCHLD, ANSWER_SIGNAL, *PASSED_ON)
OOM_EVENTS = Path("/sys/fs/cgroup/memory.events")


def log_line(text: str) -> None:
    """A line in the container's log."""
    print(f"trainyard: {text}", flush=True)


def parse_settings(text: str) -> dict[str, str]:
    """What the pod's variable says."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def oom_kills() -> int:
    """How many processes of this container were killed for want of memory."""
    try:
        lines = OOM_EVENTS.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


class InPlaceSupervisor:
    """Keeps the pod, for one attempt after the other."""

    def __init__(self, argv: list[str], variables: dict[str, str]) -> None:
        given = parse_settings(variables[VARIABLE])
        self.argv, self.variables = argv, variables
        self.attempt = int(given["attempt"])
        self.state = self.running_state()
        """The attempt's state. It is replaced as a whole, since another thread reads it."""
        self.grace, self.interval_seconds = float(given["grace"]), float(given["every"])
        self.client = ReportClient(given["url"], given["files"])
        self.child = 0
        self.preloaded_modules = given.get("preload")
        """What a Python imports that waits for the next attempt; None: none waits."""
        self.standby: CommandProcess | None = None
        self.ended_at = self.answered_at = 0.0
        self.kill_at = 0.0
        self.job_attempt = self.startable_attempt = 0
        """The attempt that the job is in, and the one that is to run in this pod."""
        self.is_over = False
        """Whether the controller wants nothing of this pod any more."""
        self.leaving = False
        """Whether the pod is to end."""
        self.changed = threading.Event()

    # What the controller says.

    def report_loop(self) -> None:
        """The thread that asks, until the process ends."""
        while True:
            status, body = self.client.ask({"hold": self.attempt_report()})
            self.is_over = status in (404, 409)
            if status == 200:
                self.take_answer(body)
            if status:
                self.answered_at = time.monotonic()
            os.kill(os.getpid(), ANSWER_SIGNAL)
            at_least = 0.0 if self.state["ended"] else RUNNING_SECONDS
            self.changed.wait(max(self.interval_seconds, at_least))
            self.changed.clear()

    def take_answer(self, body: bytes) -> None:
        """An answer."""
        try:
            answer: dict[str, Any] = json.loads(body)
            self.job_attempt, self.startable_attempt = int(answer["wanted"]), int(answer["start"])
        except (ValueError, KeyError, TypeError):
            return

    def attempt_report(self) -> AttemptReport:
        """How the attempt is now."""
        state = self.state
        ago = round(time.monotonic() - self.ended_at, 3) if state["ended"] else 0.0
        return {**state, "seconds": ago}

    def running_state(self) -> AttemptReport:
        """Of an attempt that has not ended."""
        uid = self.variables.get(UID, "")
        return {
            "uid": uid,
            "attempt": self.attempt,
            "ended": False,
            "exitCode": 0,
            "seconds": 0.0,
            "message": "",
        }

    # One attempt.

    def start(self, attempt: int, preloaded_modules: str | None) -> CommandProcess:
        """Start the command for an attempt; of modules see `CommandProcess`."""
        environment = {**self.variables, ATTEMPT: str(attempt)}
        if RESTART_COUNT in environment:
            environment[RESTART_COUNT] = str(attempt - 1)
        if OBSERVE in environment:
            old, _, rest = environment[OBSERVE].partition(",")
            if old.startswith("attempt="):
                environment[OBSERVE] = f"attempt={attempt},kept=1,{rest}"
        return CommandProcess(self.argv, environment, attempt, preloaded_modules)

    def start_due_attempt(self) -> CommandProcess:
        """The attempt that is due, in the process that waits for it, if there is one."""
        standby, self.standby = self.standby, None
        if standby is not None:
            if standby.attempt == self.attempt and standby.release():
                return standby
            standby.kill()
        return self.start(self.attempt, "" if self.preloaded_modules else None)

    def start_standby(self, running: CommandProcess, since: float) -> bool:
        """Have a process wait for the next attempt, once that is due; whether it is settled."""
        if not running.can_stand_by():
            return not self.preloaded_modules
        if time.monotonic() - since < STANDBY_SECONDS:
            return False
        with contextlib.suppress(OSError):  # no process more: the next attempt may have one
            self.standby = self.start(self.attempt + 1, self.preloaded_modules)
        return True

    def run_attempt(self) -> int:
        """The attempt from its start until its last process has gone; its exit code."""
        self.state, self.kill_at = self.running_state(), 0.0
        killed_before = oom_kills()
        write_crash("")
        running, since = self.start_due_attempt(), time.monotonic()
        self.child, errors, is_prepared = running.pid, running.errors, False
        self.changed.set()
        while (code := self.reap()) is None:
            if self.job_attempt > self.attempt and not self.kill_at:
                self.kill_at = time.monotonic() + self.grace
                os.kill(self.child, signal.SIGTERM)
            elif self.kill_at and time.monotonic() >= self.kill_at:
                self.kill_all()
            if not (is_prepared or self.kill_at):
                is_prepared = self.start_standby(running, since)
            self.wait(0.1 if self.kill_at else 60.0 if is_prepared else 1.0)
        self.child, self.ended_at = 0, time.monotonic()
        running.close()
        self.kill_leftovers()
        crash = read_crash()
        write_crash(crash)
        message = (errors.end() if errors else "") + crash
        if oom_kills() > killed_before:  # the pod's own status tells of that
            self.leaving = True
        ended: AttemptReport = {**self.state, "ended": True, "exitCode": code, "message": message}
        self.state = ended
        self.changed.set()
        return code

    def reap(self) -> int | None:
        """Take notice of whatever has ended; the command's exit code, if it has."""
        found = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return found
            if not pid:
                return found
            if pid == self.child:
                signalled = os.WIFSIGNALED(status)
                found = 128 + os.WTERMSIG(status) if signalled else os.WEXITSTATUS(status)
            elif self.standby is not None and pid == self.standby.pid:
                self.standby.close()
                self.standby = None

    def kill_all(self) -> bool:
        """Kill whatever the command has started; whether there was anything."""
        tree = processes.children_of()
        below = processes.descendants(os.getpid(), tree)
        if self.standby is not None:
            below -= {self.standby.pid, *processes.descendants(self.standby.pid, tree)}
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(below)

    def kill_leftovers(self) -> None:
        """What the command has left behind goes with it, as it would with a container."""
        until = time.monotonic() + KILLED_SECONDS
        while self.kill_all() and time.monotonic() < until:
            self.reap()
            time.sleep(0.01)

    def wait(self, seconds: float) -> None:
        """Until something happens."""
        got = signal.sigtimedwait(WATCHED, seconds)
        if got is None or got.si_signo not in PASSED_ON:
            return
        if got.si_signo in (signal.SIGTERM, signal.SIGINT):
            self.leaving = True
        if self.child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child, got.si_signo)

    # From one to the next.

    def is_last(self, code: int) -> bool:
        """Whether the pod ends with this attempt."""
        is_ended_by_us = self.job_attempt > self.attempt
        return self.leaving or self.is_over or (code == 0 and not is_ended_by_us)

    def wait_for_next_attempt(self) -> bool:
        """Wait for the word; False where none comes."""
        while not (self.leaving or self.is_over):
            if self.startable_attempt > self.attempt and self.startable_attempt >= self.job_attempt:
                return True
            is_decided = self.job_attempt > self.attempt
            since = max(self.ended_at, self.answered_at) if is_decided else self.ended_at
            if time.monotonic() - since > PATIENCE_SECONDS:
                return False
            self.wait(1.0)
        return False

    def main(self) -> int:
        """Attempts until there is no other; the pod's exit code."""
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        threading.Thread(target=self.report_loop, daemon=True).start()
        while True:
            code = self.run_attempt()
            if self.is_last(code) or not self.wait_for_next_attempt():
                if self.standby is not None:
                    self.standby.kill()
                return code
            following = self.startable_attempt
            log_line(f"attempt {following} starts here, after attempt {self.attempt} in this pod")
            self.attempt = following


def main() -> int:
    """Hold the pod; its exit code."""
    try:
        return InPlaceSupervisor(sys.argv[1:], dict(os.environ)).main()
    except OSError as error:
        log_line(f"cannot start: {sys.argv[1]}: cannot run {sys.argv[1]}: {error.strerror}")
        return NOT_FOUND


if __name__ == "__main__":
    # The thread may be in the midst of a request, which nobody waits for.
    code = main()
    sys.stdout.flush()
    os._exit(code)
