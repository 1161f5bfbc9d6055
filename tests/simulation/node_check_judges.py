"""The judges of what is said of the check of nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.simulation.reconcile_result import ENDS, ReconcileResult
from tests.simulation.text_judges import _if, judges

_STATES = {
    "The nodes have passed their check": "Passed",
    "A node did badly in the check before the start": "BadNodes",
    "The check of the nodes is not complete": "Incomplete",
}


@judges("event NodeCheck", "Normal", r"Pods of this job are kept off (?P<nodes>.+) from now on\.")
def _kept_off(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    """Nodes that did badly just now, while others of the job are elsewhere."""
    after, before = result.after.get("nodeCheck") or {}, result.before.get("nodeCheck") or {}
    named, avoided = found["nodes"].split(", "), after.get("avoided") or []
    bad = {each["node"] for each in after.get("badNodes") or () if each.get("avoided")}
    yield from _if(set(named) != bad, f"{bad} did badly")
    yield from _if([*(before.get("avoided") or ()), *named] != avoided, f"it avoids {avoided}")
    yield from _if(len(avoided) > 8, "there are too many")
    yield from _if("avoidanceEnded" in before, "it was to avoid none any more")
    stay = [e["replica"] for e in after["badNodes"] if result.leaves_its_node(e["replica"])]
    stay = [name for name in stay if result.phase not in ENDS and name not in result.raised()]
    # What failed in place first waits until all have been heard.
    in_place = result.spec["runPolicy"].get("restartMode") == "InPlace"
    yield from _if(bool(stay) and not in_place, f"{stay} stays on")
    elsewhere = {pod.node for pod in result.pods.values()} - bad - {""}
    yield from _if(not elsewhere, "no pod is elsewhere")


@judges(
    "event NodeCheck",
    "Warning",
    r"Pods of this job are kept off (?P<nodes>.+) no longer: Pod\[(?P<pod>[^]]+)\] has found no "
    r"other node for 120 s\.",
)
def _kept_off_no_longer(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    """It was kept off them, and found no other node."""
    after, before = result.after.get("nodeCheck") or {}, result.before.get("nodeCheck") or {}
    yield from _if(found["nodes"].split(", ") != before.get("avoided"), f"the status says {before}")
    yield from _if("avoided" in after or "avoidanceEnded" not in after, f"it says {after} now")
    yield from _if(not result.finds_no_node(found["pod"]), f"{result.pods.get(found['pod'])}")


@judges("event NodeCheck", "Normal|Warning", rf"(?P<what>{'|'.join(_STATES)}): (?P<why>.+)\.")
def _checked(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    """It is in the status since now, was asked for, and those named did badly as they said."""
    after, before = result.after.get("nodeCheck") or {}, result.before.get("nodeCheck") or {}
    heard = result.observed.reports.node_checks
    yield from _if(not result.spec["runPolicy"]["nodeCheck"]["enabled"], "nobody asked for it")
    yield from _if(after.get("state") != _STATES[found["what"]], f"the status says {after}")
    yield from _if(after.get("message") != found["why"], f"the status says {after}")
    old = (before.get("attempt"), before.get("state"))
    yield from _if((after.get("attempt"), after.get("state")) == old, "it was told before")
    members = [each["replica"] for each in before.get("members") or ()]
    for each in after.get("badNodes") or ():
        said = heard.get(each["replica"])
        peers = [heard[m] for m in members if m in heard]
        blamed = [p for one in peers for p in one.pairs if p.peer == each["replica"] and p.error]
        own = said is not None and (said.error or said.seconds or any(p.error for p in said.pairs))
        yield from _if(not (blamed or own), f"nobody has said so of {each['replica']}")
        yield from _if(each["replica"] not in members, f"{each['replica']} took no part")
    if after.get("state") == "Passed":
        well = all(m in heard and not heard[m].error for m in members)
        yield from _if(not well, "not all have said that they did well")
