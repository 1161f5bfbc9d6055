"""Explains the node check before a job's start, and its results (decision 295)."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.diagnosis.situation import Cause, Situation
from trainyard.schema.times import duration

EVENT_REASON = "NodeCheck"
"""Of the events that tell the same."""


def in_progress(situation: Situation) -> Iterator[Cause]:
    """No command has started as yet."""
    found = situation.job.node_check
    if found.get("state") == "Checking":
        since = duration(situation.ago(found.get("time")))
        yield Cause(
            f"its nodes are being checked before the commands start, for {since}",
            (str(found.get("message")),),
            ("wait: it takes seconds, and three minutes at most",),
        )


def bad_nodes(situation: Situation) -> Iterator[Cause]:
    """A node did badly, or not all could be tested."""
    job = situation.job
    found = job.node_check
    if found.get("state") == "BadNodes":
        for each in found.get("badNodes") or ():
            avoided = each.get("node") in (found.get("avoided") or ())
            keep = (
                "look at that node; pods of this job are kept off it"
                if avoided
                else "look at that node, or keep the job off it by its template's affinity"
            )
            name = f", {each['node']}," if each.get("node") else ""
            yield Cause(
                f"the node of {situation.replica(str(each.get('replica')))}{name} did badly in the "
                "check before the start",
                (str(each.get("reason")),),
                (keep,),
            )
    elif found.get("state") == "Incomplete":
        yield Cause(
            "the check of its nodes before the start is not complete; it runs all the same",
            (str(found.get("message")),),
            (
                "the image has to have torch, and its replicas must reach each other at any port",
                f"`trainyard logs {job.name}` shows what each replica says of it",
            ),
        )
