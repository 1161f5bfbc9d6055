"""Judges of what is told of viewers, in their own status and in that of their jobs.

As with jobs (`text_judges.py`), a text that no row knows is untrue by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tests.simulation.judge_registry import JudgeRegistry, _if
from tests.simulation.reconcile_result import ReconcileResult
from tests.simulation.server import Obj
from trainyard.lifecycle import texts
from trainyard.lifecycle.actions import Create, Plan
from trainyard.lifecycle.observed import Container, Observed, Owned, Pod

PAGE = "tensorboard"
"""The container that serves the page; the others bring logs."""
CONDITIONS = ("Ready", "LogsServed")
WARNING_REASONS = ("NotServed", "FetchFailed")


@dataclass(frozen=True)
class Shown:
    """One pass over one viewer: `before` and `after` are its status, `after` as the pass wants."""

    viewer: Obj
    before: Obj
    after: Obj
    observed: Observed
    plan: Plan

    @classmethod
    def of(cls, viewer: Obj, observed: Observed, plan: Plan) -> Shown:
        before = viewer.get("status") or {}
        after = before if plan.status is None else plan.status
        return cls(viewer, before, after, observed, plan)

    @cached_property
    def pod(self) -> Pod | None:
        """The one that serves, if there is one that stays."""
        uid = self.viewer["metadata"]["uid"]
        name = self.viewer["metadata"]["name"]
        own = [p for p in self.observed.pods if p.owner_uid == uid and p.name.startswith(name)]
        return own[0] if own and own[0].deleting is None else None

    @property
    def page(self) -> Container | None:
        return self.pod.container(PAGE) if self.pod else None

    @property
    def fetchers(self) -> Sequence[Container]:
        return [c for c in self.pod.containers if c.name != PAGE] if self.pod else ()


judges = JudgeRegistry[Shown](__file__)


def untrue(shown: Shown) -> Iterator[str]:
    """What a pass says of a viewer and is not so."""
    conditions = {condition["type"]: condition for condition in shown.after.get("conditions") or ()}
    if list(conditions) != [kind for kind in CONDITIONS if kind in conditions]:
        yield f"conditions in the order {list(conditions)}"
    for kind, condition in conditions.items():
        place, text = f"{kind}={condition['status']}", condition["message"]
        for problem in judges.untrue(shown, place, condition["reason"], text):
            yield f"{place} ({condition['reason']}) says {text!r}: {problem}"
    if (shown.after.get("phase") == "Running") != (
        conditions.get("Ready", {}).get("status") == "True"
    ):
        yield f"phase {shown.after.get('phase')}, Ready is {conditions.get('Ready')}"
    for event in shown.plan.events:
        known = [(c["reason"], c["message"]) for c in conditions.values()]
        if (event.reason, event.message) not in known:
            yield f"event {event.reason} says {event.message!r}, and the conditions {known}"
    if shown.after.get("url") and not _services(shown):
        yield f"its page is at {shown.after['url']}, and there is no Service"
    uid = (shown.after.get("pod") or {}).get("reference", {}).get("uid")
    if uid is not None and uid not in {pod.uid for pod in shown.observed.pods}:
        yield f"its pod is told as {shown.after['pod']}, and is not there"


def _services(shown: Shown) -> list[Owned]:
    uid = shown.viewer["metadata"]["uid"]
    owned = shown.observed.owned
    return [o for o in owned if o.resource.plural == "services" and o.owner_uid == uid]


@judges("Ready=False", "Suspended", r"spec\.suspend is true\.")
def _suspended(shown: Shown, _: re.Match[str]) -> Iterator[str]:
    yield from _if(not shown.viewer["spec"].get("suspend"), "it is not")


@judges("Ready=False", "NoLogs", r"the spec names no logs that can be shown; set .+\.")
def _no_logs(shown: Shown, _: re.Match[str]) -> Iterator[str]:
    yield from _if(any(a.resource.plural == "pods" for a in _creates(shown)), "it gets a pod")


@judges("Ready=False", "NameConflict", r"(?P<text>.+)")
def _taken(shown: Shown, found: re.Match[str]) -> Iterator[str]:
    known = [f"{texts.name_taken(each)}." for each in shown.observed.conflicts]
    yield from _if(found["text"] not in known, f"{shown.observed.conflicts}")


@judges("Ready=False", "CreationRefused", r"(?P<text>.+)")
def _refused(shown: Shown, found: re.Match[str]) -> Iterator[str]:
    known = [texts.refused(each) for each in shown.observed.refusals]
    yield from _if(found["text"] not in known, f"{known}")


@judges("Ready=False", "Starting", r"Pod\[(?P<pod>[\w-]+)\] is being created\.")
def _created(shown: Shown, _: re.Match[str]) -> Iterator[str]:
    yield from _if(shown.pod is not None, f"it is there: {shown.pod}")


@judges("Ready=False", "Starting", r"Pod\[(?P<pod>[\w-]+)\] is starting\.")
def _starting(shown: Shown, found: re.Match[str]) -> Iterator[str]:
    yield from _if(shown.pod is None or shown.pod.name != found["pod"], f"{shown.pod}")
    yield from _if(shown.page is not None and shown.page.ready, "it is ready")


@judges("Ready=False", "Unschedulable", r"(?P<text>.+)")
def _unschedulable(shown: Shown, found: re.Match[str]) -> Iterator[str]:
    pod = shown.pod
    is_so = pod is not None and not pod.scheduled and found["text"] == texts.unschedulable(pod)
    yield from _if(not is_so, f"{pod}")


@judges("Ready=True", "Running", r"\w+ runs and can be opened\.")
def _running(shown: Shown, _: re.Match[str]) -> Iterator[str]:
    page = shown.page
    yield from _if(page is None or page.state != "Running" or not page.ready, f"{shown.pod}")


@judges("Ready=False", "ProgramMissing", r"there is no program `.+` in the image .+")
def _missing(shown: Shown, _: re.Match[str]) -> Iterator[str]:
    page = shown.page
    codes = (page.exit_code, page.last_exit_code) if page else ()
    absent = page is not None and ("not found" in page.message or "no such file" in page.message)
    yield from _if(127 not in codes and not absent, f"{shown.pod}")


@judges("Ready=False", "Crashed", r"Pod\[(?P<pod>[\w-]+)\] has failed: (?P<why>\S+)(?: .+)?")
def _failed(shown: Shown, found: re.Match[str]) -> Iterator[str]:
    pod = shown.pod
    is_so = pod is not None and pod.phase in ("Failed", "Succeeded")
    yield from _if(not is_so or found["why"] not in (pod and pod.reason, "Error"), f"{pod}")


@judges("Ready=False", "Crashed", r"\w+ ended with exit code (?P<code>\d+); .+")
def _crashed(shown: Shown, found: re.Match[str]) -> Iterator[str]:
    page = shown.page
    codes = (page.exit_code, page.last_exit_code) if page else ()
    yield from _if(int(found["code"]) not in codes, f"{shown.pod}")


@judges("Ready=False", "Crashed", r"\w+ cannot be started: (?P<why>\S+)(?: .+)?")
def _cannot_start(shown: Shown, found: re.Match[str]) -> Iterator[str]:
    page = shown.page
    is_so = page is not None and page.state == "Waiting" and page.reason == found["why"]
    yield from _if(not is_so, f"{shown.pod}")


@judges("Ready=False", "InvalidSpec", r"the spec is invalid: .+")
def _invalid(shown: Shown, _: re.Match[str]) -> Iterator[str]:
    yield from _if(bool(_creates(shown)), "it is created all the same")


@judges("LogsServed=True", "AllServed", r"All logs that the spec names are shown\.")
def _all_served(shown: Shown, _: re.Match[str]) -> Iterator[str]:
    waiting = [c.name for c in shown.fetchers if not c.ready]
    yield from _if(bool(waiting), f"{waiting} are not ready")


@judges("LogsServed=False", "Fetching", r"Some logs are being fetched\.")
def _fetching(shown: Shown, _: re.Match[str]) -> Iterator[str]:
    failed = [c.name for c in shown.fetchers if c.failed or c.last_exit_code]
    yield from _if(bool(failed), f"{failed} have failed")


@judges("LogsServed=False", "NotServed", r"not shown: (?P<what>.+)")
def _not_served(shown: Shown, _: re.Match[str]) -> Iterator[str]:
    failed = [c.name for c in shown.fetchers if not c.ready and (c.failed or c.last_exit_code)]
    yield from _if(bool(failed), f"{failed} have failed")


@judges("LogsServed=False", "FetchFailed", r"not shown: (?P<what>.+)")
def _fetch_failed(shown: Shown, _: re.Match[str]) -> Iterator[str]:
    waiting = [c.name for c in shown.fetchers if not c.ready]
    yield from _if(not waiting, f"{shown.fetchers}")


def _creates(shown: Shown) -> list[Create]:
    return [action for action in shown.plan.actions if isinstance(action, Create)]


# What the status of a job tells of its viewer.


def _refusal(name: str, result: ReconcileResult) -> str:
    """Why it could not be created the last time."""
    board, observed = ("tensorboards", name), result.observed
    known = {(c.resource.plural, c.name): texts.refused(c) for c in reversed(observed.refusals)}
    known |= {(c.resource.plural, c.name): texts.name_taken_for_job(c) for c in observed.conflicts}
    return known.get(board, "")


def of_link(result: ReconcileResult) -> Iterator[str]:
    """What is untrue about `status.tensorboard`: it tells what the viewer's own status tells."""
    link = result.after.get("tensorboard")
    if (link is not None) != ("tensorboardSpec" in result.spec):
        yield f"tensorboard is told as {link}"
    if link is None:
        return
    name = link["dependent"]["name"]
    seen = (
        o for o in result.observed.owned if (o.resource.plural, o.name) == ("tensorboards", name)
    )
    board = next(seen, None)
    status = dict(board.status) if board else {}
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    runs = status.get("phase") == "Running"
    refused = "" if board else _refusal(name, result)
    why = refused or (conditions.get("Ready") or {}).get("message")
    logs = conditions.get("LogsServed") or {}
    expected = f"TensorBoard [{name}] is {'ready' if runs else 'not ready'}"
    if not runs and why:
        expected += f": {why}"
    if logs.get("status") == "False":
        expected += f"; {logs.get('message', '')}"
    is_warning = refused or status.get("phase") == "Failed" or logs.get("reason") in WARNING_REASONS
    wanted = {
        "note": expected,
        "ready": runs,
        "reason": "DependentReady" if runs else "DependentNotReady",
        "type": "Warning" if is_warning else "Normal",
        "action": "NOP" if board else "Create",
        "url": status.get("url"),
    }
    wrong = {key: link.get(key) for key, value in wanted.items() if link.get(key) != value}
    if wrong or link["dependent"]["uid"] != (board.uid if board else ""):
        yield f"tensorboard tells {wrong}, and it is {status}"
