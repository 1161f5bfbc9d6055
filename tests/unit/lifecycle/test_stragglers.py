"""The rule on ranks that are late, over trainings that are played: each rank works for a while, and
comes to a collective that ends when the last of them has come."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from tests.unit.lifecycle.test_hang_detector import rank as told_rank
from tests.unit.lifecycle.world import World, pytorch
from trainyard.lifecycle.hang.rank_reports import MOST_ARRIVALS, Arrival, RankReport
from trainyard.lifecycle.pod_reports import PodReports
from trainyard.lifecycle.straggler.straggler_detector import Straggler, detect_stragglers

Work = Callable[[int, int], float]
"""Seconds that a rank needs for a step."""
RUNS = 40
OBSERVED = {"observe": True}


def trained(
    work: Work,
    steps: int = 30,
    ranks: int = 2,
    *,
    began: float = 0.0,
    follow: int = 0,
    clocks: Mapping[int, float] | None = None,
) -> list[RankReport]:
    """What ranks tell after so many steps, each of one collective that `follow` others follow at
    once; `clocks`: by how much those of other machines are wrong."""
    clocks = clocks or {}
    arrivals: dict[int, list[Arrival]] = {rank: [] for rank in range(ranks)}
    last = dict.fromkeys(range(ranks), began)
    ended, number = began, 0
    for step in range(steps):
        for part in range(1 + follow):
            number += 1
            came = {rank: ended + (0.0 if part else work(rank, step)) for rank in last}
            for rank, at in came.items():
                found = Arrival(number, at + clocks.get(rank, 0.0), max(at - last[rank], 1e-4))
                arrivals[rank].append(found)
            last, ended = came, max(came.values()) + 0.001
    return [
        replace(
            told_rank(rank, "Collecting"),
            machine=f"m{rank}" if clocks else "m",
            arrivals={"0": tuple(found[-MOST_ARRIVALS:])},
        )
        for rank, found in arrivals.items()
    ]


def named(
    ranks: Sequence[RankReport],
    skews: Mapping[str, float] | None = None,
    before: Sequence[Straggler] = (),
) -> list[int] | None:
    found = detect_stragglers(ranks, skews or {}, before)
    return None if found is None else [each.rank for each in found]


def noisy(rng: random.Random, slow: Mapping[int, float], spread: float = 0.1) -> Work:
    """Steps of half a second, which are never alike."""
    return lambda rank, _: 0.5 * slow.get(rank, 1.0) * rng.lognormvariate(0, spread)


def test_a_rank_that_takes_a_third_longer_is_named_within_thirty_steps() -> None:
    rng = random.Random(1)
    right = sum(named(trained(noisy(rng, {1: 1.3}))) == [1] for _ in range(RUNS))
    assert right >= 0.95 * RUNS


@pytest.mark.parametrize(("steps", "found"), [(14, None), (18, [1])])
def test_quick_steps_are_judged_by_four_seconds_of_them(
    steps: int, found: list[int] | None
) -> None:
    """With the time that reports take, a rank is named within thirty of them."""
    assert named(trained(lambda rank, _: 0.26 if rank else 0.2, steps)) == found


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_nobody_is_named_where_all_are_alike(ranks: int) -> None:
    rng = random.Random(2)
    for spread in (0.01, 0.1, 0.4):
        for _ in range(RUNS // 2 if ranks < 64 else 3):
            assert named(trained(noisy(rng, {}, spread), 60, ranks)) == []


def test_of_many_ranks_the_slow_ones_are_named_the_slowest_first() -> None:
    rng = random.Random(3)
    assert named(trained(noisy(rng, {5: 1.3, 11: 1.6}), 40, 16)) == [11, 5]


def test_a_slow_first_batch_names_nobody() -> None:
    for slow in (2.0, 30.0, 600.0):
        found = named(trained(lambda rank, step, s=slow: s if rank and not step else 0.5, 40))  # type: ignore[misc]
        assert not found


def test_a_long_evaluation_now_and_then_names_nobody() -> None:
    def work(rank: int, step: int) -> float:
        return 60.0 if rank == 0 and step % 10 == 9 else 0.5

    for steps in range(12, 60):
        assert not named(trained(work, steps))


def test_a_starved_machine_names_nobody() -> None:
    rng = random.Random(4)
    for _ in range(RUNS):
        load = [rng.uniform(1, 20) for _ in range(60)]
        work = noisy(rng, {}, 0.3)
        assert named(trained(lambda r, s, w=work, f=load: w(r, s) * f[s], 60)) == []  # type: ignore[misc]


def test_what_follows_a_collective_at_once_does_not_hide_who_is_late() -> None:
    rng = random.Random(5)
    # Of 64 collectives 16 are at the end of a step.
    assert named(trained(noisy(rng, {1: 1.4}), 60, follow=3)) == [1]
    assert named(trained(noisy(rng, {}), 60, follow=3)) == []


def test_clocks_of_other_machines_are_put_right_first() -> None:
    rng = random.Random(6)
    clocks = {0: 0.0, 1: 3600.0}
    skews = {"m0": 0.004, "m1": -3599.99}
    assert named(trained(noisy(rng, {}), 40, clocks=clocks), skews) == []
    assert named(trained(noisy(rng, {1: 1.4}), 40, clocks=clocks), skews) == [1]
    # A clock that is a little wrong is no lateness.
    quick = trained(lambda *_: 0.1, 60, clocks=clocks)
    assert named(quick, {"m0": 0.0, "m1": -3599.985}) == []


def test_ranks_of_before_and_after_a_restart_are_not_compared() -> None:
    rng = random.Random(7)
    old, new = (trained(noisy(rng, {}), 40, began=began) for began in (0.0, 23.0))
    assert named([old[1], new[0]]) is None


def test_too_little_is_no_finding() -> None:
    late: Work = lambda rank, _: 0.5 + 0.5 * rank  # noqa: E731
    assert named(trained(late, 8)) is None
    assert named(trained(lambda rank, _: 0.01 + 0.01 * rank, 60)) is None
    assert named(trained(late, 40)[:1]) is None
    assert named([]) is None


def test_who_is_named_stays_so_until_it_keeps_up_and_none_flickers() -> None:
    little: Work = lambda rank, _: 0.5 * (1 + 0.1 * rank)  # noqa: E731
    before = detect_stragglers(trained(lambda rank, _: 0.5 * (1 + 0.3 * rank), 40), {})
    assert before is not None
    assert [each.rank for each in before] == [1]
    assert round(before[0].share, 2) == 0.23
    assert named(trained(little, 40)) == []
    assert named(trained(little, 40), before=before) == [1]
    assert named(trained(lambda *_: 0.5, 40), before=before) == []


# What is told of it.


def late(world: World, number: int, share: float = 0.234, attempt: int = 1) -> Straggler:
    return Straggler(world.name(str(number)), attempt, number, share)


def job_with(*found: int) -> World:
    world = World(pytorch(workers=4, run_policy=OBSERVED)).running()
    world.reports = PodReports(stragglers=tuple(late(world, number) for number in found))
    return world.settle()


def test_who_is_late_is_in_the_status_and_told_once() -> None:
    world = job_with(1)
    assert world.status is not None
    [told] = world.status["stragglers"]
    assert told["replica"] == world.name("1")
    assert (told["rank"], told["latePercent"], told["attempt"]) == (1, 23, 1)
    text = "late at most collectives: others wait for it 23% of the time"
    assert world.messages("Straggler") == [f"worker-1 (rank 1) is {text}."]
    world.reports = PodReports(stragglers=(late(world, 1, 0.4),))
    world.advance(60).settle()
    assert world.status["stragglers"] == [told]
    assert len(world.messages("Straggler")) == 1
    # Another controller, which has not heard anything yet.
    world.reports = PodReports()
    world.advance(60).settle()
    assert world.status["stragglers"] == [told]
    world.reports = PodReports(stragglers=(late(world, 1), late(world, 2)))
    world.advance(60).settle()
    assert world.messages("Straggler")[1:] == [f"worker-2 (rank 2) is {text}."]
    world.reports = PodReports(stragglers=())
    world.advance(60).settle()
    assert "stragglers" not in world.status


def test_the_pod_of_another_attempt_is_another() -> None:
    world = job_with(1)
    world.exit("1", 1).settle()
    assert world.status is not None
    assert "stragglers" not in world.status


def test_eight_are_named_at_most() -> None:
    world = World(pytorch(workers=12, run_policy=OBSERVED)).running()
    world.reports = PodReports(stragglers=tuple(late(world, number) for number in range(1, 12)))
    world.settle()
    assert world.status is not None
    assert len(world.status["stragglers"]) == 8


def test_what_others_wrote_there_is_passed_over() -> None:
    world = job_with(1)
    assert world.status is not None
    for junk in (3, [3], [{}], [{"replica": "x"}]):
        world.status["stragglers"] = junk
        world.reports = PodReports()
        world.advance(1).settle()
        assert "stragglers" not in world.status


def test_who_is_not_observed_is_not_told_of() -> None:
    world = World(pytorch(workers=2, run_policy={"observe": False})).running()
    world.reports = PodReports(stragglers=(late(world, 1),))
    world.settle()
    assert world.status is not None
    assert "stragglers" not in world.status


def late_by(second: float, steps: int = 40) -> Sequence[RankReport]:
    """Two ranks, of which the second takes so much longer."""
    return trained(lambda rank, _: second if rank else 0.5, steps)


def test_who_is_late_is_named_with_its_pod_and_attempt() -> None:
    ranks = [replace(each, attempt=7 + each.rank) for each in late_by(0.75)]
    (late,) = detect_stragglers(ranks, {}) or ()
    assert (late.pod, late.attempt, late.rank) == (ranks[1].pod, 8, 1)


@pytest.mark.parametrize("order", [("quick", "slow"), ("slow", "quick")])
def test_of_several_groups_the_one_counts_in_which_a_rank_is_the_latest(
    order: tuple[str, str],
) -> None:
    shares = {"quick": 0.65, "slow": 0.9}
    alone = {name: detect_stragglers(late_by(seconds), {}) for name, seconds in shares.items()}
    arrivals = {name: [each.arrivals["0"] for each in late_by(s)] for name, s in shares.items()}
    both = [
        replace(each, arrivals={name: arrivals[name][each.rank] for name in order})
        for each in late_by(0.5)
    ]
    assert detect_stragglers(both, {}) == alone["slow"] != alone["quick"]


def test_a_group_of_which_too_little_is_known_hides_no_other() -> None:
    few = [each.arrivals["0"] for each in late_by(0.75, 2)]
    ranks = [
        replace(each, arrivals={"few": few[each.rank], "many": each.arrivals["0"]})
        for each in late_by(0.75)
    ]
    assert named(ranks) == [1]
    assert named([replace(each, arrivals={"few": few[each.rank]}) for each in ranks]) is None
