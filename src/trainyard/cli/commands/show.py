"""`trainyard show`: one job in full: its state, replicas, attempts and events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from trainyard.api.async_client import AsyncClient
from trainyard.api.job_queries import event_order
from trainyard.api.views import Job, Object, PodView, in_order
from trainyard.cli.goodput_text import goodput_text
from trainyard.cli.job_options import on_job
from trainyard.cli.node_check_text import node_check_text
from trainyard.cli.text_output import (
    document,
    indent,
    phase_text,
    printable,
    progress_text,
    running_text,
    table,
)
from trainyard.kinds.shared.pods.container_roles import INIT
from trainyard.schema.times import age, duration, parse, span

_WIDTH = 14
_EVENTS = 8
_LAUNCHES = 8


@on_job
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="The object as stored.")
async def command(client: AsyncClient, job: Job, output: str | None) -> None:
    """Show one job: phase, conditions, replicas, attempts, events."""
    if output is not None:
        click.echo(document(job.obj, output))
        return
    pods = (await client.get(job)).ordered_pods()
    events = [event async for event in client.events(job)]
    logs = await client.logs_at(job)
    owner = (await client.owners()).get(job.namespace, "")
    origin = (await client.past(job)).origin
    now = datetime.now(UTC)
    click.echo(describe(job, pods, events, now, logs=logs, owner=owner, origin=origin))


def describe(
    job: Job,
    pods: Sequence[PodView],
    events: Sequence[Object],
    now: datetime,
    *,
    logs: str = "",
    owner: str = "",
    origin: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the whole page. `logs` is the folder of the logs on this machine, `owner` the user
    whose job it is, `origin` how it was submitted."""
    parts = [_summary([*_facts(job, now, logs, owner), *origin])]
    parts += [
        f"{title}:\n  {indent(text, 2)}"
        for title, text in (
            ("Conditions", _conditions(job, now)),
            ("Replicas", _replicas(job, pods, now)),
            ("Attempts", _attempts(job, now)),
            ("Events", event_table(job, events[-_EVENTS:], now) if events else ""),
        )
        if text
    ]
    if launch := _replaced(job, pods):
        parts.append(f"Launch, for a shell in the replica (trainyard exec {job.name}):\n{launch}")
    return "\n\n".join(parts)


def _summary(facts: Sequence[tuple[str, Any]]) -> str:
    lines = [
        f"{label + ':':<{_WIDTH}}{indent(str(value), _WIDTH)}"
        for label, value in facts
        if value not in ("", None)
    ]
    return "\n".join(lines)


def _facts(job: Job, now: datetime, logs: str, owner: str) -> Sequence[tuple[str, Any]]:
    status = job.status
    deadline = job.run_policy.get("activeDeadlineSeconds")
    return (
        ("Name", job.name),
        ("Namespace", job.namespace),
        ("Owner", owner),
        ("Kind", job.kind.kind),
        ("Phase", phase_text(job)),
        ("Mode", "pause" if job.is_paused else "debug" if job.is_debugged else ""),
        ("Running", running_text(job)),
        ("Progress", _progress(job, now)),
        ("Metrics", _metrics(job)),
        ("Checkpoint", _checkpoint(job, now)),
        ("Late", _late(job, now)),
        ("Node check", node_check_text(job, now)),
        ("Restarts", job.budget or job.restarts),
        ("Elastic", _elastic(job)),
        ("Queue", job.queue),
        ("Created", _moment(job.metadata.get("creationTimestamp"), now)),
        ("Started", _moment(status.get("startTime"), now)),
        ("Ended", _moment(status.get("completionTime"), now)),
        ("Duration", span(status.get("startTime"), status.get("completionTime"), now)),
        ("Deadline", f"{deadline} s from the start" if deadline else ""),
        ("Goodput", goodput_text(status, now)),
        ("TensorBoard", _tensorboard(job)),
        ("Logs", logs),
    )


def _progress(job: Job, now: datetime) -> str:
    progress = progress_text(job)
    if not progress or job.is_over:
        return progress
    return f"{progress} (told {age(job.progress.get('lastReportTime'), now)} ago)"


def _metrics(job: Job) -> str:
    metrics = job.progress.get("metrics") or ()
    return ", ".join(printable(f"{m.get('name')} {_short(m.get('value'))}") for m in metrics)


def _short(value: object) -> str:
    """A number with five significant digits."""
    try:
        return f"{float(str(value)):.5g}"
    except ValueError:
        return str(value)


def _checkpoint(job: Job, now: datetime) -> str:
    made = job.progress.get("checkpoint") or {}
    if not made:
        return ""
    step = f" of step {made['step']:,}" if made.get("step") is not None else ""
    return printable(f"{made.get('path')}{step}, {age(made.get('time'), now)} ago")


def _late(job: Job, now: datetime) -> str:
    lines = [
        printable(
            f"{job.replica_of(str(each.get('replica')))} (rank {each.get('rank')}), for "
            f"{age(each.get('since'), now)}: others wait for it {each.get('latePercent')}% of the "
            "time"
        )
        for each in job.stragglers
        if not job.is_over
    ]
    return "\n".join(lines)


