"""Log files: what the shim writes and what ``kubectl logs`` reads back."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.podruntime.log_files import LogFile, timestamp
from trainyard.podruntime.log_reader import LogOptions, last_lines, read_log


async def read_text(path: Path, options: LogOptions | None = None) -> str:
    chunks = [c async for c in read_log(str(path), options or LogOptions(), lambda: True)]
    return b"".join(chunks).decode()


def write_log(path: Path, *pieces: bytes) -> Path:
    log = LogFile(str(path))
    for piece in pieces:
        log.write(piece)
        log.flush()
    log.close()
    return path


async def test_pieces_of_a_line_are_joined_when_read(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", b"one\ntw", b"o\nthr", b"ee", b"\nfour")
    assert await read_text(path) == "one\ntwo\nthree\nfour"


def test_a_line_that_grows_all_the_time_is_due_when_it_has_been_there_for_a_moment(
    tmp_path: Path,
) -> None:
    log = LogFile(str(tmp_path / "log"))
    log.write(b"one\n\r10%")
    due = log.flush_at
    assert due is not None
    for percent in (20, 30):
        log.write(b"\r%d%%" % percent)
        assert log.flush_at == due
    log.flush()
    assert log.flush_at is None
    log.write(b"\r40%")
    assert (log.flush_at or 0) >= due
    log.write(b"\ntwo\n")
    assert log.flush_at is None
    log.close()


async def test_a_record_is_time_stream_flag_text(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", b"one\nrest")
    first, second = path.read_text().splitlines()
    assert first.split(" ")[1:] == ["stdout", "F", "one"]
    assert second.split(" ")[1:] == ["stdout", "P", "rest"]
    assert datetime.fromisoformat(first.split(" ")[0][:26] + "Z").tzinfo is not None


async def test_a_long_line_is_cut_in_the_file_and_whole_when_read(tmp_path: Path) -> None:
    line = b"x" * 50_000
    path = write_log(tmp_path / "log", line[:20_000], line[20_000:] + b"\n")
    assert await read_text(path) == line.decode() + "\n"


@pytest.mark.parametrize("tail", [0, 1, 2, 3, 99])
async def test_tail_counts_lines_not_records(tmp_path: Path, tail: int) -> None:
    path = write_log(tmp_path / "log", b"one\ntw", b"o\nthr", b"ee\n")
    lines = ["one\n", "two\n", "three\n"]
    expected = "".join(lines[-tail:]) if tail else ""
    assert await read_text(path, LogOptions(tail=tail)) == expected


async def test_since_leaves_out_what_is_older(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        "2026-01-01T00:00:00.000000001Z stdout F old\n2026-01-01T00:00:02.5Z stdout F new\n"
    )
    since = datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert await read_text(path, LogOptions(since=since)) == "new\n"


async def test_last_lines_are_limited_in_lines_and_bytes(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", b"".join(b"%d\n" % i for i in range(200)))
    text = last_lines(str(path))
    assert text.splitlines() == [str(i) for i in range(120, 200)]
    assert len(last_lines(str(path), limit=10)) <= 10


def test_times_are_rfc_3339_with_nanoseconds() -> None:
    assert timestamp(1_500_000_000_000_000_042) == "2017-07-14T02:40:00.000000042Z"


@given(st.lists(st.binary(max_size=40), max_size=8))
async def test_what_was_written_is_what_is_read(pieces: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_log(Path(folder) / "log", *pieces)
        chunks = [c async for c in read_log(str(path), LogOptions(), lambda: True)]
        assert b"".join(chunks) == b"".join(pieces)
