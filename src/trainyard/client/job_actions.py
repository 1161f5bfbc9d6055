"""What users do to a job that is there: pause, resume, scale, delete."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from trainyard.client.cluster_target import ClusterTarget, CommandError
from trainyard.client.job_lookup import JobNotFound, find, together
from trainyard.client.job_view import Job
from trainyard.client.object_watcher import follow, watch_pods
from trainyard.client.provenance import keep_end
from trainyard.kube.client import Client
from trainyard.kube.errors import Conflict, NotFound

if TYPE_CHECKING:
    from trainyard.manifest.reader import Document, ReadResult

_REPLACE_SECONDS = 300.0


async def set_paused(client: Client, job: Job, *, paused: bool) -> bool:
    """Switch the pause mode on or off; False if it was so already."""
    if job.is_over:
        word = "paused" if paused else "resumed"
        raise CommandError(
            f"{job} cannot be {word}: it has ended ({job.phase}); create it anew to run it"
        )
    if job.is_paused == paused:
        return False
    await client.patch(job.resource, job.name, pause_patch(job, paused), job.namespace)
    return True


def pause_patch(job: Job, paused: bool) -> dict[str, Any]:
    """A merge patch; of a job stored in the old spelling (`enable`) it removes that key."""
    values: dict[str, Any] = {"enabled": paused}
    if "enable" in job.pause_mode:
        values["enable"] = None
    # The resourceVersion is left out on purpose: the controller writes status all the time.
    return {"spec": {"runMode": {"pause": values}}}


async def scale(client: Client, job: Job, replicas: int) -> int | None:
    """Change the size of an elastic job; the one that it had, None if it had said none."""
    before = check_size(job, replicas)
    if before != replicas:
        patch = {"spec": {"elastic": {"expectedReplicas": replicas}}}
        await client.patch(job.resource, job.name, patch, job.namespace)
    return before


def check_size(job: Job, replicas: int) -> int | None:
    """The present size, where it is known; CommandError when the job cannot have the new one."""
    if not job.kind.elastic:
        raise CommandError(
            f"{job} cannot be scaled: a {job.kind.kind} is never elastic; "
            "create the job anew with other replicas"
        )
    if not job.is_elastic:
        raise CommandError(
            f"{job} cannot be scaled: it is not elastic; create it anew with spec.elastic.enabled"
        )
    if job.is_over:
        raise CommandError(f"{job} cannot be scaled: it has ended ({job.phase})")
    least, most = job.min_replicas, job.elastic.get("maxReplicas")
    if replicas < least or (most is not None and replicas > most):
        raise CommandError(
            f"{job} cannot have {replicas} replicas: spec.elastic allows {least} to {most}"
        )
    return job.elastic.get("expectedReplicas")


class Named(NamedTuple):
    """A job as the user named it; without a namespace, in the one that is chosen."""

    text: str
    namespace: str = ""


def names_in(result: ReadResult) -> list[Named]:
    """The jobs of a manifest."""
    found = [(job.kind, job.metadata) for job in result.jobs]
    return [Named(f"{kind}/{meta.name}", meta.namespace) for kind, meta in found if meta.name]


async def delete(
    client: Client, job: Job, propagation: Literal["Background", "Foreground"] = "Background"
) -> None:
    """Delete a job, and with it all that it owns; one that is gone already is no error.

    With propagation `Foreground` it goes after its pods, which may take their grace period.
    """
    # Deleted or replaced by someone else in between: the job that was meant is gone.
    with contextlib.suppress(NotFound, Conflict):
        await client.delete(
            job.resource, job.name, job.namespace, uid=job.uid, propagation=propagation
        )


async def delete_namesakes(target: ClusterTarget, documents: Iterable[Document]) -> None:
    """Delete the jobs that have the names of those to be submitted, and wait until they and their
    pods are gone; raises CommandError after five minutes."""
    present = []
    for job in (document.job for document in documents if document.job):
        here = replace(target, namespace=job.metadata.namespace or target.namespace)
        with contextlib.suppress(JobNotFound):
            present.append(await find(here, f"{job.kind}/{job.metadata.name}"))
    for old in present:
        keep_end(target, old)
        await delete(target.client, old)
    try:
        async with asyncio.timeout(_REPLACE_SECONDS):
            await together(until_gone(target.client, old) for old in present)
    except TimeoutError:
        raise CommandError(
            f"{', '.join(map(str, present))} and pods are not gone after {_REPLACE_SECONDS:g} s: "
            "`trainyard explain` says what they wait for"
        ) from None


async def until_gone(client: Client, job: Job) -> None:
    """Until a deleted job and all of its pods are gone."""
    async with contextlib.aclosing(follow(client, job)) as states:
        async for state in states:
            if state is None:
                break
    async with contextlib.aclosing(watch_pods(client, job)) as snapshots:
        async for snapshot in snapshots:
            if not snapshot.present:
                return
