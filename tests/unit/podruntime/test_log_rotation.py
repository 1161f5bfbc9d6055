"""A log of several files: what is kept, and what readers see while it rotates."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.small_disk import on_small_disk
from trainyard.podruntime import log_reader
from trainyard.podruntime.log_files import LogFile, LogLimits, drop_oldest
from trainyard.podruntime.log_reader import MISSING, LogOptions, last_lines, read_log


async def read_bytes(path: Path, options: LogOptions | None = None) -> bytes:
    return b"".join([c async for c in read_log(str(path), options or LogOptions(), lambda: True)])


def write_log(path: Path, pieces: list[bytes], limits: LogLimits) -> Path:
    log = LogFile(str(path), limits)
    for piece in pieces:
        log.write(piece)
        log.flush()
    log.close()
    return path


LINES = [b"line %d\n" % number for number in range(100)]
MANY_FILES = LogLimits(size=200, files=100)


def disk_usage(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in folder.iterdir())


@given(
    st.lists(st.binary(max_size=60), max_size=30),
    st.integers(min_value=1, max_value=400),
    st.integers(min_value=2, max_value=5),
)
async def test_what_is_read_is_the_end_of_what_was_written(
    pieces: list[bytes], size: int, files: int
) -> None:
    """Also of lines in pieces, empty ones, and bytes that are no text."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_log(Path(folder) / "log" / "0.log", pieces, LogLimits(size, files))
        whole = await read_bytes(path)
        kept = list(path.parent.iterdir())
        assert b"".join(pieces).endswith(whole)
        assert len(kept) <= files
        if len(kept) < files:
            assert whole == b"".join(pieces)


