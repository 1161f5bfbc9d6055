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
