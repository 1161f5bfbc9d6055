"""`trainyard chaos`: each fault is real, its report tells of it, and nothing is left."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.embedded.command_line import PATIENCE_SECONDS, CommandLine, Object, until
from trainyard.api.chaos.chaos_report import ChaosResult

TICK = 0.05
DONE = hashlib.sha256(b"done").hexdigest()
SCRIPT = f"""\
import os, socket, time
rank = os.environ["RANK"]
mine = f"/marks/longest-{{rank}}-{{time.time_ns()}}"  # each of its lives
longest, before = 0.0, time.monotonic()
ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ear.setblocking(False)
heard = None  # since when the first replica has heard nothing of the other
if rank == "0":
    ear.bind(("", 9999))
while not os.path.exists("/marks/finish"):
    time.sleep({TICK})
    now = time.monotonic()
    try:
        if rank == "0":
            ear.recv(1)
            if heard is not None and now - heard > 0.9:
                open(f"/marks/silence-{{time.time_ns()}}", "w").close()
            heard = now
        else:
            ear.sendto(b"x", (os.environ["MASTER_ADDR"], 9999))
    except OSError:
        pass  # nothing has come, or nobody is there just now
    longest, before = max(longest, now - before), now
    with open(mine, "w") as file:
        file.write(str(longest))
with open("/data/result", "w") as file:
    file.write("done")
"""


def job() -> Object:
    """Two replicas that run until there is a file `finish` in the claim `marks`."""
    claims = ("data", "marks")
    container = {
        "name": "main",
        "image": "python",
        "command": ["python3", "-c", SCRIPT],
        "volumeMounts": [{"name": claim, "mountPath": f"/{claim}"} for claim in claims],
    }
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    pod = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 2}
    worker = {"type": "worker", "replicas": 2, "restartPolicy": "OnFailure"}
    return {
        "apiVersion": "batch.tensorstack.dev/v1beta1",
        "kind": "PyTorchTrainingJob",
        "metadata": {"name": "job"},
        "spec": {
            "runPolicy": {"backoffLimit": 20},
            "replicaSpecs": [{**worker, "template": {"spec": pod}}],
        },
    }


class Chaos(CommandLine):
    """The command in a folder; `marks` and `data` are folders of the job's claims."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for name in ("tmp", "marks", "data"):
            (folder / name).mkdir()
        self.environment["TMPDIR"] = str(folder / "tmp")
        self.words = ("chaos", "-f", self.manifest("job.yaml", job()), "--shared", "marks")
        self.words += tuple(f"--volume={name}={folder / name}" for name in ("marks", "data"))

    def begin(self, *more: str) -> subprocess.Popen[str]:
        """Start it, with a run without faults of which we say how it was."""
        self.write_baseline()
        return self.start(*self.words, "--baseline=before.json", "--output=json", *more)

    def write_baseline(self) -> None:
        """As a report has it."""
        told = ChaosResult("Succeeded", 1.0, files={"data:result": DONE})
        (self.folder / "before.json").write_text(json.dumps({"baseline": asdict(told)}))

    def whole(self, *more: str) -> str:
        """Run it to its end, both runs."""
        return self.run(*self.words, *more)

    @property
    def finish(self) -> Path:
        """Of the job."""
        return self.folder / "marks" / "finish"

    def left(self) -> list[object]:
        """Processes and folders."""
        return [*self.processes(), *(self.folder / "tmp").glob("trainyard-chaos-*")]


@contextmanager
def chaos(folder: Path) -> Iterator[Chaos]:
    made = Chaos(folder)
    try:
        yield made
        until(lambda: not made.left(), "nothing is left")
    finally:
        made.kill_everything()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Chaos]:
    with chaos(tmp_path) as made:
        yield made


def read_until(process: subprocess.Popen[str], *words: str) -> str:
    """What a command prints, up to the line in which the last of the words has come."""
    assert process.stdout is not None
    missing, read = set(words), ""
    for line in process.stdout:
        read += line
        missing = {word for word in missing if word not in line}
        if not missing:
            return read
    raise AssertionError(f"{missing} did not come: {read}")


