"""Lines of several replicas, and logs that outlived their pods."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.cli.objects import found, job, pod, pod_name, task
from trainyard.cli.loglines import Lines, Options, Printer
from trainyard.cli.logs import check_container, has_started
from trainyard.cli.oldlogs import kept_logs, print_kept
from trainyard.client.target import CommandError


def test_lines_of_replicas_are_whole_and_prefixed(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    show = Printer(is_prefixed=True)
    first, second = Lines(show, "worker-0"), Lines(show, "worker-1")
    first.feed(b"one\ntw")
    second.feed(b"uno\n")
    first.feed(b"o\nthree")
    first.end()
    second.end()
    assert capfdbinary.readouterr().out.splitlines() == [
        b"[worker-0] one",
        b"[worker-1] uno",
        b"[worker-0] two",
        b"[worker-0] three",
    ]


def test_a_single_replica_is_printed_as_it_is(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    lines = Lines(Printer(is_prefixed=False), "worker-0")
    lines.feed(b"\xff raw\nrest")
    lines.end()
    assert capfdbinary.readouterr().out == b"\xff raw\nrest\n"


@pytest.mark.parametrize(
    ("state", "started"),
    [({"running": {}}, True), ({"terminated": {}}, True), ({"waiting": {}}, False)],
)
def test_only_a_container_that_has_started_has_a_log(
    state: dict[str, object], started: bool
) -> None:
    assert has_started(pod(states={"pytorch": state}), "pytorch") is started
    assert not has_started(pod(states={"pytorch": state}), "other")


def test_a_container_that_no_replica_has_is_refused_with_those_there_are() -> None:
    pods = [pod("ps-0", containers=("main",)), pod("worker-0", containers=("main", "side"))]
    check_container(found(job()), pods, "side")
    check_container(found(job()), [], "unknown")
    with pytest.raises(CommandError, match="no container extra; it has main, side"):
        check_container(found(job()), pods, "extra")


def keep(
    folder: Path, replica: str, uid: str, text: str, age: int, container: str = "pytorch"
) -> Path:
    """A log as the node agent leaves it, of a run `age` seconds ago."""
    path = folder / "pods" / f"default_{pod_name(replica)}_{uid}" / container / "0.log"
    path.parent.mkdir(parents=True)
    lines = text.splitlines()
    path.write_text("".join(f"2026-08-02T12:00:00.0Z stdout F {line}\n" for line in lines))
    os.utime(path, (1_000_000 - age, 1_000_000 - age))
    return path


def test_the_log_before_the_last_is_that_of_the_earlier_pod(tmp_path: Path) -> None:
    first = keep(tmp_path, "worker-0", "a", "first", 30)
    keep(tmp_path, "worker-0", "b", "second", 20)
    keep(tmp_path, "worker-1", "c", "only", 20)
    assert dict(kept_logs(tmp_path, found(job()), back=1)) == {"worker-0": first}


def test_the_last_log_is_that_of_the_training_container(tmp_path: Path) -> None:
    keep(tmp_path, "worker-0", "a", "beside", 1, container="a-sidecar")
    (tmp_path / "pods" / f"default_{pod_name('worker-0')}_a" / "worker").mkdir()
    own = tmp_path / "pods" / f"default_{pod_name('worker-0')}_a" / "worker" / "0.log"
    own.write_text("")
    replicas = task("Failed")
    replicas["replicas"][0]["containers"] = [{"name": "worker"}]
    assert dict(kept_logs(tmp_path, found(job("Failed", tasks=[replicas])))) == {"worker-0": own}


async def test_kept_logs_are_printed(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    keep(tmp_path, "worker-0", "a", "one\ntwo", 30)
    keep(tmp_path, "worker-1", "b", "uno\ndos", 30)
    await print_kept(tmp_path, found(job("Failed")), Options(tail=1))
    assert capfdbinary.readouterr().out == b"[worker-0] two\n[worker-1] dos\n"
    await print_kept(tmp_path, found(job("Failed")), Options(replica="worker-1"))
    assert capfdbinary.readouterr().out == b"uno\ndos\n"


async def test_a_replica_that_was_not_restarted_has_no_earlier_log(tmp_path: Path) -> None:
    keep(tmp_path, "worker-0", "a", "one", 30)
    with pytest.raises(CommandError, match="it was not restarted"):
        await print_kept(tmp_path, found(job("Failed")), Options(previous=True))
