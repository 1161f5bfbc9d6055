"""No manifest ends or stalls who reads it, and what is valid can be rendered."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz import manifests
from tests.fuzz.seeds import BATCH

LIMIT_SECONDS = 60.0
"""For one manifest; the slowest takes half a second on a slow machine."""


def test_every_manifest_is_judged_and_what_is_valid_is_rendered(
    manifest_seeds: Sequence[int], tmp_path: Path
) -> None:
    rendered = 0
    for seed in manifest_seeds:
        rng = random.Random(seed)
        for _ in range(BATCH):
            text = manifests.manifest(rng)
            started = time.process_time()
            try:
                rendered += manifests.judged(text).objects > 0
                took = time.process_time() - started
                assert took < LIMIT_SECONDS, f"it took {took:.0f} s"
            except Exception as error:
                path = tmp_path / f"{seed}.yaml"
                path.write_bytes(manifests.shrunk(text, type(error)))
                raise AssertionError(
                    f"seed {seed}: {error!r}; again: trainyard render -f {path}"
                ) from error
    assert rendered > len(manifest_seeds), "hardly anything is valid any more"