def test_each_fault_is_done_and_told(here: Chaos) -> None:
    faults = ("kill", "stop", "slow", "hang", "partition", "controller", "server")
    lengths = ("--every=1s", "--lasting=1s", "--patience=1s", f"--most={len(faults)}")
    process = here.begin("--faults", ",".join(faults), "--seed=3", *lengths, "--result=data:result")
    try:
        read_until(process, *(f": {fault} " for fault in faults))
        here.finish.touch()
        output = process.communicate(timeout=PATIENCE_SECONDS)[0]
    finally:
        process.kill()
    report = json.loads(output[output.index("{\n") :])
    assert process.returncode == 0, output
    assert report["same"], report
    by_fault = {each["fault"]: each for each in report["struck"]}
    assert sorted(by_fault) == sorted(faults)
    seen = [text for each in report["struck"] for text in each["seen"]]
    assert any("exited with error code 137" in text for text in seen), report
    assert report["under_faults"]["restarts"] == 1, "no other fault ended anything"
    assert any("ended from here" in each for each in by_fault["hang"]["seen"]), report
    for fault in ("stop", "slow", "partition", "hang"):
        assert by_fault[fault]["seconds"] >= 1, fault
        assert by_fault[fault]["target"].startswith("worker-"), fault
    longest = [float(path.read_text() or 0) for path in (here.folder / "marks").glob("longest-*")]
    assert max(longest) >= 0.9, "a replica stood still"
    assert not list((here.folder / "data").iterdir()), "the folder of a claim stays as it was"


def test_a_partition_cuts_off_and_heals(here: Chaos) -> None:
    process = here.begin("--faults=partition", "--every=1s", "--lasting=2s", "--most=1")
    try:
        until(lambda: list((here.folder / "marks").glob("silence-*")), "the other was heard again")
        here.finish.touch()
        output = process.communicate(timeout=PATIENCE_SECONDS)[0]
    finally:
        process.kill()
    report = json.loads(output[output.index("{\n") :])
    assert [each["fault"] for each in report["struck"]] == ["partition"]
    assert report["struck"][0]["seconds"] >= 2
    assert report["under_faults"]["restarts"] == 0


def test_where_pods_share_a_network_none_is_cut_off(here: Chaos) -> None:
    here.finish.touch()
    for faults, code, told in (
        (("--faults=kill,partition",), 1, "cannot be done: pods are plain processes here"),
        ((), 0, "partition was left out: pods are plain processes here"),
    ):
        process = here.begin("--isolation=plain", "--every=1h", *faults)
        output = process.communicate(timeout=PATIENCE_SECONDS)[0]
        assert process.returncode == code, output
        assert told in output


def test_a_job_runs_without_and_with_faults(here: Chaos) -> None:
    here.finish.touch()
    output = here.whole("--faults=kill", "--every=1h", "--result=data:result")
    assert "the result is the same, 1 file included" in output
    assert "no fault came" in output, "it ends at once"
    assert output.count("Succeeded") >= 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_one_that_is_interrupted(here: Chaos, number: signal.Signals) -> None:
    process = here.begin("--faults=stop", "--every=1s", "--lasting=1h")
    try:
        until(lambda: list((here.folder / "marks").glob("longest-*")), "the job runs")
        os.kill(process.pid, number)
        output = process.communicate(timeout=PATIENCE_SECONDS)[0]
    finally:
        process.kill()
    assert process.returncode == (130 if number == signal.SIGINT else -number), output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--faults=earthquake",), "'earthquake' is none of kill"),
        (("--every=soon",), "is not a duration"),
        (("--every=0s",), "longer than nothing"),
        (("--baseline=nowhere",), "cannot read nowhere"),
        (("--shared=other",), "no --volume other=DIR"),
        (("--baseline=before.json", "--result=data:other"), "tells nothing of it"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(here: Chaos, words: tuple[str, ...], told: str) -> None:
    here.write_baseline()
    output = here.run(*here.words, *words, code=None)
    assert told in output
