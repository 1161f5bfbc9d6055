"""Checks the node of a replica before its command starts, alone and together with other nodes.

The image's own torch tries a matmul. When all replicas have reported that they are ready, it tries
a collective with each partner that the controller names (`node_check_collectives`). The results are
reported, and then the command takes the place of this process, whatever they were: a node check
must never fail a job. Runs in the user's image: standard library, Python 3.8.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.payloads.in_place.in_place_supervisor import (
    NOT_FOUND,
    OBSERVE,
    UID,
    log_line,
    parse_settings,
)
from trainyard.payloads.report_client import ReportClient

HERE = str(Path(__file__).parent)
if TYPE_CHECKING:  # types are not shipped to pods
    from trainyard.payloads.node_check.node_check_messages import NodeCheck

VARIABLE = "TRAINYARD_NODE_CHECK"
"""``attempt=1,limit=300,every=0.25,host=…,files=/t9k/channel,url=https://…``."""
SILENCE_SECONDS = 30.0
"""Without an answer for so long, nothing is waited for any more."""
ANSWER_SECONDS = 30.0
"""How much longer than the rounds may take the controller has to say what they came to."""
REPEATED_SECONDS = 3.0
"""How often what goes on is told again to a controller that may be another by then."""
_PYTHON = re.compile(r"(?:.*/)?(?:python|torchrun)[\d.]*\Z")
TERMINATED = 128 + signal.SIGTERM


class CheckSkipped(Exception):
    """The command starts without a check, or without the rest of one."""


class NodeTester:
    """The program that uses torch: lines of JSON to it and from it."""

    def __init__(self, python: str) -> None:
        environment = {name: each for name, each in os.environ.items() if name != OBSERVE}
        self._answers, write = os.pipe()
        self._process = subprocess.Popen(
            [python, "-W", "ignore", HERE + "/pairs.py", str(write)],
            stdin=subprocess.PIPE,
            stdout=2,  # whatever the image's Python prints
            env=environment,
            start_new_session=True,
            pass_fds=(write,),
        )
        os.close(write)
        self._read = b""

    def send(self, message: dict[str, Any]) -> None:
        """Raises Skipped where it is gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise CheckSkipped("what tests the node has ended") from None

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """The next line, if it comes in time. Raises Skipped where none can come."""
        if b"\n" not in self._read and select.select([self._answers], [], [], seconds)[0]:
            data = os.read(self._answers, 1 << 16)
            if not data:
                raise CheckSkipped(f"what tests the node ended with code {self._process.wait()}")
            self._read += data
        line, found, rest = self._read.partition(b"\n")
        if not found:
            return None
        self._read = rest
        try:
            return dict(json.loads(line))
        except (ValueError, TypeError):
            raise CheckSkipped("what tests the node said what cannot be read") from None

    def kill(self) -> None:
        """End it, with all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._answers)


class NodeCheckRunner:
    """One check, of one replica."""

    def __init__(self, argv: list[str]) -> None:
        given = parse_settings(os.environ[VARIABLE])
        self.interval_seconds, self.limit = float(given["every"]), float(given["limit"])
        self.until = time.monotonic() + self.limit
        self.client = ReportClient(given["url"], given["files"])
        self.answered_at = time.monotonic()
        self.report: NodeCheck = {
            "uid": os.environ.get(UID, ""),
            "attempt": int(given["attempt"]),
            "stage": "begun",
            "run": "",
            "host": given["host"],
            "port": 0,
            "seconds": 0.0,
            "pairs": [],
            "error": "",
        }
        self.tester = NodeTester(python_of_command(argv))

    def run(self) -> None:
        """All of it. Raises Skipped."""
        self.send_report()
        found = self.await_test("it took too long to try a matmul")
        if not found.get("port"):
            raise CheckSkipped(str(found.get("error") or "the node was not tested"))
        self.report["port"], self.report["seconds"] = int(found["port"]), float(found["seconds"])
        self.report["error"], self.report["stage"] = str(found["error"]), "ready"
        answer = self.wait_for(("check", "start"), "the others were not ready in time")
        if answer["say"] == "start":
            return
        self.report["run"], seconds = str(answer["run"]), float(answer["seconds"])
        self.until = time.monotonic() + seconds + ANSWER_SECONDS
        self.report["stage"] = "testing"
        self.tester.send({"pairs": answer["pairs"], "run": answer["run"]})
        self.report["pairs"] = self.await_test("the pairs took too long")["pairs"]
        self.report["stage"] = "done"
        self.wait_for(("start",), "the controller did not say in time what came of it")

    def await_test(self, why: str) -> dict[str, Any]:
        """What the tester answers; the controller is told meanwhile that it is awaited."""
        while time.monotonic() < self.until:
            left = self.until - time.monotonic()
            found = self.tester.answer(min(REPEATED_SECONDS, left))
            if found is not None:
                return found
            self.send_report()
        raise CheckSkipped(why)

    def wait_for(self, answers: tuple[str, ...], why: str) -> dict[str, Any]:
        """The answer that says one of these."""
        while time.monotonic() < self.until:
            answer = self.send_report()
            if answer.get("say") in answers:
                return answer
            if time.monotonic() - self.answered_at > SILENCE_SECONDS:
                raise CheckSkipped("the controller does not answer")
            time.sleep(self.interval_seconds)
        raise CheckSkipped(why)

    def send_report(self) -> dict[str, Any]:
        """Tell how it stands; the answer, empty where there is none."""
        status, body = self.client.ask({"nodeCheck": self.report})
        if status != 200:
            return {}
        self.answered_at = time.monotonic()
        try:
            return dict(json.loads(body))
        except (ValueError, TypeError):
            return {}

    def report_skipped(self, why: str) -> None:
        """Say that the command starts anyway."""
        log_line(f"node check: {why}; the command starts")
        self.report["stage"], self.report["error"] = "left", why[:200]
        self.send_report()


def python_of_command(argv: list[str]) -> str:
    """The Python that the command names, or whose script it is; else our own."""
    for word in argv:
        path = shutil.which(word) if _PYTHON.match(word) else None
        if path is None:
            continue
        if not os.path.basename(path).startswith("torchrun"):
            return path
        with open(path, "rb") as file:
            first = file.readline(4096)
        named = first[2:].strip().decode(errors="replace") if first.startswith(b"#!") else ""
        if os.access(named, os.X_OK):
            return named
    return shutil.which("python3") or sys.executable


def check_node(argv: list[str]) -> None:
    """Check the node, and never fail."""
    found = None

    def end(*_: object) -> None:
        if found is not None:
            found.tester.kill()
        os._exit(TERMINATED)

    try:
        signal.signal(signal.SIGTERM, end)  # as process 1 it would be ignored otherwise
        found = NodeCheckRunner(argv)
        found.run()
    except CheckSkipped as error:
        assert found is not None
        found.report_skipped(str(error))
    except Exception as error:
        log_line(f"node check: {type(error).__name__}: {error}; the command starts")
    finally:
        if found is not None:
            found.tester.kill()
            found.client.close()


def main() -> int:
    """Check, and become the command; the exit code where there is no such command."""
    argv = sys.argv[1:]
    check_node(argv)
    for each in (signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(each, signal.SIG_DFL)
    sys.stdout.flush()
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        log_line(f"cannot start: {argv[0]}: cannot run {argv[0]}: {error.strerror}")
        return NOT_FOUND


if __name__ == "__main__":
    sys.exit(main())
