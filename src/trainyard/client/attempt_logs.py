"""Logs of pods that have started again in place: one log, in which a line parts the attempts."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import IO

_MARK = re.compile(
    rb"(?:\S+ )?trainyard: attempt \d+ starts here, after attempt \d+ in this pod\s*\Z"
)
"""As `payloads/in_place/in_place_supervisor.py` writes it, with a time before it or without."""
_IN_MEMORY = 1 << 20


def last_attempt(lines: Sequence[str]) -> int:
    """The index of the first line of the last attempt in these."""
    marked = (at for at in reversed(range(len(lines))) if _MARK.match(lines[at].encode()))
    return next(marked, -1) + 1


async def attempt_before(lines: AsyncIterator[bytes], tail: int | None) -> AsyncGenerator[bytes]:
    """Lines of the last attempt but one, or the last of these; none where there is one attempt.

    `lines` are whole ones, several at a time. Long attempts are put aside in a file.
    """
    with contextlib.ExitStack() as stack:
        attempts: list[IO[bytes]] = [_piece(stack)]
        async for block in lines:
            for line in block.splitlines(keepends=True):
                if not _MARK.match(line):
                    attempts[-1].write(line)
                    continue
                for old in attempts[:-1]:
                    old.close()
                attempts = [attempts[-1], _piece(stack)]
        if len(attempts) == 1:
            return
        before = attempts[0]
        before.seek(0)
        skipped = 0 if tail is None else max(sum(1 for _ in before) - tail, 0)
        before.seek(0)
        for number, line in enumerate(before):
            if number >= skipped:
                yield line


def _piece(stack: contextlib.ExitStack) -> IO[bytes]:
    return stack.enter_context(tempfile.SpooledTemporaryFile(_IN_MEMORY))
