"""Lines of several replicas, and logs that outlived their pods."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.client.objects import found, job, pod, pod_name, task, views
from trainyard.client.cluster_target import CommandError
from trainyard.client.kept_logs import find_kept, kept_logs, read_kept
from trainyard.client.log_streams import (
    LONGEST_LINE,
    Lines,
    LogRequest,
    lines_of_rank,
    shown_container,
    texts,
)
from trainyard.client.pod_views import PodView
from trainyard.client.replica_commands import check_container


def test_bytes_are_cut_into_whole_lines_and_the_last_one_is_finished() -> None:
    lines = Lines()
    assert [lines.feed(b"one\ntw"), lines.feed(b"o"), lines.feed(b"\nthr")] == [
        b"one\n",
        b"",
        b"two\n",
    ]
    assert [lines.end(), lines.end()] == [b"thr\n", b""]


def test_lines_of_a_rank_are_found_by_their_tag() -> None:
    lines = [
        b"[rank3]: one\n",
        b"[rank13]: of another\n",
        b"worker-1: [rank3]: through pdsh\n",
        b"2026-11-26T20:00:00.1Z [rank3]: with its time\n",
        b"2026-11-26T20:00:00.1+02:00 worker-1: [rank3]: both\n",
        b"the agent's, which speaks of [rank3]: itself\n",
        b"[rank3]: \xff\rprogress\n",
    ]
    expected = [lines[at] for at in (0, 2, 3, 4, 6)]
    assert lines_of_rank(b"".join(lines), 3) == b"".join(expected)


def test_a_line_that_is_too_long_is_cut_wherever_its_chunks_end() -> None:
    text = b"short\n" + b"x" * (2 * LONGEST_LINE + 10) + b"\nend\n"
    expected = [b"short", b"x" * LONGEST_LINE, b"x" * LONGEST_LINE, b"x" * 10, b"end"]
    for size in (len(text), LONGEST_LINE + 7, 70_001):
        lines = Lines()
        cut = [lines.feed(text[start : start + size]) for start in range(0, len(text), size)]
        assert b"".join(cut).splitlines() == expected


def test_a_line_of_progress_that_is_too_long_is_cut_between_two_states() -> None:
    text = b"".join(b"\r%7d of many" % number for number in range(3 * LONGEST_LINE // 16))
    for size in (len(text), 70_001):
        lines = Lines()
        cut = [lines.feed(text[start : start + size]) for start in range(0, len(text), size)]
        pieces = (b"".join(cut) + lines.end()).split(b"\n")
        assert b"".join(pieces) == text
        assert all(piece.endswith(b" of many") for piece in pieces if piece)
        assert max(map(len, pieces)) <= LONGEST_LINE


@pytest.mark.parametrize(
    ("chunks", "shown"),
    [
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"o", b"ne\nt", b"wo"], ["one", "two"]),
        ([b"10%\r50%\r100%\n"], ["100%"]),
        ([b"dos\r\n"], ["dos"]),
        ([b"\xff\xfe\n"], ["\ufffd\ufffd"]),
        ([b"\n"], [""]),
        ([], []),
    ],
    ids=["whole", "cut", "progress bar", "dos", "not text", "empty line", "nothing"],
)
def test_lines_are_shown_as_a_terminal_would(chunks: list[bytes], shown: list[str]) -> None:
    lines = Lines()
    whole = b"".join(lines.feed(chunk) for chunk in chunks)
    assert texts(whole + lines.end()) == shown


@pytest.mark.parametrize(
    ("kind", "containers", "shown"),
    [
        ("PyTorchTrainingJob", ("main", "worker"), "main"),
        ("GenericJob", ("app", "python"), "app"),
    ],
)
def test_the_log_is_that_of_the_container_that_trains(
    kind: str, containers: tuple[str, ...], shown: str
) -> None:
    view = PodView(pod(containers=containers))
    assert shown_container(found(job(kind=kind)), view, LogRequest()) == shown


@pytest.mark.parametrize(
    ("state", "started"),
    [({"running": {}}, True), ({"terminated": {}}, True), ({"waiting": {}}, False)],
)
def test_only_a_container_that_has_started_has_a_log(
    state: dict[str, object], started: bool
) -> None:
    assert PodView(pod(states={"pytorch": state})).has_started("pytorch") is started
    assert not PodView(pod(states={"pytorch": state})).has_started("other")


def test_a_container_that_no_replica_has_is_refused_with_those_there_are() -> None:
    pods = views(pod("ps-0", containers=("main",)), pod("worker-0", containers=("main", "side")))
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


@pytest.mark.parametrize(
    ("kind", "kept", "last"),
    [
        ("PyTorchTrainingJob", ("main", "worker"), "main"),
        ("GenericJob", ("app", "aside"), "app"),
    ],
)
def test_of_a_pod_that_is_gone_too_the_kind_says_which_container_trains(
    tmp_path: Path, kind: str, kept: tuple[str, ...], last: str
) -> None:
    for name in kept:
        path = tmp_path / "pods" / f"default_{pod_name('worker-0')}_a" / name / "0.log"
        path.parent.mkdir(parents=True)
        path.touch()
    containers = [{"name": name} for name in kept]
    entry = {"type": "worker", "template": {"spec": {"containers": containers}}}
    stored = found(job("Failed", kind=kind, spec={"replicaSpecs": [entry]}))
    [(_, path)] = kept_logs(tmp_path, stored)
    assert path.parent.name == last


def test_of_an_attempt_that_did_not_come_to_its_training_it_is_the_init_containers_log(
    tmp_path: Path,
) -> None:
    """Decision 108: and never of a pod that did, whatever ran before and beside the training."""
    first = keep(tmp_path, "worker-0", "a", "no data", 30, container="prepare")
    for container, age in (("prepare", 20), ("proxy", 1), ("main", 15)):
        keep(tmp_path, "worker-0", "b", container, age, container=container)
    last = tmp_path / "pods" / f"default_{pod_name('worker-0')}_b" / "main" / "0.log"
    replicas = task("Failed")
    replicas["replicas"][0]["containers"] = [
        {"name": "prepare", "role": "Init", "exitCode": 0},
        {"name": "proxy", "role": "Sidecar", "exitCode": 143},
        {"name": "main", "exitCode": 1},
    ]
    stored = found(job("Failed", tasks=[replicas]))
    assert dict(kept_logs(tmp_path, stored)) == {"worker-0": last}
    assert dict(kept_logs(tmp_path, stored, back=1)) == {"worker-0": first}


async def kept_text(folder: Path, request: LogRequest) -> dict[str, bytes]:
    """What each replica of a failed job left behind."""
    found_logs = find_kept(folder, found(job("Failed")), request)
    return {
        replica: b"".join([lines async for lines in read_kept(path, request)])
        for replica, path in found_logs.items()
    }


async def test_kept_logs_are_read(tmp_path: Path) -> None:
    keep(tmp_path, "worker-0", "a", "one\ntwo", 30)
    keep(tmp_path, "worker-1", "b", "uno\ndos", 30)
    assert await kept_text(tmp_path, LogRequest(tail=1)) == {
        "worker-0": b"two\n",
        "worker-1": b"dos\n",
    }
    assert await kept_text(tmp_path, LogRequest(replica="worker-1")) == {"worker-1": b"uno\ndos\n"}


async def test_a_kept_log_is_read_through_all_its_files(tmp_path: Path) -> None:
    """Also where a kill amid a rotation left no file of the log's own name."""
    path = keep(tmp_path, "worker-0", "a", "one", 30)
    path.rename(path.with_name("0.log.7"))
    path.with_name("0.log.8").write_text("2026-08-02T12:00:01.0Z stdout F two\n")
    assert await kept_text(tmp_path, LogRequest()) == {"worker-0": b"one\ntwo\n"}
    path.write_text("2026-08-02T12:00:02.0Z stdout F three\n")
    assert await kept_text(tmp_path, LogRequest(tail=2)) == {"worker-0": b"two\nthree\n"}


def test_a_replica_that_was_not_restarted_has_no_earlier_log(tmp_path: Path) -> None:
    keep(tmp_path, "worker-0", "a", "one", 30)
    with pytest.raises(CommandError, match="it was not restarted"):
        find_kept(tmp_path, found(job("Failed")), LogRequest(previous=True))
