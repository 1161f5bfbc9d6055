"""A background cluster for the lifecycle tests, with jobs of many shapes side by side on it.

Jobs are submitted and changed with the command line, as a user would; what became of them is read
straight from the API server's socket, because starting a process for each look would cost the two
cores that the jobs need.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.command_line import CommandLine, Object, until
from trainyard.kinds.kind_registry import KINDS
from trainyard.machine.state_folder import Paths

CLAIM = "data"
MOUNT = "/data"
START_SECONDS = 300.0
"""For what may take long on a busy machine, and of which no claim is made."""
ENDS = ("Succeeded", "Failed")


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=120)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _path(name: str, kind: str) -> str:
    found = KINDS[kind]
    return f"/apis/{found.group}/{found.version}/namespaces/default/{found.plural}/{name}"


class Api:
    """The API server of a cluster on this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def request(
        self, method: str, path: str, body: Object | None = None, content: str = "application/json"
    ) -> tuple[int, Object]:
        """Status code and answer."""
        connection = _Connection(self._path)
        try:
            text = json.dumps(body) if body is not None else None
            connection.request(method, path, text, {"Content-Type": content})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        finally:
            connection.close()

    def job(self, name: str, kind: str) -> Object | None:
        """A job, if it is there."""
        code, obj = self.request("GET", _path(name, kind))
        assert code in (200, 404), obj
        return obj if code == 200 else None

    def patch(self, name: str, kind: str, body: Object) -> None:
        """A merge patch of a job."""
        content = "application/merge-patch+json"
        code, answer = self.request("PATCH", _path(name, kind), body, content)
        assert code == 200, answer

    def pods(self, job: str) -> dict[str, Object]:
        """The pods of a job by replica name (`worker-0`)."""
        _, found = self.request("GET", "/api/v1/namespaces/default/pods")
        mine = (p for p in found["items"] if p["metadata"]["ownerReferences"][0]["name"] == job)
        return {"-".join(p["metadata"]["name"].rsplit("-", 2)[1:]): p for p in mine}


class Yard(CommandLine):
    """The command line with a cluster in the background and a folder as its claim `data`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.data = folder / "data"
        self.data.mkdir()
        self.api = Api(Paths(self.state).api_socket)
        self._kinds: dict[str, str] = {}

    def submit(self, *jobs: Object, by: str = "submit") -> None:
        """Create jobs, all of them with one command, `submit` or `debug`."""
        self._kinds.update((job["metadata"]["name"], job["kind"]) for job in jobs)
        self.run(by, "-f", self.manifest(f"{jobs[0]['metadata']['name']}.yaml", *jobs))

    def job(self, name: str) -> Object:
        """The job as stored."""
        found = self.api.job(name, self._kinds[name])
        assert found is not None, f"{name} is gone"
        return found

    def status(self, name: str) -> Object:
        """The job's status; empty before the controller has seen it."""
        status: Object = self.job(name).get("status") or {}
        return status

    def phase(self, name: str) -> str:
        """The job's phase."""
        return str(self.status(name).get("phase", ""))

    def is_gone(self, name: str) -> bool:
        """Whether the job was deleted."""
        return self.api.job(name, self._kinds[name]) is None

    def pods(self, name: str) -> dict[str, Object]:
        """The job's pods by replica name."""
        return self.api.pods(name)

    def uids(self, name: str) -> dict[str, str]:
        """The UID of each replica's pod."""
        return {replica: pod["metadata"]["uid"] for replica, pod in self.pods(name).items()}

    def pod_phases(self, name: str) -> dict[str, str]:
        """The phase of each replica's pod."""
        return {replica: pod["status"]["phase"] for replica, pod in self.pods(name).items()}

    def await_phase(self, name: str, *phases: str, seconds: float = START_SECONDS) -> Object:
        """The status, once the job is in one of the phases."""
        try:
            until(lambda: self.phase(name) in phases, f"{name} is {phases}", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story(name)}") from None
        return self.status(name)

    def end(self, name: str, phase: str, seconds: float = START_SECONDS) -> Object:
        """The status of the job once it has ended, which must be like that."""
        status = self.await_phase(name, *ENDS, seconds=seconds)
        assert status["phase"] == phase, self.story(name)
        return status

    def await_pods(self, name: str, phases: dict[str, str], seconds: float = START_SECONDS) -> None:
        """Wait until exactly these replicas of the job have pods, each in this phase."""
        until(
            lambda: self.pod_phases(name) == phases,
            f"of {name} there is {phases}, but {self.pod_phases(name)}",
            seconds,
        )

    def await_processes(self, job: str, *, alive: bool) -> None:
        """Wait until the job has processes, or none; its template sets JOB to its name."""
        until(
            lambda: bool(self.with_environment("", JOB=job)) == alive,
            f"processes of {job} are {'alive' if alive else 'gone'}",
        )

    def file(self, *parts: str) -> Path:
        """A file in the claim."""
        return self.data.joinpath(*parts)

    def lines(self, *parts: str) -> list[str]:
        """Whole lines of a file in the claim; none before it exists."""
        try:
            return self.file(*parts).read_text().splitlines()
        except OSError:
            return []

    def with_environment(self, text: str, **wanted: str) -> list[int]:
        """Processes whose command line contains `text`, with all these variables."""
        found = []
        for pid in self.processes(text):
            with suppress(OSError):
                if wanted.items() <= environment_of(pid).items():
                    found.append(pid)
        return found

    def story(self, name: str) -> str:
        """What a developer wants to see of a test that failed."""
        show, logs = (self.start(each, name).communicate()[0] for each in ("show", "logs"))
        return f"{show}\n{logs[-6000:]}"


