"""Records: a real controller's passes, kept in a file of bounded size, and decided anew."""

from __future__ import annotations

import base64
import json
import stat
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.simulation.__main__ import main as simulation
from tests.simulation.replay import Difference, read_observed, replay
from tests.unit.operator.test_controller import client, eventually, job, running
from trainyard.kinds.kind_registry import KINDS
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kube.client import Client
from trainyard.kube.resources import PODS, SECRETS
from trainyard.lifecycle import replica_state
from trainyard.lifecycle.actions import Create, Patch, Plan
from trainyard.lifecycle.observed import Observed, Pod
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.reconcile.controller import Controller
from trainyard.operator.reconcile.job_records import JobRecord
from trainyard.operator.reconcile.reconcile_log import (
    ReconcileLog,
    RecordError,
    RecordFile,
    changes,
    decision,
)
from trainyard.operator.runtime_context import RuntimeContext, wall_clock

__all__ = ["client"]

JOBS = KINDS["PyTorchTrainingJob"].resource
LAUNCHED = KINDS["DeepSpeedJob"].resource
SETTINGS = OperatorSettings(lifecycle=Settings.local())


def controller(client: Client, file: RecordFile) -> Controller:
    """One that keeps a record."""
    reconcile_log = ReconcileLog(file, lambda: wall_clock().isoformat(), replayable=True)
    return Controller(client, SETTINGS, RuntimeContext(reconcile_log=reconcile_log))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


async def pods(client: Client, count: int) -> list[dict[str, Any]]:
    async def found() -> list[dict[str, Any]]:
        listed, _ = await client.list(PODS, "default")
        return listed if len(listed) == count else []

    listed: list[dict[str, Any]] = await eventually(found)
    return listed


async def a_recorded_life(client: Client, path: Path) -> None:
    """Two jobs; of one a pod is evicted, and replaced."""
    with closing(RecordFile(path)) as file:
        async with running(controller(client, file).run()):
            await two_jobs(client)


async def two_jobs(client: Client) -> None:
    spec = {"config": {"run": {"python": ["train.py"]}}, "worker": {"replicas": 1}}
    container = {"name": "worker", "image": "i", "env": [{"name": "A", "value": "plain"}]}
    spec["worker"]["template"] = {"spec": {"containers": [container]}}
    head = {"apiVersion": LAUNCHED.api_version, "kind": LAUNCHED.kind}
    launched = {**head, "metadata": {"name": "launched", "namespace": "default"}, "spec": spec}
    restarting = job("restarting", replicas=1)
    restarting["spec"]["replicaSpecs"][0]["restartPolicy"] = "OnFailure"
    await client.create(JOBS, restarting)
    await client.create(LAUNCHED, launched)
    known = {pod["metadata"]["name"]: pod for pod in await pods(client, 2)}
    pod = next(pod for name, pod in known.items() if name.startswith("restarting"))

    async def told() -> bool:
        return "tasks" in (await client.get(JOBS, "restarting", "default"))["status"]

    await eventually(told)
    ended = {"terminated": {"exitCode": 137, "finishedAt": "2030-01-01T00:00:00Z"}}
    status = {
        "phase": "Failed",
        "reason": "Evicted",
        "containerStatuses": [{"name": "pytorch", "state": ended}],
    }
    await client.replace(PODS, {**pod, "status": status}, subresource="status")

    async def replaced() -> bool:
        again = await client.get(PODS, pod["metadata"]["name"], "default")
        return bool(again["metadata"]["uid"] != pod["metadata"]["uid"])

    await eventually(replaced)


