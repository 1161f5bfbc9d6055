"""Which runs are played: the same ones each time, and some that nobody has seen yet."""

from __future__ import annotations

from collections.abc import Sequence

from tests.new_seeds import IS_SOAK

FIXED = 20_000 if IS_SOAK else 2_000
FRESH = 1_000 if IS_SOAK else 200
CHUNK = 100
FIRST_GENERATION = frozenset(
    {
        *(222, 340, 433, 452, 1954, 2348, 2748, 3192, 3499, 9594, 12443, 17980, 5000624, 6000030),
        *(180263089, 301755391, 676659774),
    }
)
"""Seeds that are drawn as they were when they failed, before launches and the troubles of viewers
were played and disruptions met rules often."""
SECOND_GENERATION = frozenset({77, 8000635, 358016702, 758550509, 812937761})
"""Likewise, from before standbys took over."""
THIRD_GENERATION = frozenset({1626, 1728, 874106316})
"""Likewise, from before restarts had a judge."""
FOURTH_GENERATION = frozenset({20206, 419970178, 419970307})
"""Likewise, from before jobs restarted in place."""
FIFTH_GENERATION = frozenset(
    {
        *(17980, 180263089, 340, 433, 1954, 301755391, 8000635, 3499, 840617974, 976070167),
        *(728611270, 413379829, 47664664, 111534949, 88449988),
    }
)
"""Likewise, from before hangs restarted jobs, and jobs got restarts back as they got on."""


def chunks(seeds: Sequence[int]) -> list[Sequence[int]]:
    """The seeds in portions, each of which is one test."""
    return [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
