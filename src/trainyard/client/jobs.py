"""Finding jobs by name and following them: what all commands that take a JOB share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

from trainyard.client.eventtime import event_order
from trainyard.client.target import CommandError, Target
from trainyard.kinds.shared import labels, names
from trainyard.kinds.table import JOB_KINDS, Kind
from trainyard.kube.client import Client
from trainyard.kube.errors import Gone, NotFound, StreamError
from trainyard.kube.resources import EVENTS, PODS, Resource

Object = dict[str, Any]
T = TypeVar("T")

JOB_HELP = "JOB is a name, or kind/name where two kinds share it (short names: pj, dj, caij, gj)."
_PAUSE_SECONDS = 0.2
_WATCH_SECONDS = 300


class JobNotFound(CommandError):
    """There is no job of the name."""


@dataclass(frozen=True, slots=True)
class Found:
    """A stored job."""

    kind: Kind
    obj: Object

    @property
    def resource(self) -> Resource:
        """Where it is served."""
        return self.kind.resource

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.obj["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.obj["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        """Its UID."""
        return str(self.obj["metadata"]["uid"])

    @property
    def base(self) -> str:
        """What the names of its pods begin with."""
        return names.base_name(self.name, self.uid)

    @property
    def status(self) -> Object:
        """Its status; empty before the controller has seen it."""
        return self.obj.get("status") or {}

    @property
    def phase(self) -> str:
        """Its phase; a job that nobody has looked at is Pending."""
        return str(self.status.get("phase") or "Pending")

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.phase in ("Succeeded", "Failed")

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.namespace}/{self.name}"


def kind_named(text: str) -> Kind:
    """A job kind by name, plural, short name or full resource name, whatever the case."""
    wanted = text.lower()
    for kind in JOB_KINDS.values():
        spellings = {kind.singular, kind.plural, kind.full_name, *kind.short_names}
        if wanted in spellings or wanted == f"{kind.singular}.{kind.group}":
            return kind
    known = ", ".join(f"{kind.kind} ({kind.short_names[0]})" for kind in JOB_KINDS.values())
    raise CommandError(f"there is no job kind {text!r}; the kinds are {known}")


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of concurrent calls, in order."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(call) for call in calls]
    return [task.result() for task in tasks]


async def find(target: Target, text: str) -> Found:
    """The job that `name` or `kind/name` means; an error unless it is exactly one."""
    prefix, slash, name = text.rpartition("/")
    kinds = [kind_named(prefix)] if slash else list(JOB_KINDS.values())
    if not name:
        raise CommandError(f"{text!r} is not a job; write a name, or kind/name")
    found = [job for job in await _read_all(target, kinds, name) if job is not None]
    if len(found) > 1:
        listed = ", ".join(f"{job.kind.short_names[0]}/{name}" for job in found)
        raise CommandError(
            f"{name} in namespace {target.namespace} is the name of {len(found)} jobs; "
            f"say which: {listed}"
        )
    if not found:
        raise await _missing(target, kinds, text, name)
    return found[0]


async def _read_all(target: Target, kinds: Sequence[Kind], name: str) -> list[Found | None]:
    async def read(kind: Kind) -> Found | None:
        try:
            obj = await target.client.get(kind.resource, name, target.namespace)
        except NotFound:
            return None
        return Found(kind, obj)

    return await together([read(kind) for kind in kinds])


async def _missing(target: Target, kinds: Sequence[Kind], text: str, name: str) -> JobNotFound:
    present = await list_jobs(target, target.namespace, kinds)
    close = get_close_matches(name, sorted({job.name for job in present}), n=1)
    what = f"there is no job {text} in namespace {target.namespace} of {target.title}"
    if owner := next((job for job in present if name.startswith(f"{job.base}-")), None):
        replica = replica_of(name, owner)
        return JobNotFound(
            f"{what}; {name} is a pod of {owner.name}: name the job, and the replica by "
            f"`--replica {replica}` where a command has it"
        )
    if close:
        return JobNotFound(f"{what}; did you mean {close[0]}?")
    elsewhere = "`trainyard list -A` lists the jobs of all namespaces"
    return JobNotFound(f"{what}; {elsewhere}")


async def list_jobs(
    target: Target,
    namespace: str | None,
    kinds: Iterable[Kind] | None = None,
    selector: str = "",
) -> list[Found]:
    """The jobs of a namespace (None: of all), oldest first; kinds that are not served have none.

    An error when the server knows none of the kinds.
    """
    kinds = list(kinds or JOB_KINDS.values())

    async def read(kind: Kind) -> list[Found] | None:
        resource = kind.resource
        try:
            items, _ = await target.client.list(resource, namespace, labels=selector)
        except NotFound:
            return None
        # kube-apiserver leaves kind and version out of the items of lists.
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        return [Found(kind, {**head, **item}) for item in items]

    lists = await together([read(kind) for kind in kinds])
    if all(found is None for found in lists):
        raise CommandError(
            f"{target.title} does not know trainyard's jobs; install them with "
            "`trainyard crds | kubectl apply --server-side -f -`"
        )
    jobs = [job for found in lists for job in found or ()]
    return sorted(
        jobs, key=lambda job: (job.obj["metadata"].get("creationTimestamp", ""), job.name)
    )


async def pods_of(client: Client, job: Found) -> list[Object]:
    """The job's pods, in the order of its replicas."""
    pods, _ = await client.list(PODS, job.namespace, labels=labels.selector(job.uid))
    return in_order(pods)


