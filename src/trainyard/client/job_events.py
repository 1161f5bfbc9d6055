"""Kubernetes Events: which are about a job, when they happened, and in which order."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from typing import Any

from trainyard.client.job_view import Job
from trainyard.client.object_views import Object
from trainyard.client.object_watcher import watch
from trainyard.kube.client import Client
from trainyard.kube.resources import EVENTS
from trainyard.schema.times import parse


async def events_of(client: Client, job: Job) -> list[Object]:
    """Events about the job and everything that it owns, oldest first."""
    events, _ = await client.list(EVENTS, job.namespace)
    return sorted((event for event in events if is_about(event, job)), key=event_order)


async def follow_events(client: Client, job: Job) -> AsyncGenerator[Object]:
    """The same, and whatever happens from now on; an event that happens again comes again."""
    seen: set[tuple[str, int]] = set()
    async with contextlib.aclosing(watch(client, EVENTS, job.namespace)) as states:
        async for state in states:
            for event in sorted(state.changed, key=event_order):
                key = (event["metadata"]["uid"], event.get("count") or 1)
                if key not in seen and is_about(event, job):
                    seen.add(key)
                    yield event


def is_about(event: Object, job: Job) -> bool:
    """Whether an event is about the job or something that it owns, even if that is gone."""
    subject = event.get("involvedObject") or {}
    name = str(subject.get("name", ""))
    if subject.get("uid"):
        is_job = bool(subject["uid"] == job.uid)
    else:
        is_job = subject.get("kind") == job.kind.kind and name == job.name
    is_group = subject.get("kind") == "PodGroup" and name == job.name
    return is_job or is_group or name == job.base or name.startswith(f"{job.base}-")


def event_time(event: Mapping[str, Any]) -> datetime:
    """When an event happened last."""
    metadata = event.get("metadata") or {}
    moment = (
        event.get("lastTimestamp") or event.get("eventTime") or metadata.get("creationTimestamp")
    )
    return parse(moment) or datetime.min.replace(tzinfo=UTC)


def event_order(event: Mapping[str, Any]) -> tuple[datetime, int]:
    """A sort key: by the second, and within it by when they were written.

    Kubelets tell whole seconds and the controller fractions; by time alone a container would
    start before its pod was created.
    """
    version = str((event.get("metadata") or {}).get("resourceVersion") or "")
    return event_time(event).replace(microsecond=0), int(version) if version.isdigit() else 0
