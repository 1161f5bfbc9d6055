"""The command line as a user has it: real processes, a state folder of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.tools import kubectl_path, oldest_and_newest_kubectl

PATIENCE_SECONDS = 300.0
Object = dict[str, Any]


class CommandLine:
    """Runs `trainyard` in a folder; every process that it starts carries a mark."""

    def __init__(
        self, folder: Path, *, wrapper: tuple[str, ...] = (), start_in: Path | None = None
    ) -> None:
        self.folder = folder
        self._start_in = start_in or folder
        self.state = folder / "state"
        self.wrapper = wrapper
        here = {**os.environ}
        for size in ("COLUMNS", "LINES"):  # set by a `readline` that was imported here
            here.pop(size, None)
        self.environment = {
            **here,
            "TRAINYARD_STATE_DIR": str(self.state),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHON_MARK_OF_TEST": self.mark,  # of a name that pods get
        }

    @property
    def mark(self) -> str:
        """In the environment of all processes of this test, replicas included."""
        return f"trainyard-test-{self.folder}"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command; its output is piped, errors included."""
        return subprocess.Popen(
            [*self.wrapper, sys.executable, "-m", "trainyard.cli.main", *arguments],
            cwd=self._start_in,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, code: int | None = 0) -> str:
        """Run a command to its end and check its exit code; what it printed."""
        process = self.start(*arguments)
        try:
            output = process.communicate(timeout=PATIENCE_SECONDS)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{arguments} does not end: {process.communicate()[0]}") from None
        assert code is None or process.returncode == code, output
        assert "Traceback" not in output, output
        return output

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A command that runs for the block, and is killed after it if need be."""
        process = self.start(*arguments)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def manifest(self, name: str, *objects: Object | str) -> str:
        """Write a manifest; its path."""
        path = self.folder / name
        path.write_text(
            "\n---\n".join(o if isinstance(o, str) else yaml.safe_dump(o) for o in objects)
        )
        return str(path)

    def processes(self, text: str = "") -> list[int]:
        """Living processes of this test whose command line contains `text`."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                environment = (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:
                continue
            is_ours = self.mark.encode() + b"\0" in environment
            if is_ours and state != "Z" and text.encode() in command:
                found.append(int(entry.name))
        return found

    def kill_everything(self) -> None:
        """Whatever a failed test left behind."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def until(holds: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> float:
    """Wait for a condition; the seconds it took, or an AssertionError that names it."""
    start = time.monotonic()
    while not holds():
        if time.monotonic() - start > seconds:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)
    return time.monotonic() - start


def job(
    name: str = "job",
    command: list[str] | None = None,
    *,
    replicas: int = 1,
    policy: str = "",
    container: Object | None = None,
    pod: Object | None = None,
    **spec: Any,
) -> Object:
    """A PyTorchTrainingJob with one type of replicas."""
    main: Object = {"name": "main", "image": "busybox", **(container or {})}
    if command is not None:
        main["command"] = command
    replica: Object = {
        "type": "worker",
        "replicas": replicas,
        "template": {"spec": {"containers": [main], **(pod or {})}},
    }
    if policy:
        replica["restartPolicy"] = policy
    return {
        "apiVersion": "batch.tensorstack.dev/v1beta1",
        "kind": "PyTorchTrainingJob",
        "metadata": {"name": name},
        "spec": {"replicaSpecs": [replica], **spec},
    }


def shell(script: str) -> list[str]:
    """A command that runs a shell script."""
    return ["/bin/sh", "-c", script]


def generic(name: str, script: str, *, replicas: int = 1, limit: int = 0, **spec: Any) -> Object:
    """A GenericJob whose replicas run a shell script."""
    main = {"name": "main", "image": "busybox", "command": shell(script)}
    replica = {
        "type": "worker",
        "replicas": replicas,
        "restartPolicy": {"policy": "OnFailure", "limit": limit},
        "template": {"spec": {"containers": [main], "terminationGracePeriodSeconds": 1}},
    }
    return {
        "apiVersion": "batch.tensorstack.dev/v1beta1",
        "kind": "GenericJob",
        "metadata": {"name": name},
        "spec": {"replicaSpecs": [replica], **spec},
    }


def run_kubectl(line: CommandLine, *arguments: str) -> str:
    """What the newest kubectl prints, as the user of this command line."""
    config = line.run("kubeconfig").strip()
    command = [*line.wrapper, kubectl_path(oldest_and_newest_kubectl()[-1])]
    done = subprocess.run(
        [*command, "--kubeconfig", config, *arguments],
        env={**line.environment, "HOME": str(line.folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout + done.stderr