def in_order(pods: Iterable[Object]) -> list[Object]:
    """Pods by replica type and index."""
    return sorted(pods, key=_replica_order)


def _replica_order(pod: Object) -> tuple[str, int, str]:
    marks = pod["metadata"].get("labels") or {}
    index = marks.get(labels.REPLICA_INDEX, "")
    kind = marks.get(labels.REPLICA_TYPE, "")
    return kind, int(index) if index.isdigit() else 0, pod["metadata"]["name"]


def replica_of(pod_name: str, job: Found) -> str:
    """The short name of a replica: its pod's name without what all pods of the job share."""
    return pod_name.removeprefix(f"{job.base}-")


async def events_of(client: Client, job: Found) -> list[Object]:
    """Events about the job and everything that it owns, oldest first."""
    events, _ = await client.list(EVENTS, job.namespace)
    return sorted((event for event in events if is_about(event, job)), key=event_order)


def is_about(event: Object, job: Found) -> bool:
    """Whether an event is about the job or something that it owns, even if that is gone."""
    subject = event.get("involvedObject") or {}
    name = str(subject.get("name", ""))
    if subject.get("uid"):
        is_job = bool(subject["uid"] == job.uid)
    else:
        is_job = subject.get("kind") == job.kind.kind and name == job.name
    is_group = subject.get("kind") == "PodGroup" and name == job.name
    return is_job or is_group or name == job.base or name.startswith(f"{job.base}-")


async def snapshots(
    client: Client,
    resource: Resource,
    namespace: str | None,
    *,
    selector: str = "",
    name: str = "",
) -> AsyncGenerator[Mapping[str, Object]]:
    """The selected objects by UID now, and after every change; never ends by itself."""
    fields = f"metadata.name={name}" if name else ""
    while True:
        items, version = await client.list(resource, namespace, labels=selector, fields=fields)
        known = {item["metadata"]["uid"]: item for item in items}
        yield dict(known)
        changes = client.watch(
            resource,
            namespace,
            resource_version=version,
            labels=selector,
            fields=fields,
            timeout_seconds=_WATCH_SECONDS,
        )
        with contextlib.suppress(Gone, StreamError):
            async with contextlib.aclosing(changes) as events:
                async for kind, obj in events:
                    if kind == "BOOKMARK":
                        continue
                    known.pop(obj["metadata"]["uid"], None)
                    if kind != "DELETED":
                        known[obj["metadata"]["uid"]] = obj
                    yield dict(known)
        await asyncio.sleep(_PAUSE_SECONDS)


async def follow(client: Client, job: Found) -> AsyncGenerator[Found | None]:
    """The job now and after every change; None once it is deleted."""
    states = snapshots(client, job.resource, job.namespace, name=job.name)
    head = {"apiVersion": job.kind.api_version, "kind": job.kind.kind}
    async with contextlib.aclosing(states):
        async for present in states:
            obj = present.get(job.uid)
            yield None if obj is None else Found(job.kind, {**head, **obj})
