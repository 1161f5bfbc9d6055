"""What `logs --previous` shows of a pod that has started again in place."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from trainyard.client.attempt_logs import attempt_before

MARK = b"trainyard: attempt %d starts here, after attempt %d in this pod\n"


async def _read(*blocks: bytes, tail: int | None = None) -> bytes:
    async def lines() -> AsyncIterator[bytes]:
        for block in blocks:
            yield block

    return b"".join([line async for line in attempt_before(lines(), tail)])


@pytest.mark.parametrize("stamp", [b"", b"2026-01-01T00:00:00.000000001Z "])
async def test_the_last_attempt_but_one_is_shown(stamp: bytes) -> None:
    log = [b"one\n", MARK % (2, 1), b"two\nof it\n", MARK % (3, 2), b"three\n"]
    text = b"".join(stamp + line for block in log for line in block.splitlines(keepends=True))
    expected = stamp + b"two\n" + stamp + b"of it\n"
    assert await _read(text) == expected
    assert await _read(*text.splitlines(keepends=True)) == expected
    assert await _read(text, tail=1) == stamp + b"of it\n"
    assert await _read(text, tail=0) == b""


async def test_of_one_attempt_there_is_none_before() -> None:
    assert await _read(b"one\nsays trainyard: attempt 2 starts here\n") == b""


async def test_long_attempts_are_whole() -> None:
    long = b"x" * 99 + b"\n"
    assert await _read(*[long * 1000] * 30, MARK % (2, 1), b"two\n") == long * 30_000
