"""How lines of replicas are printed."""

from __future__ import annotations

import pytest

from trainyard.cli.commands.logs import LogPrinter
from trainyard.client.log_streams import Unfinished


def test_lines_of_several_replicas_are_prefixed(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    show = LogPrinter(is_prefixed=True)
    show.write("worker-0", b"one\ntwo\n")
    show.write("worker-1", b"uno\n")
    assert capfdbinary.readouterr().out.splitlines() == [
        b"[worker-0] one",
        b"[worker-0] two",
        b"[worker-1] uno",
    ]


def test_a_single_replica_is_printed_as_it_is(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    LogPrinter(is_prefixed=False).write("worker-0", b"\xff raw\nrest\n")
    assert capfdbinary.readouterr().out == b"\xff raw\nrest\n"


def test_to_a_pipe_lines_of_several_replicas_are_whole_with_their_carriage_returns(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    LogPrinter(is_prefixed=True).write("worker-0", b"\r10%\r100%\nend\r\n")
    assert capfdbinary.readouterr().out == b"[worker-0] \r10%\r100%\n[worker-0] end\r\n"


def test_on_a_terminal_a_bar_does_not_overwrite_the_name_of_its_replica(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    LogPrinter(is_prefixed=True, is_terminal=True).write("worker-0", b"\r10%\r100%\n")
    assert b"worker-0" in (shown := capfdbinary.readouterr().out)
    assert shown.endswith(b" 100%\n")


def growing(line: bytes) -> Unfinished:
    return lambda start: line[start:]


def test_on_a_terminal_the_only_replicas_line_is_written_as_it_grows(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    show = LogPrinter(is_prefixed=False, is_terminal=True)
    written = []
    for line in (b"\r10%", b"\r10%\r20%", b"\r10%\r20%"):
        show.grow(growing(line))
        written.append(capfdbinary.readouterr().out)
    show.write("worker-0", b"\r10%\r20%\r30%\nnext\n")
    assert [*written, capfdbinary.readouterr().out] == [b"\r10%", b"\r20%", b"", b"\r30%\nnext\n"]
    show.grow(growing(b"\rtwo"))
    assert capfdbinary.readouterr().out == b"\rtwo"


def test_a_line_that_is_read_anew_is_taken_up_where_it_was_and_another_begins_a_line(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    show = LogPrinter(is_prefixed=False, is_terminal=True)
    for line in (b"\r10%\r20%", b"\r1", b"", b"\r10%\r20%\r30%"):
        show.grow(growing(line))
    assert capfdbinary.readouterr().out == b"\r10%\r20%\r30%"
    show.write("worker-0", b"[the rest is missing]\nrest\n")
    assert capfdbinary.readouterr().out == b"\n[the rest is missing]\nrest\n"


@pytest.mark.parametrize(("is_prefixed", "is_terminal"), [(True, True), (False, False)])
def test_elsewhere_nothing_is_written_before_a_line_is_whole(
    is_prefixed: bool, is_terminal: bool, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    show = LogPrinter(is_prefixed=is_prefixed, is_terminal=is_terminal)
    show.grow(growing(b"\r10%"))
    assert capfdbinary.readouterr().out == b""
