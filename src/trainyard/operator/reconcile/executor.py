"""Carries out a plan: status first, then the actions, then the events.

The status is written with the resourceVersion that the plan was computed from. If the job has
changed since, the plan is void and nothing of it is done. So whatever an action depends on (a
counted restart, a terminal condition) is stored before the action happens (decisions 25 and 345).
This has no exception.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from enum import Enum
from itertools import groupby
from typing import Any

from trainyard.kinds.shared.workload import Generated
from trainyard.kube.client import Client
from trainyard.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from trainyard.kube.resources import PODS, SERVICES, Resource
from trainyard.lifecycle.actions import Action, Create, Delete, Patch, Plan
from trainyard.lifecycle.completion.verdicts import UNPROCESSABLE
from trainyard.lifecycle.observed import Owned, Pod
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.reconcile.event_recorder import EventRecorder
from trainyard.operator.reconcile.generated_content import complete_manifest
from trainyard.operator.reconcile.job_records import JobRecord
from trainyard.operator.reconcile.object_cache import ObjectCache
from trainyard.operator.reconcile.refused_creations import RefusedCreations, describe_holder
from trainyard.operator.runtime_context import RuntimeContext
from trainyard.schema.dataclass import dataclass

log = logging.getLogger(__name__)

Child = Pod | Owned

_FIRST_BATCH = 8
_MALFORMED = ("strict decoding error", "cannot be handled as a ")
_SERVER_FAULTS = (ServerError, TooManyRequests, Unauthorized)
"""Errors that are not caused by what was requested; they end the reconcile."""


class ReconcileResult(Enum):
    """How far the executor came with a plan; the names are values of a metric."""

    UNCHANGED = "nothing had to be done"
    DONE = "everything was done"
    STALE = "the job has changed since; plan again when the change has arrived"
    INCOMPLETE = "some creations were refused or met something unexpected; plan again"
    JOB_GONE = "the job does not exist any more"


@dataclass(frozen=True, slots=True)
class ChildResource:
    """A resource that jobs own: its cache, and how to decode its objects."""

    resource: Resource
    store: ObjectCache[Any]
    decode: Callable[[dict[str, Any]], Child]


@dataclass(frozen=True, slots=True)
class ClusterCache:
    """The caches of jobs, by kind, and of the resources that plans may create."""

    jobs: Mapping[str, ObjectCache[JobRecord]]
    children: Mapping[Resource, ChildResource]


class Executor:
    """Carries out plans, and remembers which creations were refused."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        settings: OperatorSettings,
        context: RuntimeContext,
    ) -> None:
        lifecycle = settings.lifecycle
        self.refusals = RefusedCreations(
            context.now, lifecycle.refusal_base_seconds, lifecycle.refusal_max_seconds
        )
        self.recorder = EventRecorder(client, context.now, context.instrumentation, client.quiet)
        self._client = client
        self._jobs = cache.jobs
        self._children = cache.children
        self._reconcile_log = context.reconcile_log
        self._channel = context.channel
        self._instrumentation = context.instrumentation
        self._parallel = settings.parallel_writes

    async def execute(self, job: JobRecord, plan: Plan) -> ReconcileResult:
        """Carry out `plan`. Raises `KubeError` when the server cannot be reached or fails.

        A refused deletion or patch does not hold up the other actions; it is raised at the end.
        """
        if plan.status is not None:
            stored = await self._write_status(job, plan)
            if isinstance(stored, ReconcileResult):
                return stored
            job = stored
        elif _recreates_dependents(plan) and not await self._still_exists(job):
            return ReconcileResult.JOB_GONE
        try:
            complete = await self._act(job, plan.actions)
        finally:
            # What the stored status says has happened, even if the actions fail.
            if plan.status is not None or not plan.actions:
                self.recorder.emit(job, plan.events)
        if plan.status is None and plan.actions and complete:
            self.recorder.emit(job, plan.events)
        if not complete:
            return ReconcileResult.INCOMPLETE
        return (
            ReconcileResult.DONE
            if plan.actions or plan.status is not None
            else ReconcileResult.UNCHANGED
        )

    async def _write_status(self, job: JobRecord, plan: Plan) -> JobRecord | ReconcileResult:
        """Write the status; returns the job as stored, or why the plan is void."""
        body = {**job.raw, "status": plan.status}
        write = self._client.replace(job.kind.resource, body, subresource="status")
        try:
            stored = await self._request(job, f"status of {job.kind.plural}/{job.name}", write)
        except NotFound:
            self._jobs[job.kind.kind].forget(job)
            return ReconcileResult.JOB_GONE
        except Conflict:
            return ReconcileResult.STALE
        record = JobRecord.decode(job.kind, stored)
        self._jobs[job.kind.kind].record_own_write(record)
        self._instrumentation.status_stored(job, record, plan)
        return record

    async def _still_exists(self, job: JobRecord) -> bool:
        """Whether the server still has the job; a watch that has fallen silent does not tell."""
        read = self._client.get(job.kind.resource, job.name, job.namespace)
        try:
            found = (await self._request(job, f"get {job.kind.plural}/{job.name}", read))[
                "metadata"
            ]
        except NotFound:
            found = {}
        if found.get("uid") != job.uid:
            self._jobs[job.kind.kind].forget(job)
        return found.get("uid") == job.uid and "deletionTimestamp" not in found

    async def _act(self, job: JobRecord, actions: Sequence[Action]) -> bool:
        refused: list[ApiError] = []
        for _, group in groupby(actions, key=_parallel_group):
            if not await self._act_in_parallel(job, list(group), refused):
                return False
        if refused:
            raise refused[0]
        return True

    async def _act_in_parallel(
        self, job: JobRecord, actions: Sequence[Action], refused: list[ApiError]
    ) -> bool:
        """Actions of one group, in batches that double: a refusal then costs few requests."""
        first = 1 if self.refusals.refusals_of(job.uid) else _FIRST_BATCH
        for batch in batches(actions, first, self._parallel):
            if not all(await gather([self._perform(job, action, refused) for action in batch])):
                return False
        return True

    async def _perform(self, job: JobRecord, action: Action, refused: list[ApiError]) -> bool:
        """Carry out one action; returns whether the following ones may go ahead."""
        if isinstance(action, Create):
            return await self._create(job, action)
        try:
            if isinstance(action, Patch):
                return await self._patch(job, action)
            if action.uid == job.uid:
                return await self._delete_job(job, action)
            return await self._delete(job, action)
        except _SERVER_FAULTS:
            raise
        except ApiError as error:
            refused.append(error)
            return True

    async def _create(self, job: JobRecord, action: Create) -> bool:
        children = self._children[action.resource]
        try:
            manifest = await complete_manifest(self._client, action, job.uid, self._channel)
            write = self._client.create(
                _with_plural_as_kind(action.resource), manifest, job.namespace
            )
            created = await self._request(job, f"create {_name(action)}", write)
        except AlreadyExists:
            return await self._adopt(job, action, children)
        except _SERVER_FAULTS:
            raise
        except ApiError as error:
            log.warning("%s", error)
            code = UNPROCESSABLE if _is_malformed(error) else error.code
            self.refusals.record_refusal(job.uid, action.resource, action.name, code, str(error))
            return False
        children.store.record_own_write(children.decode(created))
        self._instrumentation.object_created(job, action.resource)
        self.refusals.clear(job.uid, action.resource, action.name)
        return True

    async def _adopt(self, job: JobRecord, action: Create, children: ChildResource) -> bool:
        """The name is taken: by our own earlier creation, or by an object of somebody else.

        That is recorded as a conflict, and the object is left alone (decision 11).
        """
        try:
            raw = await self._get(job, action)
        except NotFound:
            return False
        child = children.decode(raw)
        if action.takes_over_unowned and not raw["metadata"].get("ownerReferences"):
            return await self._patch(job, action.takeover(child.uid))
        if child.owner_uid != job.uid:
            self.refusals.record_conflict(
                job.uid, action.resource, action.name, describe_holder(raw)
            )
            return False
        children.store.record_own_write(child)
        self.refusals.clear(job.uid, action.resource, action.name)
        return not child.deleting

    async def _delete(self, job: JobRecord, action: Delete) -> bool:
        children = self._children[action.resource]
        known = children.store.get(job.namespace, action.name)
        try:
            answer = await self._request_deletion(
                job, action, _with_plural_as_kind(action.resource)
            )
        except (NotFound, Conflict) as error:
            await self._forget_object(job, action, error)
            return True
        if known is None or known.uid != action.uid:
            return True
        metadata = answer.get("metadata") or {}
        if metadata.get("uid") == action.uid and metadata.get("deletionTimestamp"):
            if children.store.get(job.namespace, action.name) is not None:
                children.store.record_own_write(children.decode(answer))
        elif not metadata.get("finalizers"):
            children.store.forget(known)
        return True

    async def _delete_job(self, job: JobRecord, action: Delete) -> bool:
        """Delete the job; it is not planned for again, even if the watch shows its end late."""
        store = self._jobs[job.kind.kind]
        try:
            answer = await self._request_deletion(job, action, job.kind.resource)
        except (NotFound, Conflict) as error:
            await self._raise_if_present(job, action, error)
            store.forget(job)
            return True
        metadata = answer.get("metadata") or {}
        if metadata.get("uid") == job.uid and metadata.get("deletionTimestamp"):
            store.record_own_write(JobRecord.decode(job.kind, answer))
        else:
            store.forget(job)
        return True

    async def _patch(self, job: JobRecord, action: Patch) -> bool:
        children = self._children[action.resource]
        write = self._client.patch(
            _with_plural_as_kind(action.resource),
            action.name,
            action.guarded(),
            job.namespace,
            subresource=action.subresource,
        )
        try:
            patched = await self._request(job, f"patch {_name(action)}", write)
        except Conflict as error:
            if not action.version:
                await self._forget_object(job, action, error)
                return True
            return await self._refresh(job, action)
        except NotFound as error:
            await self._forget_object(job, action, error)
            return True
        children.store.record_own_write(children.decode(patched))
        return True

    async def _refresh(self, job: JobRecord, action: Patch) -> bool:
        """Read an object that somebody else has changed, for the next reconcile."""
        children = self._children[action.resource]
        try:
            children.store.record_own_write(children.decode(await self._get(job, action)))
        except NotFound as error:
            await self._forget_object(job, action, error)
        return False

    async def _forget_object(self, job: JobRecord, action: Delete | Patch, error: ApiError) -> None:
        """The object is gone, or was replaced by another one: its UID does not match."""
        await self._raise_if_present(job, action, error)
        store = self._children[action.resource].store
        known = store.get(job.namespace, action.name)
        if known is not None and known.uid == action.uid:
            store.forget(known)

    async def _raise_if_present(
        self, job: JobRecord, action: Delete | Patch, error: ApiError
    ) -> None:
        """Raise `error` if the object is still there: then another writer was just faster."""
        if isinstance(error, NotFound):
            return
        try:
            found = await self._get(job, action)
        except NotFound:
            return
        if found["metadata"]["uid"] == action.uid:
            raise error

    async def _get(self, job: JobRecord, action: Action) -> dict[str, Any]:
        read = self._client.get(_with_plural_as_kind(action.resource), action.name, job.namespace)
        return await self._request(job, f"get {_name(action)}", read)

    async def _request_deletion(
        self, job: JobRecord, action: Delete, resource: Resource
    ) -> dict[str, Any]:
        write = self._client.delete(
            resource,
            action.name,
            job.namespace,
            uid=action.uid,
            grace_seconds=action.grace_seconds,
            propagation="Background",
        )
        return await self._request(job, f"delete {_name(action)}", write)

    async def _request(
        self, job: JobRecord, what: str, request: Coroutine[Any, Any, dict[str, Any]]
    ) -> dict[str, Any]:
        """The answer to a request; the reconcile log gets a line however it ends."""
        outcome = "cut off"
        try:
            answer = await request
            outcome = "done"
            return answer
        except KubeError as error:
            outcome = f"{type(error).__name__}: {error}"
            raise
        finally:
            if self._reconcile_log is not None:
                self._reconcile_log.log_request(job, what, outcome)


