"""Ranks for which the others wait again and again: a rule over when each came to its collectives.

Only arrivals at one and the same collective are compared, so that slow steps of all, whatever the
reason, come to nothing; and a rank must have been late at most of the last ones, so that no single
one decides. What ranks do between two collectives is told by nobody, so a rank is late by the share
of the time since the collective before for which it kept the usual rank waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trainyard.lifecycle.hang.rank_reports import LEFT, Arrival, RankReport
from trainyard.schema.dataclass import dataclass

LATE_SHARE = 0.05
"""From this share on it was late at a collective."""
NAMED_SHARE, NAMED_VOTE = 0.12, 0.75
"""The usual share, and at how many of the last collectives a rank is late that is named."""
KEPT_SHARE, KEPT_VOTE = 0.06, 0.5
"""And at how many it has to be to stay named."""
WANTED_COLLECTIVES, FEWEST_COLLECTIVES, FEWEST_SECONDS = 16.0, 12.0, 4.0
"""The last collectives are as many as this, of equal length, and not less than these and so long;
else nothing is said."""
PRESENT_SHARE = 0.75
"""Of a group's ranks that tell of arrivals, so many must tell of one at a collective."""
LONGEST_FACTOR = 4.0
"""Times the usual: longer than that no step counts."""
CLOCKS_SECONDS = 0.02
"""By how much clocks of different machines may still differ once their skew is known."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that is late, of the pod of that name; `share` of the time others wait for it."""

    pod: str
    attempt: int
    rank: int
    share: float


@dataclass(frozen=True, slots=True)
class _Collective:
    """One at which most ranks of a group arrived: when, by rank, by one clock."""

    arrived: Mapping[int, float]
    usual: float
    gap: float
    """Seconds since the one before."""

    def lateness(self, rank: int, unsure: float) -> float:
        """As a share of the time since the one before; `unsure`: seconds that may be an error."""
        seconds = self.arrived[rank] - self.usual - unsure
        return min(1.0, max(0.0, seconds / self.gap))


def detect_stragglers(
    ranks: Iterable[RankReport],
    skews: Mapping[str, float],
    before: Iterable[Straggler] | None = None,
) -> tuple[Straggler, ...] | None:
    """The ranks that are late, the latest first; None while too little is known.

    `skews`: seconds to add to each machine's clock; `before`: what was found before.
    """
    groups: dict[str, list[RankReport]] = {}
    for rank in ranks:
        for group in rank.arrivals if rank.kind != LEFT else ():
            groups.setdefault(group, []).append(rank)
    named = {each.rank for each in before or ()}
    found: dict[int, Straggler] = {}
    is_known = False
    for group, members in groups.items():
        last = _last_collectives(_common_collectives(group, members, skews))
        if not last:
            continue
        is_known = True
        unsure = CLOCKS_SECONDS if len({rank.machine for rank in members}) > 1 else 0.0
        for rank in members:
            share = _straggler_share(last, rank.rank, unsure, named=rank.rank in named)
            if share > 0 and share > getattr(found.get(rank.rank), "share", 0):
                found[rank.rank] = Straggler(rank.pod, rank.attempt, rank.rank, share)
    return tuple(sorted(found.values(), key=lambda each: -each.share)) if is_known else None


def _common_collectives(
    group: str, members: Sequence[RankReport], skews: Mapping[str, float]
) -> list[_Collective]:
    """The collectives at which most arrived, oldest first."""
    by_number: dict[int, list[tuple[int, float, Arrival]]] = {}
    for rank in members:
        skew = skews.get(rank.machine, 0.0)
        for each in rank.arrivals[group]:
            by_number.setdefault(each.number, []).append((rank.rank, each.at + skew, each))
    enough = max(2.0, PRESENT_SHARE * len(members))
    found = []
    for _, arrivals in sorted(by_number.items()):
        gap = _lower_median([each.gap for _, _, each in arrivals])
        if len(arrivals) >= enough and gap > 0:
            arrived = {rank: at for rank, at, _ in arrivals}
            found.append(_Collective(arrived, _lower_median(arrived.values()), gap))
    return found


def _last_collectives(common: Sequence[_Collective]) -> list[tuple[_Collective, float]]:
    """As many of the last ones as are wanted, and how much each counts: as it is long, since what
    follows another at once tells nothing. None if these are too few, or not of one run."""
    if not common:
        return []
    gaps = sorted(each.gap for each in common)
    most = gaps[: max(1, len(gaps) * 9 // 10)]
    longest = LONGEST_FACTOR * sum(most) / len(most)
    last: list[tuple[_Collective, float]] = []
    for each in reversed(common):
        last.append((each, min(each.gap, longest)))
        if _effective(last) >= WANTED_COLLECTIVES and _span(last) >= FEWEST_SECONDS:
            break
    if _effective(last) < FEWEST_COLLECTIVES or _span(last) < FEWEST_SECONDS:
        return []
    spreads = [max(each.arrived.values()) - min(each.arrived.values()) for each, _ in last]
    # In what ranks told before and after a restart, the same numbers are other collectives.
    return last if _lower_median(spreads) < _span(last) / 2 else []


def _effective(last: Sequence[tuple[_Collective, float]]) -> float:
    """How many of equal weight they are worth."""
    weights = [weight for _, weight in last]
    return sum(weights) ** 2 / sum(weight**2 for weight in weights)


def _span(last: Sequence[tuple[_Collective, float]]) -> float:
    return last[0][0].usual - last[-1][0].usual


def _straggler_share(
    last: Sequence[tuple[_Collective, float]], rank: int, unsure: float, *, named: bool
) -> float:
    """By how much a rank is late, 0 if it is not to be named."""
    lateness = [(c.lateness(rank, unsure), weight) for c, weight in last if rank in c.arrived]
    whole = sum(weight for _, weight in lateness)
    if 2 * whole < sum(weight for _, weight in last):
        return 0.0
    vote = sum(weight for share, weight in lateness if share >= LATE_SHARE) / whole
    usual = _weighted_median(lateness, whole)
    least_share, least_vote = (KEPT_SHARE, KEPT_VOTE) if named else (NAMED_SHARE, NAMED_VOTE)
    return usual if usual >= least_share and vote >= least_vote else 0.0


def _lower_median(values: Iterable[float]) -> float:
    """The lower of two in the middle."""
    found = sorted(values)
    return found[(len(found) - 1) // 2]


def _weighted_median(values: Iterable[tuple[float, float]], whole: float) -> float:
    """Of values with weights, whose sum is `whole`."""
    below = 0.0
    for value, weight in sorted(values):
        below += weight
        if 2 * below >= whole:
            return value
    return 0.0
