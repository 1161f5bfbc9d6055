"""`trainyard chaos --faults disk`: the job's claims are full for a while, and nothing else is."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.embedded import as_user
from tests.embedded.command_line import PATIENCE_SECONDS, CommandLine, Object, job, until
from tests.tools import missing
from trainyard.api.chaos.chaos_report import ChaosResult

ROOT = Path(__file__).parents[2]
DONE = hashlib.sha256(b"done here").hexdigest()
BECOME = (sys.executable, "-m", "tests.embedded.as_user")
SCRIPT = """\
import errno, os, time
refused = 0
while not os.path.exists("/marks/finish"):
    time.sleep(0.05)
    try:
        with open("/data/checkpoint", "ab") as file:
            file.write(b"x" * 4096)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        refused += 1
        open("/marks/refused", "w").close()
    else:
        if refused:
            refused = 0
            open("/marks/room", "w").close()
while True:  # on a busy machine the next fault may have come meanwhile
    try:
        with open("/data/result", "w") as file:
            file.write("done " + open("/data/given").read())
        break
    except OSError:
        time.sleep(0.05)
"""


def writer() -> Object:
    """Writes into the claim `data` until there is a file `finish` in the claim `marks`."""
    claims = ("data", "marks")
    mounts = [{"name": claim, "mountPath": f"/{claim}"} for claim in claims]
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    made = job("job", ["python3", "-c", SCRIPT], container={"volumeMounts": mounts})
    made["spec"]["replicaSpecs"][0]["template"]["spec"]["volumes"] = volumes
    return made


class Chaos(CommandLine):
    """The command in a folder that a user of its own may have, with the folders of two claims."""

    def __init__(self, folder: Path, wrapper: tuple[str, ...]) -> None:
        super().__init__(folder, wrapper=wrapper, start_in=ROOT)
        for name in ("tmp", "marks", "data"):
            (folder / name).mkdir()
        (folder / "data" / "given").write_text("here")
        told = ChaosResult("Succeeded", 1.0, files={"data:result": DONE})
        self.baseline = folder / "before.json"
        self.baseline.write_text(json.dumps({"baseline": asdict(told)}))
        self.environment["TMPDIR"] = str(folder / "tmp")
        self.words = ("chaos", "-f", self.manifest("job.yaml", writer()), "--shared=marks")
        self.words += tuple(f"--volume={name}={folder / name}" for name in ("marks", "data"))
        for path in (folder, *folder.rglob("*")):
            os.chown(path, as_user.USER if wrapper else os.geteuid(), -1)

    def begin(self, *more: str) -> subprocess.Popen[str]:
        """Start it, with a run without faults of which we say how it was."""
        return self.start(*self.words, f"--baseline={self.baseline}", "-o", "json", *more)

    def has(self, mark: str) -> bool:
        """What the job has told by a file."""
        return (self.folder / "marks" / mark).exists()

    def left(self) -> list[object]:
        """Processes, folders and mounts."""
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        mine = [line for line in mounts if str(self.folder) in line]
        return [*self.processes(), *(self.folder / "tmp").glob("trainyard-chaos-*"), *mine]


@contextmanager
def chaos(wrapper: tuple[str, ...] = ()) -> Iterator[Chaos]:
    if wrapper and os.geteuid():
        missing("becoming another user needs root")
    # Not pytest's folder, which only its owner may enter.
    with tempfile.TemporaryDirectory(prefix="trainyard-test-") as name:
        made = Chaos(Path(name), wrapper)
        try:
            yield made
            until(lambda: not made.left(), "nothing is left")
        finally:
            made.kill_everything()


@pytest.mark.parametrize("wrapper", [(), BECOME], ids=["as this user", "unprivileged"])
def test_writes_are_refused_for_a_while_and_only_those_of_the_job(wrapper: tuple[str, ...]) -> None:
    with chaos(wrapper) as made:
        words = ("--faults=disk,server", "--every=1s", "--lasting=1s", "--result=data:result")
        process = made.begin(*words)
        try:
            until(lambda: made.has("refused"), "no room")
            (made.folder / "tmp" / "beside").write_text("there is room beside it")
            until(lambda: made.has("room"), "room again")
            (made.folder / "marks" / "finish").touch()
            output = process.communicate(timeout=PATIENCE_SECONDS)[0]
        finally:
            process.kill()
        assert "disk leaves alone what lies on this machine's own: claim marks" in output
        report = json.loads(output[output.index("{\n") :])
        disks = [each for each in report["struck"] if each["fault"] == "disk"]
        assert disks, report
        assert report["same"], report
        assert report["under_faults"]["restarts"] == 0, report
        assert [path.name for path in (made.folder / "data").iterdir()] == ["given"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_one_that_is_interrupted(number: signal.Signals) -> None:
    with chaos() as made:
        process = made.begin("--faults=disk", "--every=1s", "--lasting=1h")
        try:
            until(lambda: made.has("refused"), "no room")
            process.send_signal(number)
            output = process.communicate(timeout=PATIENCE_SECONDS)[0]
        finally:
            process.kill()
        assert process.returncode == (130 if number == signal.SIGINT else -number), output
        assert "Traceback" not in output


def test_what_cannot_be_full_is_told_before_anything_runs() -> None:
    with chaos() as made:
        output = made.run(*made.words, "--shared=data", "--faults=disk", code=1)
        assert "disk cannot be done: the job writes to nothing that can be made full" in output
        assert "but claim data, claim marks, on this machine's own disk" in output


def test_without_namespaces_no_claim_can_be_made_full() -> None:
    with chaos((*BECOME, "--forbid-namespaces")) as made:
        process = made.begin("--faults=disk")
        output = process.communicate(timeout=PATIENCE_SECONDS)[0]
        assert process.returncode == 1, output
        assert "cannot make a file system for the claims: " in output
        assert "it takes root, or user namespaces" in output
        assert "Traceback" not in output