def _recreates_dependents(plan: Plan) -> bool:
    """Whether a plan without a status creates again what a job owns besides its pods.

    If the job is gone, the garbage collector deletes it as often as it is created, so the job is
    looked up first (decision 199). Other creations follow a write of the status, which would fail.
    """
    return any(map(_creates_dependent, plan.actions))


def batches(actions: Sequence[Action], first: int, most: int) -> Iterator[Sequence[Action]]:
    """Slices of `actions`: `first` of them, then twice as many, up to `most` at once."""
    start, size = 0, first
    while start < len(actions):
        yield actions[start : start + size]
        start += size
        size = min(size * 2, most)


async def gather(writes: Sequence[Coroutine[Any, Any, bool]]) -> list[bool]:
    """Run all writes at once; the first error is raised once every one has ended."""
    if len(writes) == 1:
        return [await writes[0]]
    # No TaskGroup: it would cancel the other writes, whose results would then be unknown.
    results = await asyncio.gather(*writes, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result is True for result in results]


def _parallel_group(action: Action) -> tuple[object, object]:
    """Consecutive actions with the same key run in parallel: those of one type on one resource.

    The Secret that pods report with goes with the Services, so that pods do not wait longer."""
    is_channel = isinstance(action, Create) and action.generated is Generated.CHANNEL
    return (SERVICES if is_channel else action.resource, type(action))


def _creates_dependent(action: Action) -> bool:
    return isinstance(action, Create) and action.resource != PODS


def _name(action: Action) -> str:
    return f"{action.resource.plural}/{action.name}"


def _with_plural_as_kind(resource: Resource) -> Resource:
    """So that errors name it by its plural, like the other texts in a job's status."""
    return resource._replace(kind=resource.plural)


def _is_malformed(error: ApiError) -> bool:
    """Whether the server could not decode the object. A webhook that refuses answers 400 as well,
    but may change its mind (decision 10)."""
    return error.code == 400 and any(sign in str(error) for sign in _MALFORMED)
