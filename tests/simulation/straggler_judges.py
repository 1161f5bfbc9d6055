"""The judge of what is said of ranks that are late."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.simulation.reconcile_result import ReconcileResult
from tests.simulation.text_judges import _if, judges

_ONE = re.compile(
    r"(?P<who>\S+) \(rank (?P<rank>\d+)\) is late at most collectives: "
    r"others wait for it (?P<percent>\d+)% of the time"
)


@judges("event Straggler", "Warning", r"(?P<text>.+)\.")
def _late(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    """Who is named is late by what was heard, is there, and was not named before."""
    reported = {each.rank: each for each in result.observed.reports.stragglers or ()}
    before = {(each["rank"], each["attempt"]) for each in result.before.get("stragglers") or ()}
    now = {each["rank"] for each in result.after.get("stragglers") or ()}
    for text in found["text"].split("; "):
        one = _ONE.fullmatch(text)
        if one is None or int(one["rank"]) not in reported:
            yield f"{text!r} was not heard"
            continue
        late = reported[int(one["rank"])]
        pod = result.pods.get(late.pod)
        yield from _if(not late.pod.endswith(f"-{one['who']}"), f"it is {late.pod}")
        yield from _if(abs(100 * late.share - int(one["percent"])) > 1, f"it is {late.share}")
        yield from _if(pod is None or pod.attempt != late.attempt, "its pod is not there")
        yield from _if((late.rank, late.attempt) in before, "it was named before")
        yield from _if(late.rank not in now, "the status does not name it")
