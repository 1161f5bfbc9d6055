"""A PyTorchTrainingJob's TensorBoard: the real program, read over its HTTP API."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.embedded.command_line import CommandLine, Object, until
from tests.embedded.lifecycle_yard import Yard, condition, pytorch, template, yard
from tests.object_store import serving
from tests.tools import require

BOARDS = "/apis/tensorstack.dev/v1beta1/namespaces/default/tensorboards"
LOGS = {"logDir": {"pvc": [{"name": "data", "subPath": ["./log"]}]}}
WRITE = """
import sys, time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(sys.argv[1])
for step in range(3):
    value = Summary.Value(tag="loss", simple_value=1.0 / (step + 1))
    writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))
writer.close()
"""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Yard]:
    require("tensorboard")
    with yard(tmp_path) as found:
        yield found


def writes(folder: str, then: str = "") -> Object:
    """A template whose pod writes scalars into a folder of the claim, then runs a shell script."""
    script = f"python3 -c '{WRITE}' /data/{folder}"
    return template(["/bin/sh", "-c", f"{script} && {then}" if then else script])


def fetch(url: str, path: str = "") -> bytes:
    with urllib.request.urlopen(f"{url}{path}", timeout=120) as answer:
        found: bytes = answer.read()
    return found


def scalars(url: str, run: str) -> list[float]:
    """The values that TensorBoard shows of the tag `loss`; none before it has read them."""
    with suppress(urllib.error.URLError, ConnectionError):
        found = fetch(url, f"/data/plugin/scalars/scalars?tag=loss&run={quote(run)}")
        return [value for _, _, value in json.loads(found)]
    return []


VALUES = [1.0, 0.5, pytest.approx(1 / 3)]


def board(made: Yard) -> Object:
    """The only TensorBoard; empty when there is none."""
    _, found = made.api.request("GET", BOARDS)
    return found["items"][0] if found["items"] else {}


def viewer(made: Yard, name: str) -> Object:
    """What the job's status says of it."""
    told: Object = made.status(name).get("tensorboard") or {}
    return told


def pods_of(made: Yard, owner: str) -> list[Object]:
    _, found = made.api.request("GET", "/api/v1/namespaces/default/pods")
    return [pod for pod in found["items"] if pod["metadata"]["ownerReferences"][0]["kind"] == owner]


def ready(made: Yard, name: str) -> str:
    """Wait until it can be opened; its address."""
    until(lambda: viewer(made, name).get("ready"), f"the TensorBoard of {name} is ready")
    return str(viewer(made, name)["url"])


def test_page_and_scalars_are_served_until_the_job_is_deleted(made: Yard) -> None:
    """Over a pause, over the job's end, and through the death of the viewer's own process."""
    made.submit(pytorch("train", writes("log", "sleep 3600"), tensorboardSpec=LOGS))
    url = ready(made, "train")
    assert re.fullmatch(r"http://127\.0\.0\.1:3\d{4}", url)
    assert url in made.run("show", "train")
    assert b"<title>TensorBoard</title>" in fetch(url, "/")
    until(lambda: scalars(url, ".") == VALUES, "the scalars are shown")

    made.run("pause", "train")
    made.await_phase("train", "Paused")
    made.await_pods("train", {})
    assert scalars(url, ".") == VALUES

    (process,) = made.processes("/tensorboard --logdir")
    os.kill(process, signal.SIGKILL)
    until(lambda: made.processes("/tensorboard --logdir") not in ([], [process]), "it is back")
    assert ready(made, "train") == url
    until(lambda: scalars(url, ".") == VALUES, "the scalars are shown again")

    made.run("delete", "train")
    until(lambda: made.is_gone("train") and not board(made), "it goes with the job")
    until(lambda: not made.processes("/tensorboard --logdir"), "its process has ended")
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        fetch(url, "/")


def test_logs_of_several_claims_are_shown_side_by_side_after_the_end(made: Yard) -> None:
    """A folder that is written later than the viewer starts among them."""
    logs = {
        "trainingLogFilesets": ["t9k://pvc/data/old"],
        "logDir": {"pvc": [{"name": "data", "subPath": ["new/run", "../x"]}, {"name": "other"}]},
    }
    made.submit(pytorch("train", writes("old", "sleep 0.1"), tensorboardSpec=logs))
    made.end("train", "Succeeded")
    url = ready(made, "train")
    until(lambda: scalars(url, "data-old") == VALUES, "the folder of the claim is shown")
    made.submit(pytorch("again", writes("new/run")))
    made.end("again", "Succeeded")
    until(lambda: scalars(url, "data-new-run") == VALUES, "the late folder is shown too")

    assert viewer(made, "train")["type"] == "Warning"
    assert "'../x' leaves the claim data" in made.run("show", "train")
    assert "NotServed" in made.run("events", "train")


def test_a_changed_spec_gets_a_new_pod_and_keeps_the_address(made: Yard) -> None:
    made.submit(
        pytorch("train", writes("log"), tensorboardSpec={"logDir": {"pvc": [{"name": "data"}]}})
    )
    url = ready(made, "train")
    (before,) = pods_of(made, "TensorBoard")
    name = board(made)["metadata"]["name"]
    until(lambda: scalars(url, "log") == VALUES, "the run is shown")

    merge = "application/merge-patch+json"
    made.api.request("PATCH", f"{BOARDS}/{name}", {"spec": LOGS}, merge)
    until(lambda: scalars(url, ".") == VALUES, "the run is shown under its new name")
    (after,) = pods_of(made, "TensorBoard")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]

    made.api.request("PATCH", f"{BOARDS}/{name}", {"spec": {"suspend": True}}, merge)
    until(lambda: board(made)["status"]["phase"] == "Suspended", "it is suspended")
    until(lambda: not pods_of(made, "TensorBoard"), "its pod is gone")
    made.api.request("PATCH", f"{BOARDS}/{name}", {"spec": {"suspend": False}}, merge)
    assert ready(made, "train") == url


