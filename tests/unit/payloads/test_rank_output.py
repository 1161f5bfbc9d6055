"""How the lines of ranks that share a log are told apart."""

from __future__ import annotations

import pytest

from trainyard.payloads.rank_output import LONGEST_BYTES, TaggedLines


@pytest.mark.parametrize(
    ("chunks", "whole", "rest"),
    [
        ([b"a\nb\n"], b"[rank3]: a\n[rank3]: b\n", b""),
        ([b"a", b" b", b"\nc"], b"[rank3]: a b\n", b"[rank3]: c\n"),
        ([b"\n\n"], b"[rank3]: \n[rank3]: \n", b""),
        ([b"50%\r100%\n"], b"[rank3]: 50%\r[rank3]: 100%\n", b""),
        ([b"windows\r\n"], b"[rank3]: windows\n", b""),
        ([b"[rank3]: Traceback\n"], b"[rank3]: Traceback\n", b""),
        ([b"[rank3]:[E Process\n"], b"[rank3]:[E Process\n", b""),
        ([b"[rank4]: of another\n"], b"[rank3]: [rank4]: of another\n", b""),
        ([b"\x1etrainyard: for a program\n"], b"\x1etrainyard: for a program\n", b""),
    ],
)
def test_each_line_is_tagged_once_it_is_whole(
    chunks: list[bytes], whole: bytes, rest: bytes
) -> None:
    lines = TaggedLines("3")
    assert b"".join(map(lines.feed, chunks)) == whole
    assert lines.end() == rest
    assert lines.end() == b""


def test_a_line_without_an_end_is_not_kept_for_ever() -> None:
    lines = TaggedLines("0")
    output = b"".join(lines.feed(b"x" * 1000) for _ in range(200))
    assert len(lines.rest) <= LONGEST_BYTES
    assert output.replace(b"[rank0]: ", b"").replace(b"\n", b"") + lines.rest == b"x" * 200_000