@contextmanager
def yard(folder: Path) -> Iterator[Yard]:
    """A background cluster for the block; at the end no process of it may be left."""
    made = Yard(folder)
    try:
        made.run("up", "--volume", f"{CLAIM}={made.data}")
        yield made
        made.run("down")
        until(lambda: not made.processes(), "every process of the cluster has ended", 10)
    finally:
        made.run("down", code=None)
        made.kill_everything()


def shared_yard(name: str) -> Any:
    """A fixture: one cluster for all tests of a module, in a folder of this name."""

    @pytest.fixture(scope="module")
    def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
        with yard(tmp_path_factory.mktemp(name)) as made:
            yield made

    return cluster


def template(
    command: Sequence[str], *, grace: int = 2, env: dict[str, str] | None = None, **container: Any
) -> Object:
    """A pod template with one container and the claim `data` at /data."""
    variables = {"OMP_NUM_THREADS": "1", **(env or {})}
    main: Object = {
        "name": "main",
        "image": "pytorch",
        "command": list(command),
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "volumeMounts": [{"name": CLAIM, "mountPath": MOUNT}],
        **container,
    }
    claim = {"name": CLAIM, "persistentVolumeClaim": {"claimName": CLAIM}}
    spec = {"containers": [main], "volumes": [claim], "terminationGracePeriodSeconds": grace}
    return {"spec": spec}


def pytorch(
    name: str, pods: Object, *, replicas: int = 1, policy: str = "OnFailure", **spec: Any
) -> Object:
    """A PyTorchTrainingJob with one type `worker`; under torchrun the command becomes `args`."""
    if spec.get("torchrunConfig"):
        (main,) = pods["spec"]["containers"]
        main["args"] = main.pop("command")
    worker = {"type": "worker", "replicas": replicas, "restartPolicy": policy, "template": pods}
    return manifest("PyTorchTrainingJob", name, {"replicaSpecs": [worker], **spec})


def generic(name: str, *replica_specs: Object, **spec: Any) -> Object:
    """A GenericJob."""
    return manifest("GenericJob", name, {"replicaSpecs": list(replica_specs), **spec})


def replicas(
    replica_type: str, count: int, pods: Object, *, policy: str = "OnFailure", limit: int = 0
) -> Object:
    """One element of a GenericJob's replicaSpecs."""
    return {
        "type": replica_type,
        "replicas": count,
        "restartPolicy": {"policy": policy, "limit": limit},
        "template": pods,
    }


def manifest(kind: str, name: str, spec: Object) -> Object:
    """A job of any kind."""
    return {
        "apiVersion": f"{KINDS[kind].group}/{KINDS[kind].version}",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def condition(status: Object, wanted: str) -> Object:
    """A condition by its type; empty if it is not there."""
    found = (c for c in status.get("conditions", ()) if c["type"] == wanted)
    return next(found, {})


def ends_of(status: Object) -> list[tuple[str, int | None]]:
    """What ended each attempt: the replica (`worker-1`, or nothing) and its exit code."""
    return [
        ("-".join(attempt.get("replica", "").rsplit("-", 2)[-2:]), attempt.get("exitCode"))
        for attempt in status["attempts"]
    ]


def environment_of(pid: int) -> dict[str, str]:
    """The variables that a process was started with."""
    text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


def parent_of(pid: int) -> int:
    """The process that started it."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill(pid: int) -> None:
    """SIGKILL."""
    os.kill(pid, signal.SIGKILL)


def moment(text: str) -> float:
    """A timestamp of the API in seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def kubectl(path: str, made: Yard, *arguments: str, text: str | None = None) -> str:
    """Run kubectl against the cluster; what it printed."""
    done = subprocess.run(
        [path, *arguments],
        input=text,
        env={**made.environment, "KUBECONFIG": str(Paths(made.state).kubeconfig)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
