"""Explains stragglers: ranks that are regularly late, so that others wait (decision 287)."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.diagnosis.situation import Cause, Situation
from trainyard.kinds.shared.reasons import Phase
from trainyard.schema.times import duration


def late_ranks(situation: Situation) -> Iterator[Cause]:
    """The job runs, and slower than it might."""
    job = situation.job
    if job.phase != Phase.RUNNING:
        return
    for each in job.stragglers:
        name = situation.replica(str(each.get("replica")))
        pod = situation.pod(str(each.get("replica")))
        place = (f"it runs on {pod.node}",) if pod is not None and pod.node else ()
        since = duration(situation.ago(each.get("since")))
        advice = (
            "look at what that rank has to do more than others (data, logging, evaluation), and at "
            "what else runs where it does"
        )
        yield Cause(
            f"{name} (rank {each.get('rank')}) is late at most collectives, as is known for "
            f"{since}: others wait for it {each.get('latePercent')}% of the time",
            place,
            (
                advice,
                f"`trainyard stacks {job.name}` shows what every rank does",
            ),
        )
