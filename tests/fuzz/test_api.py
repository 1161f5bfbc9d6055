"""No request ends the API server, keeps it from answering, or is answered with a 500."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.fuzz import asks, machine
from tests.fuzz.seeds import BATCH


async def test_every_request_is_answered_and_none_with_a_500(api_seeds: Sequence[int]) -> None:
    statuses: dict[int, int] = {}
    for seed in api_seeds:
        batch = asks.batch(random.Random(seed), BATCH)
        found = await machine.findings(batch, statuses)
        if found:
            smallest = await machine.shrunk(found[0])
            raise AssertionError(
                f"seed {seed}: {found[0].what}\nthe fewest requests for it:\n{smallest}\n"
                f"again: python -m tests.fuzz --seed {seed} --shrink"
            )
    assert statuses.get(201, 0) > len(api_seeds), "hardly anything is valid any more"
    assert statuses.get(422, 0) > len(api_seeds), "hardly anything is invalid any more"


def test_what_follows_an_answer_without_a_body_is_not_judged_with_it() -> None:
    """A request with two heads, of which the first asks for no body."""
    head = b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 9\r\n\r\n"
    refused = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}"
    reader = machine.Reader(without_body=True)
    reader.feed(head + refused)
    assert (reader.status, reader.broken) == (405, "")
