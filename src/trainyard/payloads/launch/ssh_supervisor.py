"""First process of every pod of an ssh-launched job: runs sshd, and on one replica the launch.

It runs in the user's image, and needs nothing but Python 3.8 and an sshd, which `sshd_setup`
prepares. In debug mode the developer's command takes the place of the launch.

When the pod is to end (SIGTERM), the ranks in it are asked once and without delay
(`rank_shutdown`), and the pod ends when they have. Signals from the replica agent: SIGUSR2 ends the
ranks on this node. SIGUSR1 ends sshd and, a little later, this process, because the launch is over,
or over for this replica.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.payloads import processes
from trainyard.payloads.launch import sshd_setup
from trainyard.payloads.launch.rank_shutdown import RankShutdown, send_signal
from trainyard.payloads.launch.replica_agent import log_line
from trainyard.payloads.launch.sshd_requirements import (
    NOT_FOUND,
    CannotServeSsh,
    SshdServer,
    check_requirements,
)

if TYPE_CHECKING:  # types are not shipped to pods
    from trainyard.payloads.payload_messages import LaunchDescription

END_DELAY_SECONDS = 3.0
"""Workers outlive sshd by this much, so that the launching pod's own end is seen first."""
LAST_OUTPUT_SECONDS = 0.5
"""How long sshd has to hand on what the ranks wrote last, where a connection stays open after it:
colossalai's do."""
STEP_SECONDS = 0.05
IDLE_SECONDS = 60.0
KILL_AFTER_SECONDS = 5.0
TERMINATED = 128 + signal.SIGTERM
PR_SET_CHILD_SUBREAPER = 36
WATCHED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


def spawn(argv: list[str], variables: dict[bytes, bytes], *, reads: bool = False) -> int:
    """Start a child, with our input or with none; the supervisor reaps it along with all others."""
    null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    return os.posix_spawnp(
        argv[0], argv, variables, file_actions=() if reads else [null], setsigmask=()
    )


