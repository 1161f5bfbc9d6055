"""Files for TensorBoard, by TensorBoard's own writer: what they tell of a training."""

from __future__ import annotations

import random
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from trainyard.payloads.observer.tensorboard_events import (
    LATEST_RECORDS,
    LONGEST_RECORD,
    MOST_METRICS,
    EventFiles,
)

pytest.importorskip("tensorboard")

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto


@pytest.fixture
def since() -> float:
    return time.time()


def scalar(tag: str, value: float, step: int) -> Event:
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
    return Event(wall_time=time.time(), step=step, summary=summary)


def tensor(tag: str, value: Any, step: int, dtype: Any = None) -> Event:
    """As TensorFlow 2 writes it."""
    made = Summary.Value(tag=tag, tensor=make_tensor_proto(value, dtype=dtype))
    return Event(wall_time=time.time(), step=step, summary=Summary(value=[made]))


def write(folder: Path, *events: Event) -> Path:
    """The only file of the folder."""
    writer = EventFileWriter(str(folder))
    for event in events:
        writer.add_event(event)
    writer.close()
    (path,) = folder.iterdir()
    return path


def metrics(events: EventFiles) -> dict[str, str]:
    status = events.status()
    assert status["source"] == "TensorBoard"
    return {each["name"]: each["value"] for each in status["metrics"]}


def test_the_last_scalars_are_told_with_the_furthest_step(tmp_path: Path, since: float) -> None:
    """Of tags that count epochs, the step is none of the training's."""
    events = EventFiles([str(tmp_path / "nowhere"), str(tmp_path)], since)
    assert not events.read_new()
    folder = tmp_path / "lightning_logs" / "version_0"
    write(
        folder,
        scalar("loss", 1.0, 100),
        scalar("loss", 0.25, 200),
        tensor("rate", 3.5, 200),
        tensor("double", 0.5, 200, "float64"),
        tensor("text", "not a number", 300),
        tensor("many", [1.0, 2.0], 300),
        scalar("val/accuracy", 0.75, 3),
    )
    assert events.read_new()
    assert metrics(events) == {
        "current_step": "200",
        "loss": "0.25",
        "rate": "3.5",
        "double": "0.5",
        "val/accuracy": "0.75",
    }
    assert not events.read_new(), "there is nothing new"


def test_a_file_that_grows_is_read_from_record_to_record(tmp_path: Path, since: float) -> None:
    written = write(tmp_path / "made", *(scalar("loss", 1 / n, n) for n in range(1, 30)))
    data = written.read_bytes()
    (tmp_path / "grows").mkdir()
    path = tmp_path / "grows" / written.name
    events, last = EventFiles([str(path.parent)], since), 0
    for end in range(0, len(data) + 1, 7):
        path.write_bytes(data[:end])
        events.read_new()
        step = int(metrics(events).get("current_step", 0))
        assert last <= step <= last + 1
        last = step
    path.write_bytes(data)
    events.read_new()
    assert metrics(events)["current_step"] == "29"


def test_long_records_are_passed_over_and_only_the_last_are_read(
    tmp_path: Path, since: float
) -> None:
    image = tensor("image", "x" * (LONGEST_RECORD + 1), 5000)
    many = [scalar(f"tag-{n}", n, n) for n in range(LATEST_RECORDS + 40)]
    write(tmp_path, *many, image, scalar("loss", 1.0, 999))
    events = EventFiles([str(tmp_path)], since)
    assert events.read_new()
    found = metrics(events)
    assert found["current_step"] == "999"
    assert len(found) == 1 + MOST_METRICS
    assert f"tag-{LATEST_RECORDS + 39}" in found
    assert "tag-0" not in found


def test_other_runs_tell_nothing(tmp_path: Path, since: float) -> None:
    """Of before, and of other pods that write into the same folder."""
    path = write(tmp_path, scalar("loss", 1.0, 7))
    _, second, rest = path.name.partition("tfevents.")[0], *path.name.rpartition("tfevents.")[::2]
    number, _, tail = rest.partition(".")
    for name in (
        f"{second}tfevents.{int(since) - 1}.{tail}",
        f"{second}tfevents.{number}.{tail.replace(socket.gethostname(), 'another')}",
        path.name.replace("tfevents", "profile"),
    ):
        path = path.rename(tmp_path / name)
        events = EventFiles([str(tmp_path)], since)
        assert not events.read_new(), name
    assert events.status()["metrics"] == []


def test_whatever_is_in_a_file_is_read_to_its_end(tmp_path: Path, since: float) -> None:
    path = write(tmp_path, *(scalar("loss", 1.0, n) for n in range(20)), tensor("t", 1.0, 3))
    data, rng = path.read_bytes(), random.Random(1)
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(rng.randint(1, 40)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        path.write_bytes(changed)
        events = EventFiles([str(tmp_path)], since)
        events.read_new()
        events.read_new()
        assert all(len(each["value"]) < 32 for each in events.status()["metrics"])