def test_a_missing_program_is_told_and_does_not_disturb_the_job(made: Yard) -> None:
    bare = made.folder / "bare"
    (bare / "bin").mkdir(parents=True)
    (bare / "bin" / "python").symlink_to(sys.executable)
    spec = {**LOGS, "image": "bare"}
    # Found nowhere: neither in the image's environment nor on the caller's PATH.
    made.run("down")
    made.environment["PATH"] = "/usr/bin:/bin"
    made.run("up", "--volume", f"data={made.data}", "--image", f"bare={bare}")
    made.submit(pytorch("train", template(["/bin/sh", "-c", "sleep 1"]), tensorboardSpec=spec))
    made.end("train", "Succeeded")
    until(lambda: viewer(made, "train").get("type") == "Warning", "it is told")
    # The container is started again and again, and is Starting in between.
    until(
        lambda: condition(board(made)["status"], "Ready")["reason"] == "ProgramMissing",
        "its condition tells it",
    )
    text = "there is no program `tensorboard` in the image bare"
    until(lambda: text in made.run("show", "train"), "the job tells it")
    assert "ProgramMissing" in made.run("events", "train")
    assert made.status("train")["phase"] == "Succeeded"


def test_run_prints_the_address_and_ends_it(tmp_path: Path) -> None:
    require("tensorboard")
    line = CommandLine(tmp_path)
    (tmp_path / "data").mkdir()
    until_opened = "while [ ! -e /data/opened ]; do sleep 0.1; done"
    # Both want the whole machine; on a cluster they would have to be on two.
    resources = {"limits": {"cpu": "64", "memory": "1Ti"}}
    template = writes("log", until_opened)
    template["spec"]["containers"][0]["resources"] = resources
    job = pytorch("train", template, tensorboardSpec={**LOGS, "resources": resources})
    file = line.manifest("m.yaml", job)
    address = re.compile(r"train: TensorBoard: (http://127\.0\.0\.1:\d+)\n")
    output: list[str] = []
    try:
        with line.running("run", "-f", file, "--volume", "data=data") as process:
            assert process.stdout is not None
            for text in process.stdout:
                output.append(text)
                if found := address.search(text):
                    until(lambda url=found[1]: scalars(url, ".") == VALUES, "scalars are shown")
                    (tmp_path / "data" / "opened").touch()
            assert process.wait(timeout=120) == 0, "".join(output)
        assert sum(bool(address.search(text)) for text in output) == 1, "".join(output)
        assert "nothing here serves it" not in "".join(output)
        until(lambda: not line.processes(), "nothing is left")
    finally:
        line.kill_everything()


def test_logs_of_an_object_store_are_shown_beside_those_of_a_claim(tmp_path: Path) -> None:
    """And told when the store refuses; in plain mode, where pods reach this machine's ports."""
    require("tensorboard")
    line = Yard(tmp_path)
    events = tmp_path / "elsewhere"
    subprocess.run([sys.executable, "-c", WRITE, str(events)], check=True, timeout=120)
    logs = {
        "pvc": [{"name": "data", "subPath": ["log"]}],
        "s3": {"secretRef": {"name": "keys"}, "uri": ["s3://runs/one/"]},
    }
    try:
        with serving() as bucket:
            bucket.is_down = True
            bucket.objects = {f"one/{p.name}": p.read_bytes() for p in events.iterdir()}
            line.run("up", "--isolation", "plain", "--volume", f"data={line.data}")
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "keys"},
                "stringData": bucket.environment,
            }
            code, _ = line.api.request("POST", "/api/v1/namespaces/default/secrets", secret)
            assert code == 201
            script = ["/bin/sh", "-c", f"python3 -c '{WRITE}' {line.data}/log"]
            job = pytorch("train", template(script), tensorboardSpec={"logDir": logs})
            line.submit(job)
            url = ready(line, "train")
            until(lambda: scalars(url, "data-log") == VALUES, "the claim's logs are shown")
            until(lambda: "503" in viewer(line, "train")["note"], "the store's refusal is told")
            bucket.is_down = False
            until(lambda: scalars(url, "s3-keys/runs-one") == VALUES, "the store's are shown too")
            until(lambda: viewer(line, "train")["type"] == "Normal", "nothing is wrong any more")
            line.run("down")
    finally:
        line.run("down", code=None)
        line.kill_everything()


SUMMARIES = """
import os, time
from torch.utils.tensorboard import SummaryWriter
writer, step = SummaryWriter("/data/log/run", flush_secs=1), 0
while not os.path.exists("/data/end"):
    step += 1
    writer.add_scalar("loss", 1 / step, step)
    time.sleep(0.1)
"""


def test_what_a_program_writes_for_it_tells_how_far_the_program_is(made: Yard) -> None:
    old = made.data / "log" / "events.out.tfevents.1700000000.another.7.0"
    old.parent.mkdir()
    old.write_bytes(b"of another run")
    made.submit(pytorch("train", template(["python", "-c", SUMMARIES]), tensorboardSpec=LOGS))

    def step() -> int:
        told: Object = made.status("train").get("progress") or {}
        assert told.get("source", "TensorBoard") == "TensorBoard"
        return int(told.get("step", 0))

    until(lambda: step() > 0, "it is read", 600)
    first = step()
    until(lambda: step() > first, "it is read on", 600)
    [loss] = made.status("train")["progress"]["metrics"]
    assert loss["name"] == "loss"
    assert 0 < float(loss["value"]) < 1
    assert re.search(r"step \d", made.run("list"))
    (made.data / "end").touch()
    made.end("train", "Succeeded")