@given(
    st.lists(st.binary(min_size=1, max_size=30), max_size=20),
    st.integers(min_value=1, max_value=300),
    st.integers(min_value=0, max_value=12),
)
async def test_tail_counts_lines_through_all_files(
    pieces: list[bytes], size: int, tail: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_log(Path(folder) / "0.log", pieces, LogLimits(size, 1000))
        lines = [part + b"\n" for part in b"".join(pieces).split(b"\n")]
        lines[-1] = lines[-1][:-1]
        lines = [line for line in lines if line]
        expected = b"".join(lines[-tail:]) if tail else b""
        assert await read_bytes(path, LogOptions(tail=tail)) == expected
        assert last_lines(str(path), tail) == expected.decode(errors="replace").strip("\n")


async def test_a_limit_of_bytes_and_times_hold_through_all_files(tmp_path: Path) -> None:
    path = write_log(tmp_path / "0.log", LINES, MANY_FILES)
    assert len(list(tmp_path.iterdir())) > 3
    assert await read_bytes(path) == b"".join(LINES)
    assert await read_bytes(path, LogOptions(limit=100)) == b"".join(LINES)[:100]
    assert await read_bytes(path, LogOptions(tail=60, limit=100)) == b"".join(LINES[-60:])[:100]
    stamped = (await read_bytes(path, LogOptions(timestamps=True))).splitlines()
    middle = datetime.fromisoformat(stamped[50].split(b" ")[0].decode()[:26]).replace(tzinfo=UTC)
    since = await read_bytes(path, LogOptions(since=middle))
    assert since.endswith(b"".join(LINES[50:]))
    assert len(since) < len(b"".join(LINES))


def test_files_that_are_older_than_asked_for_are_not_read(tmp_path: Path) -> None:
    path = write_log(tmp_path / "0.log", LINES, MANY_FILES)
    (tmp_path / "0.log.1").chmod(0)
    rotated = sorted(tmp_path.glob("0.log.*"))
    for each in rotated:
        os.utime(each, (1000, 1000))
        each.write_bytes(b"9999-01-01T00:00:00Z stdout F from a file that is too old\n")
        os.utime(each, (1000, 1000))
    found = asyncio.run(read_bytes(path, LogOptions(since=datetime(2020, 1, 1, tzinfo=UTC))))
    assert b"too old" not in found
    assert LINES[-1] in found


@pytest.mark.parametrize("lacking", [0, 1])
async def test_what_a_kill_amid_a_rotation_leaves_is_a_log(tmp_path: Path, lacking: int) -> None:
    """Between the rename and the next file there is none at the path itself."""
    path = write_log(tmp_path / "0.log", LINES, MANY_FILES)
    newest = max(int(each.suffix[1:]) for each in tmp_path.glob("0.log.*"))
    path.rename(tmp_path / f"0.log.{newest + 1}")
    if lacking:
        (tmp_path / "0.log.1").unlink()
    assert log_reader.has_log(str(path))
    assert log_reader.logs_in(tmp_path) == [path]
    text = await read_bytes(path)
    assert b"".join(LINES).endswith(text)
    assert (text == b"".join(LINES)) is not bool(lacking)
    assert await read_bytes(path, LogOptions(tail=50)) == b"".join(LINES[-50:])
    assert last_lines(str(path), 2) == "line 98\nline 99"
    log_reader.remove(path)
    assert not log_reader.has_log(str(path))


class Reader:
    """Follows a log; `lines` are those it has."""

    def __init__(self, path: Path) -> None:
        self.size = 0
        self.text = bytearray()
        self.is_over = False
        self._path = path
        self._moved = asyncio.Event()

    async def reach(self, size: int) -> None:
        """Wait until so many bytes have been read."""
        while self.size < size:
            self._moved.clear()
            await self._moved.wait()

    async def run(self) -> None:
        async for chunk in read_log(str(self._path), LogOptions(follow=True), lambda: self.is_over):
            self.text += chunk
            self.size += len(chunk)
            self._moved.set()

    @property
    def lines(self) -> list[bytes]:
        return bytes(self.text).splitlines(keepends=True)


async def test_followers_that_keep_up_have_every_line_once(tmp_path: Path) -> None:
    """The writer waits for them, and rotates some hundred times."""
    path, limits = tmp_path / "0.log", LogLimits(size=64 << 10, files=5)
    log, sent, number = LogFile(str(path), limits), 0, 0
    readers = [Reader(path), Reader(path)]
    async with asyncio.TaskGroup() as group:
        for reader in readers:
            group.create_task(reader.run())
        while sent < 10 << 20:
            chunk = b"".join(b"%d %s\n" % (n, b"x" * (n % 90)) for n in range(number, number + 300))
            number += 300
            for cut in (chunk[:5000], chunk[5000:]):  # also in the middle of a line
                log.write(cut)
                log.flush()
            sent += len(chunk)
            assert disk_usage(tmp_path) <= limits.size * limits.files + len(chunk) * 2
            for reader in readers:
                await reader.reach(sent - 100_000)
        log.close()
        for reader in readers:
            reader.is_over = True
    for reader in readers:
        assert [int(line.split(b" ")[0]) for line in reader.lines] == list(range(number))


async def test_a_follower_that_falls_behind_is_told_so_and_goes_on(tmp_path: Path) -> None:
    """A writer in a thread of its own does not wait; what is read twice or out of order fails."""
    path, limits = tmp_path / "0.log", LogLimits(size=32 << 10, files=3, held=0)
    log, reader, last = LogFile(str(path), limits), Reader(path), 200_000

    def write() -> None:
        for number in range(0, last, 500):
            log.write(b"".join(b"%d\n" % each for each in range(number, number + 500)))
        log.close()
        reader.is_over = True

    writer = threading.Thread(target=write)
    writer.start()
    await reader.run()
    writer.join()
    before, is_gap = -1, True  # it may come after the first files have gone
    for line in reader.lines:
        if line == MISSING.encode() + b"\n":
            is_gap = True
            continue
        assert int(line) > before
        assert is_gap or int(line) == before + 1
        before, is_gap = int(line), False
    assert before == last - 1


async def test_a_reader_that_stands_still_is_told_what_it_missed(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log = LogFile(str(path), LogLimits(size=1000, files=3, held=0))
    log.write(b"first\nbegun")
    log.flush()
    over = False
    chunks = read_log(str(path), LogOptions(follow=True, timestamps=True), lambda: over)
    assert (await anext(chunks)).endswith(b" begun")
    for number in range(300):
        log.write(b"%d\n" % number)
    log.close()
    over = True
    rest = b"".join([chunk async for chunk in chunks]).split(b"\n")
    assert rest[0] == b"0"  # ends the line that had begun: the file was open
    marks = [number for number, line in enumerate(rest) if MISSING.encode() in line]
    assert len(marks) == 1
    assert rest[-2].endswith(b" 299")


async def test_what_a_reader_has_yet_to_read_is_kept_for_it_as_long_as_there_is_room(
    tmp_path: Path,
) -> None:
    """Decision 107: a slow reader has every line, and what was there for it goes after it."""
    path, limits = tmp_path / "0.log", LogLimits(size=1000, files=3, held=20_000)
    log = LogFile(str(path), limits)
    log.write(b"first\n")
    over = False
    chunks = read_log(str(path), LogOptions(follow=True), lambda: over)
    assert await anext(chunks) == b"first\n"
    for number in range(300):
        log.write(b"%d\n" % number)
    assert 10_000 < disk_usage(tmp_path) < 20_000
    over = True
    rest = b"".join([chunk async for chunk in chunks])
    assert rest.split() == [b"%d" % number for number in range(300)]
    for number in range(100):
        log.write(b"%d\n" % number)
    log.close()
    assert disk_usage(tmp_path) < 3500


async def test_a_reader_that_stands_still_costs_no_more_disk_than_is_held(tmp_path: Path) -> None:
    path, limits = tmp_path / "0.log", LogLimits(size=1000, files=3, held=20_000)
    log = LogFile(str(path), limits)
    log.write(b"first\n")
    chunks = read_log(str(path), LogOptions(follow=True), lambda: False)
    assert await anext(chunks) == b"first\n"
    for number in range(3000):
        log.write(b"%d\n" % number)
        assert disk_usage(tmp_path) < 25_000
    await chunks.aclose()
    drop_oldest(str(path), limits)
    assert disk_usage(tmp_path) < 3500
    log.close()


async def test_a_line_without_an_end_is_kept_to_the_limit_and_read_in_pieces(
    tmp_path: Path,
) -> None:
    log = LogFile(str(tmp_path / "0.log"), LogLimits(size=1 << 20, files=3))
    for _ in range(160):
        log.write(b"x" * 65_536)
    log.close()
    assert disk_usage(tmp_path) <= 3 << 20
    pieces = [
        chunk async for chunk in read_log(str(tmp_path / "0.log"), LogOptions(tail=1), lambda: True)
    ]
    assert max(map(len, pieces)) <= 1 << 18
    assert set(b"".join(pieces)) == {ord("x")}
    assert len(last_lines(str(tmp_path / "0.log"))) == 2048


FULL = """
import os, sys
from trainyard.podruntime.log_files import LogFile, LogLimits, drop_oldest
log = LogFile(sys.argv[1] + "/logs/0.log", LogLimits(size=100_000, files=5))
ballast = sys.argv[1] + "/ballast"
with open(ballast, "wb", buffering=0) as file:
    log.write(b"before\\nbegun")
    log.flush()
    try:
        while True:
            file.write(b"0" * 4096)
    except OSError:
        pass
for number in range(20_000):
    log.write(b"lost or not %d\\n" % number)
os.unlink(ballast)
for number in range(100):
    log.write(b"after %d\\n" % number)
log.close()
"""


async def test_on_a_full_disk_output_is_left_out_and_said_so_and_then_goes_on() -> None:
    """Rotation included: it has to make do without room for another file."""
    with on_small_disk(FULL, "size=400k", keep="logs") as (folder, done):
        assert done.returncode == 0, done.stderr
        lines = (await read_bytes(folder / "0.log")).splitlines()
    assert lines[-100:] == [b"after %d" % number for number in range(100)]
    [mark] = [number for number, line in enumerate(lines) if b"are missing here" in line]
    assert b"No space left on device" in lines[mark]
    assert mark < len(lines) - 100
    numbers = [int(line.split()[-1]) for line in lines if line.startswith(b"lost or not")]
    assert numbers == sorted(numbers)


FILES = """
import sys
from trainyard.podruntime.log_files import LogFile, LogLimits, drop_oldest
log = LogFile(sys.argv[1] + "/logs/0.log", LogLimits(size=10_000, files=3))
for number in range(5_000):
    log.write(b"%d\\n" % number)
log.close()
"""


async def test_a_disk_with_no_file_to_spare_is_survived() -> None:
    """Two folders and two files take all inodes: there is none for a third file."""
    with on_small_disk(FILES, "size=1m,nr_inodes=4", keep="logs") as (folder, done):
        assert done.returncode == 0, done.stderr
        assert await read_bytes(folder / "0.log")
