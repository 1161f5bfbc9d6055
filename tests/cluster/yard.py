"""One namespace of the real cluster, with a kubectl, an operator process and jobs in it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest

from tests.cluster.plane import START_SECONDS, RunningControlPlane
from tests.tools import kubectl_path, oldest_and_newest_kubectl
from trainyard.kinds.kind_registry import KINDS
from trainyard.kube.client import Client
from trainyard.kube.errors import NotFound, Unreachable
from trainyard.kube.resources import NAMESPACES, PODS

Object = dict[str, Any]
T = TypeVar("T")
PYTORCH = KINDS["PyTorchTrainingJob"].resource


async def until(
    look: Callable[[], Awaitable[T]], accepts: Callable[[T], object], seconds: float = START_SECONDS
) -> T:
    """What `look` finds, once `accepts` says yes to it; a server may be too busy to answer."""
    seen: T | Unreachable | None = None
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    seen = await look()
                except Unreachable as error:
                    seen = error
                else:
                    if accepts(seen):
                        return seen
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"still so after {seconds:g} s: {seen}") from None


@dataclass
class Operator:
    """A running `trainyard operator`."""

    process: asyncio.subprocess.Process
    log_path: Path
    url: str = ""

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End it; the exit code."""
        self.process.send_signal(number)
        async with asyncio.timeout(START_SECONDS):
            return await self.process.wait()

    async def answer(self, path: str) -> str:
        """What an endpoint says."""
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return await answer.text()

    async def leads(self) -> None:
        """Wait until it does the work."""
        await until(lambda: self.answer("/readyz"), lambda text: text == "leading")


@dataclass
class Yard:
    """A namespace of its own on the shared control plane."""

    plane: RunningControlPlane
    namespace: str
    client: Client
    folder: Path
    kubectl_program: str = field(
        default_factory=lambda: kubectl_path(oldest_and_newest_kubectl()[-1])
    )
    _operators: int = 0

    def judges_pods(self) -> None:
        """Skip where what serves pods is older than it says, and drops fields of theirs."""
        if not self.plane.is_one:
            pytest.skip("not judged: what serves pods drops the fields that it does not know")

    async def kubectl(self, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        """What kubectl prints; stderr instead when it is to fail."""
        process = await asyncio.create_subprocess_exec(
            self.kubectl_program,
            *("--kubeconfig", str(self.plane.kubeconfig), "--namespace", self.namespace),
            *arguments,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(START_SECONDS):
                out, err = await process.communicate(stdin.encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert (process.returncode != 0) is fails, f"{out.decode()}\n{err.decode()}"
        return (err if fails else out).decode()

    @asynccontextmanager
    async def operator(
        self,
        *options: str,
        kubeconfig: Path | None = None,
        everywhere: bool = False,
        environment: dict[str, str] | None = None,
    ) -> AsyncIterator[Operator]:
        """An operator that looks after this namespace or all of them, from when it serves; or after
        those that the options name."""
        if not everywhere and "--namespace" not in options:
            options = ("--namespace", self.namespace, *options)
        elif everywhere:
            options = ("--lease-namespace", self.namespace, *options)
        command = (
            *(sys.executable, "-m", "trainyard.cli.main", "operator"),
            *("--kubeconfig", str(kubeconfig or self.plane.kubeconfig)),
            *("--host", "127.0.0.1", "--port", "0"),
            *options,  # the last one counts
        )
        async with self.serving(*command, environment=environment) as running:
            yield running

    @asynccontextmanager
    async def serving(
        self, *command: str, environment: dict[str, str] | None = None
    ) -> AsyncIterator[Operator]:
        """An operator started by a command, from when it serves."""
        self._operators += 1
        path = self.folder / f"operator-{self._operators}.log"
        with path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(*command, env=environment, stderr=log)
        running = Operator(process, path)
        try:
            found = await until(
                lambda: _now(re.search(r"on port (\d+)", running.log)),
                lambda found: found or process.returncode is not None,
            )
            assert found, running.log
            running.url = f"http://127.0.0.1:{found[1]}"
            yield running
        except BaseException:
            print(running.log[-8000:])  # pytest shows it with the failure
            raise
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def alone(self) -> None:
        """Wait until the namespaces of other tests have gone, whose jobs an operator of the whole
        cluster would look after, and be refused."""

        async def others() -> list[str]:
            items, _ = await self.client.list(NAMESPACES)
            names = {each["metadata"]["name"] for each in items} - {self.namespace}
            return [name for name in names if name.startswith("test-")]

        if self.plane.collects:
            await until(others, lambda names: not names, 3 * START_SECONDS)

    async def job(self, name: str, kind: str = "PyTorchTrainingJob") -> Object:
        """The job as it is stored."""
        return await self.client.get(KINDS[kind].resource, name, self.namespace)

    async def reaches(
        self,
        name: str,
        phase: str,
        kind: str = "PyTorchTrainingJob",
        seconds: float = START_SECONDS,
    ) -> Object:
        """The job, once it is in that phase."""
        return await until(
            lambda: self.job(name, kind),
            lambda job: (job.get("status") or {}).get("phase") == phase,
            seconds,
        )

    async def gone(self, name: str, kind: str = "PyTorchTrainingJob") -> None:
        """Wait until the job does not exist any more."""

        async def exists() -> bool:
            try:
                await self.job(name, kind)
            except NotFound:
                return False
            return True

        await until(exists, lambda there: not there)

    async def pods(self, job: str = "") -> list[Object]:
        """The pods of the namespace, or of one job."""
        items, _ = await self.client.list(PODS, self.namespace)
        return [
            pod
            for pod in items
            if not job
            or any(each["name"] == job for each in pod["metadata"].get("ownerReferences") or ())
        ]


async def _now(value: T) -> T:
    return value


def pytorch_job(name: str, replicas: int = 2, **spec: Any) -> Object:
    """A PyTorchTrainingJob whose image nobody pulls."""
    policy = spec.pop("restart_policy", "OnFailure")
    return {
        "apiVersion": PYTORCH.api_version,
        "kind": PYTORCH.kind,
        "metadata": {"name": name},
        "spec": {
            "replicaSpecs": [
                {
                    "type": "worker",
                    "replicas": replicas,
                    "restartPolicy": policy,
                    "template": {
                        "spec": {
                            "containers": [
                                {"name": "pytorch", "image": "python", "command": ["train"]}
                            ]
                        }
                    },
                }
            ],
            **spec,
        },
    }