async def test_a_record_of_a_controller_replays_until_a_decision_changes(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.jsonl"
    await a_recorded_life(client, path)
    logged = lines(path)
    with path.open("rb") as record:
        assert replay(record) == sum("input" in line for line in logged)
    assert any(line.get("did", "").startswith("create pods/restarting") for line in logged)
    monkeypatch.setattr(replica_state, "is_disruption", lambda pod: False)
    with path.open("rb") as record:
        difference = replay(record)
    assert isinstance(difference, Difference)
    assert difference.job == "pytorchtrainingjob/default/restarting"
    assert "status.backoffCount: '(absent)' → 1" in str(difference)


async def test_no_secret_goes_into_a_record(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    await a_recorded_life(client, path)
    secrets, _ = await client.list(SECRETS, "default")
    values = [value for secret in secrets for value in secret["data"].values()]
    assert len(values) >= 5
    record = path.read_text()
    for value in values:
        assert value not in record
        assert base64.b64decode(value).decode().strip() not in record
    assert '"value":"plain"' in record  # what the job itself says is kept
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_an_earlier_version_has_recorded_is_read_by_todays_names() -> None:
    node_kept_off = {"trainyard.dev/avoids": "node-3"}
    metadata = {"name": "p", "uid": "u", "namespace": "n", "annotations": node_kept_off}
    observed = Observed(pods=(Pod.decode({"metadata": metadata}),), probe_output={"u": "waits"})
    as_then = TypeAdapter(Observed).dump_python(observed, mode="json")
    pod = as_then["pods"][0]
    assert pod.pop("annotations")
    pod |= {"avoids": "node-3", "held": pod.pop("awaits_in_place_restart")}
    pod["told"] = pod.pop("container_statuses")
    as_then["words"] = as_then.pop("probe_output")
    reports = as_then["reports"]
    as_then["heard"] = {**reports, "holds": reports.pop("in_place")}
    del as_then["reports"], as_then["heard"]["in_place"]
    assert read_observed(as_then) == observed


def test_a_record_that_says_more_than_is_known_here_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.jsonl"
    seen = {"pods": [], "weather": "fine"}
    given = {"kind": "GenericJob", "now": "2030-01-01T00:00:00+00:00", "observed": seen}
    line = {"pass": 1, "job": "j", "decided": {}, "input": {**given, "job": _job().raw}}
    path.write_text(json.dumps(line))
    assert simulation(["--replay", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"{path} cannot be replayed: it has weather, which this version does not know; replay it "
        "with the version that wrote it\n"
    )
    line["input"] = {**given, "job": _job().raw, "kind": "SweepJob"}
    path.write_text(json.dumps(line))
    assert simulation(["--replay", str(path)]) == 2
    assert "it has a SweepJob, which is no kind here" in capsys.readouterr().err


def test_what_a_patch_says_of_secrets_is_left_out() -> None:
    patch = {"stringData": {"token": "hidden"}, "data": {"key": "hidden"}, "spec": {"data": "no"}}
    plan = Plan(None, (Patch(SECRETS, "s", "u", patch),))
    logged = json.dumps(decision(_job(), plan))
    assert "hidden" not in logged
    assert "no" in logged


def test_what_is_created_is_told_by_a_digest_that_changes_with_it() -> None:
    def told(image: str) -> Any:
        return decision(_job(), Plan(None, (Create(PODS, "p", lambda: {"image": image}),)))

    assert told("a") == told("a")
    assert told("a") != told("b")


def test_a_pass_that_failed_is_told_by_its_error() -> None:
    assert decision(_job(), ValueError("no")) == {"raised": "ValueError: no"}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, {"a.b": 2}),
        ({"a": 1}, {"b": 2}, {"a": "(absent)", "b": 2}),
        ({"a": [{"b": 1}, 2]}, {"a": [{"b": 3}, 2]}, {"a[0].b": 3}),
        ({"a": [1]}, {"a": [1, 2]}, {"a": [1, 2]}),
    ],
    ids=["equal", "deep", "names", "elements", "lengths"],
)
def test_a_status_is_told_by_what_changes(old: Any, new: Any, told: Any) -> None:
    assert dict(changes(old, new)) == told


def test_a_record_is_bounded_and_each_of_its_files_replays(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    file = RecordFile(path, most_bytes=1000)
    file.begin(b"head\n")
    for number in range(100):
        file.write(f"{number:099}\n".encode())
    before = Path(f"{path}.1")
    assert {each.name for each in tmp_path.iterdir()} == {path.name, before.name}
    for each in (path, before):
        assert each.stat().st_size <= 1000
        assert each.read_bytes().startswith(b"head\n")
    assert path.read_bytes().endswith(b"99\n")
    file.close()
    with closing(RecordFile(path, most_bytes=1000)) as again:
        again.begin(b"another\n")
    assert b"99\nanother\n" in path.read_bytes()


def test_a_record_that_fails_later_ends_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = RecordFile(folder / "record", most_bytes=10)
    file.write(b"123456789\n")
    (folder / "record").unlink()
    folder.rmdir()
    file.write(b"more\n")
    file.write(b"more\n")
    assert caplog.text.count("nothing is recorded any more") == 1
    with pytest.raises(RecordError, match="No such file or directory; name a file"):
        RecordFile(folder / "record")


def _job() -> JobRecord:
    now = datetime(2030, 1, 1, tzinfo=UTC).isoformat()
    metadata = {"namespace": "n", "name": "j", "uid": "u", "resourceVersion": "1"}
    return JobRecord.decode(KINDS["GenericJob"], {"metadata": metadata, "status": {"at": now}})