def _moment(text: str | None, now: datetime) -> str:
    return f"{text[:19]}Z ({age(text, now)} ago)" if text else ""


def _elastic(job: Job) -> str:
    elastic = job.elastic
    if not job.is_elastic:
        return ""
    expected = elastic.get("expectedReplicas", "?")
    bounds = f"{job.min_replicas} to {elastic.get('maxReplicas', expected)}"
    return f"{expected} replicas expected, {bounds} allowed"


def _tensorboard(job: Job) -> str:
    viewer, url = job.viewer, job.viewer_url
    note = str(viewer.get("note") or "")
    if viewer.get("ready") and url:
        return f"{url} ({note})" if viewer.get("type") == "Warning" else url
    return note


def _conditions(job: Job, now: datetime) -> str:
    rows = [
        (
            condition["type"],
            condition["status"],
            condition.get("reason") or "-",
            age(condition.get("lastTransitionTime"), now),
            (condition.get("message") or "").splitlines()[0] if condition.get("message") else "",
        )
        for condition in job.conditions
    ]
    return table(("TYPE", "STATUS", "REASON", "AGE", "MESSAGE"), rows) if rows else ""


def _replicas(job: Job, pods: Sequence[PodView], now: datetime) -> str:
    by_uid = {pod.uid: pod for pod in pods}
    rows = [
        _replica_row(job, replica, by_uid.get(replica.get("uid", "")), now)
        for replica in job.replicas
    ]
    headers = ("REPLICA", "PHASE", "EXIT", "REASON", "NODE", "ADDRESS", "AGE", "POD")
    return table(headers, rows) if rows else ""


def _replica_row(job: Job, replica: Object, pod: PodView | None, now: datetime) -> list[object]:
    containers = [c for c in replica.get("containers") or () if _describes_replica(c)]
    codes = [c for c in containers if c.get("exitCode") is not None]
    reasons = [c["reason"] for c in containers if c.get("reason")]
    return [
        job.replica_of(replica["name"]),
        replica.get("phase"),
        ",".join(str(container["exitCode"]) for container in codes),
        replica.get("reason") or ",".join(dict.fromkeys(reasons)),
        pod.node if pod else "",
        pod.status.get("podIP") if pod else "",
        age(pod.metadata.get("creationTimestamp"), now) if pod else "",
        replica["name"],
    ]


def _describes_replica(container: Object) -> bool:
    """Whether the container's state is its replica's, unlike that of init containers."""
    role = container.get("role")
    return role is None or (role == INIT and bool(container.get("exitCode")))


def _replaced(job: Job, pods: Sequence[PodView]) -> str:
    """The commands that debug mode replaced, unchanged, since they may contain quotes."""
    commands = [
        f"# {job.replica_of(pod.name)}, container {container}:\n{line}"
        for pod in in_order(pods, [str(task.get("type")) for task in job.tasks])
        for container, line in pod.replaced.items()
    ]
    left = len(commands) - _LAUNCHES
    return "\n".join([*commands[:_LAUNCHES], *([f"# and {left} more"] if left > 0 else [])])


def _attempts(job: Job, now: datetime) -> str:
    over = job.status.get("completionTime")
    rows = [
        (
            attempt.get("number"),
            (attempt.get("startTime") or "")[:19].replace("T", " "),
            span(attempt.get("startTime"), attempt.get("endTime") or over, now),
            job.replica_of(attempt.get("replica") or ""),
            attempt.get("exitCode"),
            _end_of(attempt) or _state(attempt, over, now),
        )
        for attempt in job.attempts
    ]
    headers = ("NUMBER", "START", "DURATION", "ENDED BY", "EXIT", "REASON")
    return table(headers, rows) if rows else ""


def _end_of(attempt: Object) -> str:
    """The reason, with the rule that decided on it."""
    return "; ".join(str(attempt[key]) for key in ("reason", "message") if attempt.get(key))


def _state(attempt: Object, over: str | None, now: datetime) -> str:
    if attempt.get("endTime") or over:
        return ""
    start = parse(attempt.get("startTime"))
    return "(not yet)" if start is not None and start > now else "(under way)"


def event_table(job: Job, events: Sequence[Object], now: datetime) -> str:
    """One line per event."""
    rows = []
    for event in events:
        subject = event.get("involvedObject") or {}
        about = job.replica_of(subject.get("name") or "")
        count = event.get("count") or 1
        rows.append(
            (
                duration((now - event_order(event)[0]).total_seconds())
                + (f" (x{count})" if count > 1 else ""),
                event.get("type"),
                event.get("reason"),
                "job" if subject.get("uid") == job.uid else about,
                (event.get("message") or "").strip().replace("\n", " ⏎ "),
            )
        )
    return table(("AGE", "TYPE", "REASON", "ABOUT", "MESSAGE"), rows)
