"""The files of trainyard are replaced while a cluster is up: it goes on as if they were not."""

from __future__ import annotations

import random
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.earlier_versions import SOURCES
from tests.embedded.command_line import CommandLine, Object, until
from tests.embedded.lifecycle_yard import CLAIM, Yard, generic, pytorch, replicas, template
from tests.embedded.test_upgrade_matrix import WAITS, launched_over_ssh
from tests.fuzz import asks
from tests.tools import require, soak
from trainyard.composition.late_imports import OF_REPORT, PROGRAMS

GARBAGE = "raise RuntimeError('this is a file of another version')\n"
ASKS = soak(400, 4000)
_ANSWER_SECONDS = 5.0


class Replaced(Yard):
    """A cluster of a copy of the sources; the command line is of the sources themselves."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self.data / "wait.py").write_text(WAITS)
        self._copy = folder / "installed"
        self._sources = self.environment.get("PYTHONPATH", "")
        shutil.copytree(SOURCES, self._copy, ignore=shutil.ignore_patterns("__pycache__"))
        self.environment["PYTHONPATH"] = str(self._copy)

    def replace_files(self, *loaded: str, log: str = "cluster.log") -> None:
        """Put garbage into every file of the copy, once its processes have what they need."""

        def has_loaded() -> bool:
            text = "".join(each.read_text() for each in self.state.glob(log))
            return all(each in text for each in (f"read: {PROGRAMS}", *loaded))

        until(has_loaded, "all that may be needed is loaded")
        self.environment["PYTHONPATH"] = self._sources
        for file in self._copy.rglob("*"):
            if file.is_dir():
                continue
            if file.suffix == ".pyc":
                file.unlink()
            else:
                file.write_text(GARBAGE)

    @property
    def log(self) -> str:
        """What the cluster has logged."""
        return (self.state / "cluster.log").read_text()

    def answer_to(self, ask: asks.Ask) -> str:
        """The first line of the answer; "" where there is none."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_SECONDS)
            connection.connect(str(self.state / "api.sock"))
            try:
                connection.sendall(ask.encoded())
                return connection.recv(1 << 16).decode(errors="replace").partition("\r\n")[0]
            except (TimeoutError, ConnectionError):
                return ""


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Replaced]:
    made = Replaced(tmp_path)
    try:
        yield made
    finally:
        made.run("down", code=None)
        made.kill_everything()


def test_a_cluster_whose_files_were_replaced_does_all_that_it_did(yard: Replaced) -> None:
    require("torchrun")
    yard.run("up", "--volume", f"{CLAIM}={yard.data}")
    yard.replace_files()
    launched = launched_over_ssh()[: soak(1, 2)]
    names = [each["metadata"]["name"] for each in (*launched, *jobs())]
    yard.submit(*launched, *jobs())
    for name in names:
        yard.await_phase(name, "Running")
    yard.run("pause", "paused")
    yard.await_phase("paused", "Paused")
    assert "of a rank" in yard.run("exec", "ranks", "--", "echo", "of a rank")
    assert "started" in yard.run("logs", "ranks")
    for command in "top", "show", "explain", "stacks":
        yard.run(command, "ranks", code=None)
    yard.run("resume", "paused")
    yard.await_phase("paused", "Running")
    (yard.data / "finish").touch()
    for name in names:
        yard.end(name, "Succeeded")
    failed = pytorch("fails", template(["python3", "-c", "import nothing_of_this_name"]))
    yard.submit(failed)
    yard.end("fails", "Failed")
    assert not said_of_defects(yard)


def jobs() -> list[Object]:
    def pods(name: str, **container: object) -> Object:
        code = f"print('started', flush=True)\n{WAITS}"
        return template(["python3", "-c", code], env={"JOB": name}, **container)

    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    return [
        generic("running", replicas("worker", 2, pods("running", livenessProbe=probe))),
        pytorch("ranks", pods("ranks"), replicas=2),
        pytorch("paused", pods("paused")),
        pytorch(
            "elastic",
            template(["/data/wait.py"], env={"JOB": "elastic"}),
            replicas=2,
            torchrunConfig={"enabled": True},
            elastic={"enabled": True, "minReplicas": 1, "maxReplicas": 3, "expectedReplicas": 2},
        ),
    ]


def said_of_defects(yard: CommandLine) -> list[str]:
    """Lines of the cluster's log that tell of an import or a file that failed."""
    log = (yard.state / "cluster.log").read_text()
    wrong = ("Traceback", "of another version", "ImportError", "ModuleNotFound")
    return [line for line in log.splitlines() if any(each in line for each in wrong)]


def test_a_cluster_whose_files_were_replaced_answers_requests_of_all_kinds(yard: Replaced) -> None:
    yard.run("up")
    yard.replace_files()
    for ask in asks.batch(random.Random(3), ASKS):
        answer = yard.answer_to(ask)
        assert " 500 " not in answer, f"{ask}\n{yard.log[-4000:]}"
    for path in "/openapi/v2", "/openapi/v3", "/version", "/healthz", "/api", "/apis":
        assert " 200 " in yard.answer_to(asks.Ask("GET", path)), path
    assert not said_of_defects(yard)


def test_a_run_whose_files_were_replaced_tells_why_its_job_failed(yard: Replaced) -> None:
    script = yard.folder / "train.py"
    script.write_text(f"{WAITS.replace('/data', str(yard.data))}raise ValueError('a bad batch')\n")
    process = yard.start("run", str(script))
    yard.replace_files(f"imported: {OF_REPORT[0]}", log="runs/*/cluster.log")
    (yard.data / "finish").touch()
    said = process.communicate()[0]
    assert "raise ValueError('a bad batch')" in said.partition("Failed after")[2]
    assert said.count("Traceback") == 1, said  # that of the script
