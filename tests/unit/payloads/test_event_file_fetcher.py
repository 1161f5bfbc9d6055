"""The program that brings logs from object stores and web servers, run as its pods run it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.object_store import Bucket, serving
from trainyard.payloads import event_file_fetcher
from trainyard.payloads.event_file_fetcher import Credentials, signature_headers

PROGRAM = Path(event_file_fetcher.__file__)
EXAMPLE = Credentials(
    "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "", "us-east-1"
)
EXAMPLE_TIME = "20130524T000000Z"


@pytest.mark.parametrize(
    ("url", "headers", "signature"),
    [
        (
            "https://examplebucket.s3.amazonaws.com/test.txt",
            {"Range": "bytes=0-9"},
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J",
            {},
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
    ids=["get object", "list objects"],
)
def test_requests_are_signed_as_in_the_examples_of_the_protocols_documentation(
    url: str, headers: dict[str, str], signature: str
) -> None:
    sent = signature_headers(url, headers, EXAMPLE, EXAMPLE_TIME)
    assert sent["Authorization"].endswith(f"Signature={signature}")


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with serving() as made:
        yield made


def wait(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def fetch(folder: Path, *addresses: str, **env: str) -> subprocess.Popen[str]:
    """The program as a pod runs it, with its rounds right after each other."""
    text = re.sub(r"^SECONDS = .*$", "SECONDS = 0.05", PROGRAM.read_text(), flags=re.MULTILINE)
    return subprocess.Popen(
        [sys.executable, "-I", "-c", text, str(folder), *addresses],
        env=env,
        stderr=subprocess.PIPE,
        text=True,
    )


def stop(process: subprocess.Popen[str]) -> str:
    process.kill()
    return process.communicate(timeout=120)[1]


def test_event_files_of_a_prefix_are_fetched_and_followed(bucket: Bucket, tmp_path: Path) -> None:
    names = [f"one/run {n}/events.out.tfevents.{n}" for n in range(5)]
    bucket.objects = {name: name.encode() for name in names}
    bucket.objects |= {"one/model.bin": b"large", "two/events.out.tfevents.9": b"other"}
    process = fetch(tmp_path, "s3://runs/one/", **bucket.environment)
    try:
        wait((tmp_path / ".fetched").exists)
        found = {p.name: p.read_bytes() for p in tmp_path.rglob("events*")}
        assert found == {name.rpartition("/")[2]: name.encode() for name in names}
        assert not list(tmp_path.rglob("model.bin"))
        grown = tmp_path / "runs-one" / "run 3" / "events.out.tfevents.3"
        inode = grown.stat().st_ino
        bucket.objects[names[3]] += b" and more"
        wait(lambda: grown.read_bytes() == bucket.objects[names[3]])
        assert grown.stat().st_ino == inode
        assert bucket.authorizations == {"AWS4-HMAC-SHA256 Credential=user"}
    finally:
        stop(process)


@pytest.mark.parametrize("ignores_ranges", [False, True])
def test_a_page_is_fetched_and_followed(
    bucket: Bucket, tmp_path: Path, ignores_ranges: bool
) -> None:
    bucket.ignores_ranges = ignores_ranges
    bucket.objects = {"logs/events": b"one"}
    process = fetch(tmp_path, f"{bucket.url}/logs/events")
    try:
        wait((tmp_path / ".fetched").exists)
        (path,) = tmp_path.rglob("events.out.tfevents.events")
        assert path.read_bytes() == b"one"
        bucket.objects["logs/events"] = b"one two"
        wait(lambda: path.read_bytes() == b"one two")
    finally:
        stop(process)


def test_what_cannot_be_had_ends_it_with_a_sentence(bucket: Bucket, tmp_path: Path) -> None:
    bucket.is_down = True
    process = fetch(tmp_path, "s3://runs/one/", **bucket.environment)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 1
    assert said.startswith("cannot fetch s3://runs/one/: HTTP Error 503")
    assert not (tmp_path / ".fetched").exists()


def test_a_failure_later_takes_the_mark_back(bucket: Bucket, tmp_path: Path) -> None:
    bucket.objects = {"one/events.out.tfevents.1": b"x"}
    process = fetch(tmp_path, "s3://runs/one/", **bucket.environment)
    wait((tmp_path / ".fetched").exists)
    bucket.is_down = True
    process.communicate(timeout=120)
    process = fetch(tmp_path, "s3://runs/one/", **bucket.environment)
    process.communicate(timeout=120)
    assert process.returncode == 1
    assert not (tmp_path / ".fetched").exists()


def test_a_key_cannot_leave_the_folder(bucket: Bucket, tmp_path: Path) -> None:
    bucket.objects = {"one/../../../events.out.tfevents.1": b"x", "one/tfevents.2": b"y"}
    process = fetch(tmp_path / "in", "s3://runs/one/", **bucket.environment)
    try:
        wait((tmp_path / "in" / ".fetched").exists)
        assert [p.name for p in tmp_path.rglob("*tfevents*")] == ["tfevents.2"]
    finally:
        stop(process)
