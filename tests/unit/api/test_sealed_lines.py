"""What a function returns comes back through a log, in which anybody's text may stand."""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from trainyard.api.errors import CaptureError
from trainyard.api.function_capture import capture
from trainyard.api.remote_calls import PROGRAM, SealedLines
from trainyard.payloads.function_call import FAILURE, MARK, RESULT


class Intruder:
    """Makes a folder in the process that unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def way() -> SealedLines:
    return SealedLines(capture(json.loads, (json.dumps(["x" * 5, 1]),)))


def lines_of(way: SealedLines, folder: Path) -> list[str]:
    """What the program of a replica writes."""
    folder.mkdir()
    for name, content in way.contents.items():
        (folder / name).write_bytes(content)
    command = [sys.executable, "-I", PROGRAM]
    done = subprocess.run(command, cwd=folder, env={}, capture_output=True, text=True, timeout=120)
    return done.stdout.split("\n")[:-1]  # splitlines() cuts at the mark


def long_way() -> SealedLines:
    """Of a function whose result takes several lines."""
    return SealedLines(
        capture(json.loads, (json.dumps(base64.b64encode(os.urandom(9000)).decode()),))
    )


def forged(name: str, value: object) -> str:
    """As it was before there were seals."""
    text = base64.b64encode(zlib.compress(pickle.dumps(value, 4))).decode()
    return f"{name} 1/1 {text}"


def test_a_result_comes_back_and_is_not_shown(way: SealedLines, tmp_path: Path) -> None:
    lines = lines_of(way, tmp_path / "there")
    assert way.take(["before", *lines, "after"]) == ["before", "after"]
    assert pickle.loads(way.found()[RESULT]) == ["xxxxx", 1]


def test_text_before_a_result_without_a_line_end_is_shown(way: SealedLines, tmp_path: Path) -> None:
    (line,) = lines_of(way, tmp_path / "there")
    assert way.take([f"90 %{line}", f"{MARK}junk{line}"]) == ["90 %", f"{MARK}junk"]
    assert way.found().keys() == {RESULT}


@pytest.mark.parametrize("name", [RESULT, f"{FAILURE}-0", f"{FAILURE}-9", "x"])
def test_printed_text_is_never_unpickled(name: str, way: SealedLines, tmp_path: Path) -> None:
    text = forged(name, Intruder(tmp_path / "owned"))
    identified = text.replace(" ", f" {'0' * 16} ", 1)
    lines = [MARK + text, f"{MARK}{'0' * 64} {identified}", f"{MARK} {identified}"]
    assert way.take(lines) == lines
    assert way.found() == {}
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    "line",
    [MARK, f"{MARK} ", f"{MARK}result", f"{MARK}é ü", f"{MARK}{'0' * 64}", MARK * 3, "\x1e", ""],
)
def test_a_line_that_only_begins_like_a_result_is_shown(line: str, way: SealedLines) -> None:
    assert way.take([line]) == [line]


def test_a_huge_line_is_shown(way: SealedLines) -> None:
    line = f"{MARK}{'0' * 64} result {'0' * 16} 1/1 " + "A" * (1 << 20)
    assert way.take([line]) == [line]


def test_a_line_of_another_run_is_shown(way: SealedLines, tmp_path: Path) -> None:
    other = SealedLines(capture(json.loads, ("[]",)))
    lines = lines_of(other, tmp_path / "there")
    assert way.take(lines) == lines
    assert way.found() == {}


def test_a_changed_or_truncated_line_is_shown(way: SealedLines, tmp_path: Path) -> None:
    (line,) = lines_of(way, tmp_path / "there")
    changed = [
        line[:-1],
        line + "A",
        line.replace(RESULT, f"{FAILURE}-1"),
        line.replace("1/1", "1/2"),
    ]
    assert way.take(changed) == changed
    assert way.found() == {}


def test_a_line_seen_twice_changes_nothing(way: SealedLines, tmp_path: Path) -> None:
    (line,) = lines_of(way, tmp_path / "there")
    assert way.take([line, line]) == []
    assert way.found().keys() == {RESULT}


def test_parts_of_two_results_never_mix(tmp_path: Path) -> None:
    """A replica that restarts sends the same name again; the log may miss a part of the first."""
    way = long_way()
    first, second = (lines_of(way, tmp_path / name) for name in ("first", "second"))
    assert len(first) == len(second) > 2
    way.take([*first[:-1], second[-1]])
    assert way.found() == {}
    way.take(second[:-1])
    assert len(pickle.loads(way.found()[RESULT])) == 12_000


def test_lines_are_short_enough_to_stay_whole_in_a_pipe(tmp_path: Path) -> None:
    """Those of several processes of one replica go through the same pipe (PIPE_BUF, pipe(7))."""
    assert max(map(len, lines_of(long_way(), tmp_path / "there"))) < 4096


def test_what_does_not_fit_into_a_secret_is_refused() -> None:
    with pytest.raises(CaptureError, match="of which a Secret carries 1024"):
        SealedLines(capture(json.loads, ("x" * (1 << 20),)))