class Supervisor:
    """Supervises sshd and, on the launching replica, the launch."""

    def __init__(
        self, spec: LaunchDescription, options: argparse.Namespace, environment: list[bytes]
    ) -> None:
        self.spec, self.options = spec, options
        self.run: Path = options.run
        self.environment = environment
        self.ending = RankShutdown(self.run)
        self.sshd = 0
        self.main = 0
        """The launch, or the developer's command."""
        self.main_code: int | None = None
        self.leaving = False
        """Whether the pod is to end."""
        self.launch_is_over = False
        self.leave_at = 0.0
        """When to go at the latest, once nothing is left to wait for."""

    def start(self) -> None:
        """sshd first, so that the launch finds at least this replica."""
        if "debug" in self.spec:
            self.start_debugging(self.spec["debug"])
            return
        if self.spec.get("joins"):
            sshd_setup.write(self.run / "joins", b"")
        self.start_sshd()
        if self.spec.get("launch"):
            launcher = str(Path(__file__).parent / "launch.py")
            arguments = [sys.executable, "-IS", launcher, str(self.options.spec), str(self.run)]
            variables = dict(pair.split(b"=", 1) for pair in self.environment)
            variables[b"TRAINYARD_RUN"] = os.fsencode(self.run)
            self.main = spawn(arguments, variables)

    def start_sshd(self) -> None:
        """Start sshd, for the other replicas."""
        self.server = SshdServer(sshd_setup.sshd_command(self.spec["sshd"], self.run))
        self.sshd = self.server.pid

    def start_debugging(self, command: list[str]) -> None:
        """The developer's command, beside an sshd for a launch by hand unless it is one itself."""
        # A developer may bring an sshd of their own, with options that win over ours (decision 98).
        if Path(command[0]).name == "sshd":
            command = sshd_setup.with_own_configuration(command, self.run)
        else:
            try:
                check_requirements(self.spec["sshd"])
                self.start_sshd()
            except CannotServeSsh as unfit:
                log_line(f"{self.spec['pod']} cannot be reached over ssh: {unfit}")
        everything = [name + b"=" + value for name, value in os.environb.items()]
        variables = sshd_setup.training_environment(everything, self.run, self.spec["graceSeconds"])
        try:
            self.main = spawn(command, dict(pair.split(b"=", 1) for pair in variables), reads=True)
        except OSError as error:
            raise CannotServeSsh(f"cannot run {command[0]}: {error.strerror}", NOT_FOUND) from error

    def handle_signal(self, number: int) -> None:
        """React to a signal."""
        if number in (signal.SIGTERM, signal.SIGINT):
            self.terminate()
        elif number == signal.SIGUSR2:
            self.ending.begin(self.stop_seconds())
        elif number == signal.SIGUSR1 and not self.launch_is_over:
            # Workers go a little after the launching pod, which the status follows (decision 18).
            self.launch_is_over = True
            self.ending.begin(self.stop_seconds())
            self.leave_at = time.monotonic() + END_DELAY_SECONDS
            send_signal(self.sshd, signal.SIGTERM)

    def stop_seconds(self) -> float:
        """Seconds that the launch gives the ranks."""
        try:
            return float((self.run / "grace").read_text())
        except (OSError, ValueError):
            return KILL_AFTER_SECONDS

    def terminate(self) -> None:
        """The pod is being deleted: the ranks here go, and those of the launch (decision 46)."""
        if self.leaving:
            return
        self.leaving = True
        sshd_setup.write(self.run / "reports" / "leaving", b"")
        self.ending.begin(self.spec["graceSeconds"])
        if self.main and self.main_code is None:
            send_signal(self.main, signal.SIGTERM)

    def reap(self) -> None:
        """Reap all children that have ended, and note the exit codes of the launch and of sshd."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            signalled = os.WIFSIGNALED(status)
            code = 128 + os.WTERMSIG(status) if signalled else os.WEXITSTATUS(status)
            if pid == self.main:
                self.main_code = code
            elif pid == self.sshd:
                self.sshd = 0
                if not self.launch_is_over and "debug" not in self.spec:
                    raise self.server.end(code)

    def exit_code(self) -> int | None:
        """The pod's exit code, or None while it is not over."""
        quiet = not self.ending.active or self.ending.step()
        if self.leaving and not quiet:
            return None
        if self.main_code is not None:
            return self.main_code
        if self.main and "debug" not in self.spec:
            return None
        if self.leaving:
            self.leave_at = self.leave_at or time.monotonic() + LAST_OUTPUT_SECONDS
            is_done = time.monotonic() >= self.leave_at or not self.open_sessions()
            return TERMINATED if is_done else None
        is_done = self.launch_is_over and time.monotonic() >= self.leave_at
        return self.end_of_launch() if is_done else None

    def end_of_launch(self) -> int:
        """The exit code that the launch gave this replica."""
        code = int((self.run / "code").read_text())
        if code:
            log_line(
                f"{self.spec['pod']}: a rank here failed with exit code {code}; its output is in "
                "the log of the replica that launches, and the others go on"
            )
        return code

    def open_sessions(self) -> bool:
        """Whether sshd has a connection besides those of minders."""
        tree = processes.children_of()
        return any(
            not any(map(processes.is_replica_agent, processes.descendants(session, tree)))
            for session in tree.get(self.sshd, [])
        )

    def supervise(self) -> int:
        """Run until the launch, or sshd, has ended; the exit code of the pod."""
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        self.start()
        while (code := self.exit_code()) is None:
            is_busy = self.ending.active or self.leaving or self.launch_is_over
            got = signal.sigtimedwait(WATCHED, STEP_SECONDS if is_busy else IDLE_SECONDS)
            if got is not None:
                self.handle_signal(got.si_signo)
            self.reap()
        if self.sshd:
            send_signal(self.sshd, signal.SIGTERM)
        for pid in processes.descendants(os.getpid(), processes.children_of()):
            if processes.part_of(pid, self.run) != processes.OURS:
                send_signal(pid, signal.SIGKILL)
        return code


def run_pod(spec: LaunchDescription, options: argparse.Namespace) -> int:
    """Prepare, then supervise."""
    os.umask(0o022)
    custom, disabled = spec.get("customEnv", []), bool(spec.get("disableCustomEnv"))
    environment = sshd_setup.session_environment(
        sshd_setup.container_environment(), custom, disabled
    )
    environment = sshd_setup.training_environment(environment, options.run, spec["graceSeconds"])
    try:
        sshd_setup.prepare_ssh(spec, options.keys, options.run)
        sshd_setup.prepare_programs(options.run)
        sshd_setup.prepare_sessions(spec, options.run, environment)
    except OSError as error:
        where = error.filename or options.run
        raise CannotServeSsh(f"cannot prepare ssh: {where}: {error.strerror}") from error
    if os.getuid() == 0:
        sshd_setup.privilege_separation()
    if "debug" not in spec:
        check_requirements(spec["sshd"])
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return Supervisor(spec, options, environment).supervise()


def main() -> int:
    """Run the pod; its exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--spec", type=Path, required=True)
    parser.add_argument("--keys", type=Path, required=True)
    parser.add_argument("--run", type=Path, required=True)
    options = parser.parse_args()
    spec: LaunchDescription = json.loads(options.spec.read_text())
    try:
        return run_pod(spec, options)
    except CannotServeSsh as unfit:
        log_line(unfit.log_text(spec["pod"]))
        return unfit.code


if __name__ == "__main__":
    raise SystemExit(main())
