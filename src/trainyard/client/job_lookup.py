"""Finding jobs by name, and their pods."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from trainyard.client.cluster_target import ClusterTarget, CommandError, first_of
from trainyard.client.job_view import Job
from trainyard.client.pod_views import PodView, in_order
from trainyard.kinds.kind_registry import JOB_KINDS, Kind
from trainyard.kinds.shared import labels
from trainyard.kinds.shared.install_commands import command_for_crds
from trainyard.kube.client import Client, Selection
from trainyard.kube.errors import NotFound
from trainyard.kube.resources import PODS

T = TypeVar("T")


class JobNotFound(CommandError):
    """There is no job of the name."""


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
    """The results of concurrent calls, in order; raises what one of them has failed with."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as errors:
        raise first_of(errors) from errors
    return [task.result() for task in tasks]


async def find(target: ClusterTarget, text: str) -> Job:
    """The job that `name` or `kind/name` means; an error unless it is exactly one."""
    prefix, slash, name = text.rpartition("/")
    kinds = [kind_named(prefix)] if slash else list(JOB_KINDS.values())
    if not name:
        raise CommandError(f"{text!r} is not a job; write a name, or kind/name")
    client, namespace = target.client, target.namespace
    calls = [_unless_missing(client.get(kind.resource, name, namespace)) for kind in kinds]
    objects = zip(kinds, await together(calls), strict=True)
    found = [Job(kind, obj) for kind, obj in objects if obj is not None]
    if len(found) > 1:
        listed = ", ".join(f"{job.kind.short_names[0]}/{name}" for job in found)
        raise CommandError(
            f"{name} in namespace {target.namespace} is the name of {len(found)} jobs; "
            f"say which: {listed}"
        )
    if not found:
        raise await _missing(target, kinds, text, name)
    return found[0]


async def _unless_missing(call: Coroutine[Any, Any, T]) -> T | None:
    try:
        return await call
    except NotFound:
        return None


async def _missing(
    target: ClusterTarget, kinds: Sequence[Kind], text: str, name: str
) -> JobNotFound:
    present = await list_jobs(target, target.namespace, kinds)
    close = get_close_matches(name, sorted({job.name for job in present}), n=1)
    what = f"there is no job {text} in namespace {target.namespace} of {target.title}"
    if owner := next((job for job in present if name.startswith(f"{job.base}-")), None):
        replica = owner.replica_of(name)
        return JobNotFound(
            f"{what}; {name} is a pod of {owner.name}: name the job, and the replica by "
            f"`--replica {replica}` where a command has it"
        )
    if close:
        return JobNotFound(f"{what}; did you mean {close[0]}?")
    elsewhere = "`trainyard list -A` lists the jobs of all namespaces"
    return JobNotFound(f"{what}; {elsewhere}")


async def list_jobs(
    target: ClusterTarget,
    namespace: str | None,
    kinds: Iterable[Kind] | None = None,
    selector: str = "",
) -> list[Job]:
    """The jobs of a namespace (None: of all), oldest first; kinds that are not served have none.

    An error when the server knows none of the kinds.
    """
    kinds = list(kinds or JOB_KINDS.values())
    list_ = target.client.list
    calls = [
        _unless_missing(list_(kind.resource, namespace, Selection(selector))) for kind in kinds
    ]
    lists = await together(calls)
    if all(found is None for found in lists):
        raise await unserved(target)
    served = [(kind, found[0]) for kind, found in zip(kinds, lists, strict=True) if found]
    jobs = [Job.listed(kind, item) for kind, items in served for item in items]
    return sorted(jobs, key=lambda job: (job.metadata.get("creationTimestamp", ""), job.name))


async def unserved(target: ClusterTarget) -> CommandError:
    """For a server that knows none of our kinds."""
    install = command_for_crds(await target.client.server_version())
    return CommandError(f"{target.title} does not know trainyard's jobs; install them: `{install}`")


async def pods_of(client: Client, job: Job) -> list[PodView]:
    """The job's pods, in the order of its replicas."""
    pods, _ = await client.list(PODS, job.namespace, Selection(labels.selector(job.uid)))
    return in_order(PodView(pod) for pod in pods)
