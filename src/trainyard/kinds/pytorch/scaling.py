"""How many replicas each type of an elastic PyTorchTrainingJob gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Share(NamedTuple):
    """A type's claim: its `replicas`, and its weight when the job changes its size."""

    replicas: int
    weight: int | None


def allocate(total: int, shares: Sequence[Share]) -> list[int]:
    """Replicas per type, in the order given (the first holds rank 0 and never gets less than 1).

    One type takes all. Types without a weight keep their `replicas`; the others share the rest by
    largest remainder, ties in list order. Without any weight above 0, `replicas` are the weights.
    """
    if len(shares) == 1:
        return [max(total, 1)]
    if not any(share.weight for share in shares):
        shares = [Share(share.replicas, share.replicas) for share in shares]
    fixed = [share.replicas if share.weight is None else 0 for share in shares]
    if sum(fixed) > total:
        fixed = _trim(fixed, total)
    portions = _largest_remainder(total - sum(fixed), [share.weight or 0 for share in shares])
    counts = [a + b for a, b in zip(fixed, portions, strict=True)]
    if counts[0] == 0:
        counts[0] = 1
        if sum(counts) > total:
            counts[counts.index(max(counts[1:]), 1)] -= 1
    return counts


def _trim(counts: list[int], total: int) -> list[int]:
    """Cut from the end, so that the highest ranks go (decision 30)."""
    kept = []
    for count in counts:
        kept.append(min(count, total))
        total -= kept[-1]
    return kept


def _largest_remainder(total: int, weights: Sequence[int]) -> list[int]:
    whole = sum(weights)
    if whole == 0:
        return [0] * len(weights)
    counts = [total * weight // whole for weight in weights]
    remainders = [total * weight % whole for weight in weights]
    order = sorted(range(len(weights)), key=lambda i: (-remainders[i], i))
    for i in order[: total - sum(counts)]:
        counts[i] += 1
    return counts
