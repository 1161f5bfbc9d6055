"""How lines of replicas are printed."""

from __future__ import annotations

import pytest

from trainyard.cli.logs import Printer


def test_lines_of_several_replicas_are_prefixed(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    show = Printer(is_prefixed=True)
    show.write("worker-0", b"one\ntwo\n")
    show.write("worker-1", b"uno\n")
    assert capfdbinary.readouterr().out.splitlines() == [
        b"[worker-0] one",
        b"[worker-0] two",
        b"[worker-1] uno",
    ]


def test_a_single_replica_is_printed_as_it_is(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    Printer(is_prefixed=False).write("worker-0", b"\xff raw\nrest\n")
    assert capfdbinary.readouterr().out == b"\xff raw\nrest\n"
