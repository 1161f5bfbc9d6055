"""Carries a plan out: status first, then the actions, then the events.

The status is written with the resourceVersion that the plan was computed from. If the job has
moved on, the plan is void and nothing of it is done. So whatever an action depends on (a counted
restart, a terminal condition) is stored before the action happens (decisions 25
and 345). There is no exception to that.
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
_FAULTS_OF_THE_SERVER = (ServerError, TooManyRequests, Unauthorized)
"""Errors that are not about what was asked for."""


class ReconcileResult(Enum):
    """How far a plan came."""

    UNCHANGED = "nothing had to be done"
    DONE = "everything was done"
    STALE = "the job has changed since; plan again when the change has arrived"
    INCOMPLETE = "some creations were refused or met something unexpected; plan again"
    JOB_GONE = "the job does not exist any more"


@dataclass(frozen=True, slots=True)
class ChildResource:
    """Where the objects of one resource are served, kept and decoded."""

    resource: Resource
    store: ObjectCache[Any]
    decode: Callable[[dict[str, Any]], Child]


@dataclass(frozen=True, slots=True)
class ClusterCache:
    """What is known of the cluster: jobs by kind, and the resources that plans may create."""

    jobs: Mapping[str, ObjectCache[JobRecord]]
    children: Mapping[Resource, ChildResource]


class Executor:
    """Carries plans out, and remembers what was refused."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        settings: OperatorSettings,
        host: RuntimeContext,
    ) -> None:
        lifecycle = settings.lifecycle
        self.refusals = RefusedCreations(
            host.now, lifecycle.refusal_base_seconds, lifecycle.refusal_max_seconds
        )
        self.recorder = EventRecorder(client, host.now, host.meter, client.quiet)
        self._client = client
        self._jobs = cache.jobs
        self._children = cache.children
        self._diary = host.diary
        self._channel = host.channel
        self._meter = host.meter
        self._parallel = settings.parallel_writes

    async def execute(self, job: JobRecord, plan: Plan) -> ReconcileResult:
        """Do what `plan` says. Raises `KubeError` when the server cannot be reached or fails.

        A deletion or a change that is refused holds up nothing else; it is raised at the end.
        """
        if plan.status is not None:
            stored = await self._store(job, plan)
            if isinstance(stored, ReconcileResult):
                return stored
            job = stored
        elif _makes_up(plan) and not await self._lives(job):
            return ReconcileResult.JOB_GONE
        try:
            complete = await self._act(job, plan.actions)
        finally:
            # What the stored status says has happened, even if the actions are yet to come.
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

    async def _store(self, job: JobRecord, plan: Plan) -> JobRecord | ReconcileResult:
        """The job with the plan's status, or why the plan is void."""
        body = {**job.raw, "status": plan.status}
        write = self._client.replace(job.kind.resource, body, subresource="status")
        try:
            stored = await self._tell(job, f"status of {job.kind.plural}/{job.name}", write)
        except NotFound:
            self._jobs[job.kind.kind].forget(job)
            return ReconcileResult.JOB_GONE
        except Conflict:
            return ReconcileResult.STALE
        record = JobRecord.decode(job.kind, stored)
        self._jobs[job.kind.kind].wrote(record)
        self._meter.stored(job, record, plan)
        return record

    async def _lives(self, job: JobRecord) -> bool:
        """Whether the server still has the job, which a silent watch would not tell."""
        read = self._client.get(job.kind.resource, job.name, job.namespace)
        try:
            found = (await self._tell(job, f"get {job.kind.plural}/{job.name}", read))["metadata"]
        except NotFound:
            found = {}
        if found.get("uid") != job.uid:
            self._jobs[job.kind.kind].forget(job)
        return found.get("uid") == job.uid and "deletionTimestamp" not in found

    async def _act(self, job: JobRecord, actions: Sequence[Action]) -> bool:
        refused: list[ApiError] = []
        for _, group in groupby(actions, key=_step):
            if not await self._act_in_parallel(job, list(group), refused):
                return False
        if refused:
            raise refused[0]
        return True

    async def _act_in_parallel(
        self, job: JobRecord, actions: Sequence[Action], refused: list[ApiError]
    ) -> bool:
        """Actions of one step, in batches that double: a refusal then costs few requests."""
        first = 1 if self.refusals.refused_to(job.uid) else _FIRST_BATCH
        for batch in batches(actions, first, self._parallel):
            if not all(await gather([self._do(job, action, refused) for action in batch])):
                return False
        return True

    async def _do(self, job: JobRecord, action: Action, refused: list[ApiError]) -> bool:
        """Whether to go on to what comes next."""
        if isinstance(action, Create):
            return await self._create(job, action)
        try:
            if isinstance(action, Patch):
                return await self._patch(job, action)
            if action.uid == job.uid:
                return await self._delete_job(job, action)
            return await self._delete(job, action)
        except _FAULTS_OF_THE_SERVER:
            raise
        except ApiError as error:
            refused.append(error)
            return True

    async def _create(self, job: JobRecord, action: Create) -> bool:
        children = self._children[action.resource]
        try:
            manifest = await complete_manifest(self._client, action, job.uid, self._channel)
            write = self._client.create(_told(action.resource), manifest, job.namespace)
            created = await self._tell(job, f"create {_name(action)}", write)
        except AlreadyExists:
            return await self._adopt(job, action, children)
        except _FAULTS_OF_THE_SERVER:
            raise
        except ApiError as error:
            log.warning("%s", error)
            code = UNPROCESSABLE if _is_malformed(error) else error.code
            self.refusals.refused(job.uid, action.resource, action.name, code, str(error))
            return False
        children.store.wrote(children.decode(created))
        self._meter.created(job, action.resource)
        self.refusals.created(job.uid, action.resource, action.name)
        return True

    async def _adopt(self, job: JobRecord, action: Create, children: ChildResource) -> bool:
        """The name is held: by our own earlier creation, or by someone else's object."""
        # Decision 11.
        try:
            raw = await self._get(job, action)
        except NotFound:
            return False
        child = children.decode(raw)
        if action.adopts and not raw["metadata"].get("ownerReferences"):
            return await self._patch(job, action.takeover(child.uid))
        if child.owner_uid != job.uid:
            self.refusals.taken(job.uid, action.resource, action.name, describe_holder(raw))
            return False
        children.store.wrote(child)
        self.refusals.created(job.uid, action.resource, action.name)
        return not child.deleting

    async def _delete(self, job: JobRecord, action: Delete) -> bool:
        children = self._children[action.resource]
        known = children.store.get(job.namespace, action.name)
        try:
            answer = await self._ask_to_delete(job, action, _told(action.resource))
        except (NotFound, Conflict) as error:
            await self._note_gone(job, action, error)
            return True
        if known is None or known.uid != action.uid:
            return True
        metadata = answer.get("metadata") or {}
        if metadata.get("uid") == action.uid and metadata.get("deletionTimestamp"):
            if children.store.get(job.namespace, action.name) is not None:
                children.store.wrote(children.decode(answer))
        elif not metadata.get("finalizers"):
            children.store.forget(known)
        return True

    async def _delete_job(self, job: JobRecord, action: Delete) -> bool:
        """Delete the job; it is not planned for again, even where the watch tells of it late."""
        store = self._jobs[job.kind.kind]
        try:
            answer = await self._ask_to_delete(job, action, job.kind.resource)
        except (NotFound, Conflict) as error:
            await self._make_sure(job, action, error)
            store.forget(job)
            return True
        metadata = answer.get("metadata") or {}
        if metadata.get("uid") == job.uid and metadata.get("deletionTimestamp"):
            store.wrote(JobRecord.decode(job.kind, answer))
        else:
            store.forget(job)
        return True

    async def _patch(self, job: JobRecord, action: Patch) -> bool:
        children = self._children[action.resource]
        write = self._client.patch(
            _told(action.resource),
            action.name,
            action.guarded(),
            job.namespace,
            subresource=action.subresource,
        )
        try:
            patched = await self._tell(job, f"patch {_name(action)}", write)
        except Conflict as error:
            if not action.version:
                await self._note_gone(job, action, error)
                return True
            return await self._look_again(job, action)
        except NotFound as error:
            await self._note_gone(job, action, error)
            return True
        children.store.wrote(children.decode(patched))
        return True

    async def _look_again(self, job: JobRecord, action: Patch) -> bool:
        """Somebody else has changed the object meanwhile: the next pass sees it as it is now."""
        children = self._children[action.resource]
        try:
            children.store.wrote(children.decode(await self._get(job, action)))
        except NotFound as error:
            await self._note_gone(job, action, error)
        return False

    async def _note_gone(self, job: JobRecord, action: Delete | Patch, error: ApiError) -> None:
        """The object is gone; or, by the UID precondition, gone and replaced by another."""
        await self._make_sure(job, action, error)
        store = self._children[action.resource].store
        known = store.get(job.namespace, action.name)
        if known is not None and known.uid == action.uid:
            store.forget(known)

    async def _make_sure(self, job: JobRecord, action: Delete | Patch, error: ApiError) -> None:
        """Raise `error` if the object is still there: another writer was faster, no more."""
        if isinstance(error, NotFound):
            return
        try:
            found = await self._get(job, action)
        except NotFound:
            return
        if found["metadata"]["uid"] == action.uid:
            raise error

    async def _get(self, job: JobRecord, action: Action) -> dict[str, Any]:
        read = self._client.get(_told(action.resource), action.name, job.namespace)
        return await self._tell(job, f"get {_name(action)}", read)

    async def _ask_to_delete(
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
        return await self._tell(job, f"delete {_name(action)}", write)

    async def _tell(
        self, job: JobRecord, what: str, request: Coroutine[Any, Any, dict[str, Any]]
    ) -> dict[str, Any]:
        """The answer to a request, which the diary hears of however it ends."""
        ended = "cut off"
        try:
            answer = await request
            ended = "done"
            return answer
        except KubeError as error:
            ended = f"{type(error).__name__}: {error}"
            raise
        finally:
            if self._diary is not None:
                self._diary.did(job, what, ended)


def _makes_up(plan: Plan) -> bool:
    """Whether it creates again what a job has besides its pods: the first time, and for every
    pod, a status is written, which fails where the job is gone."""
    # Decision 199: the garbage collector would take it again, as often as it is created.
    return any(map(_is_before_pods, plan.actions))


def batches(actions: Sequence[Action], first: int, most: int) -> Iterator[Sequence[Action]]:
    """A few, then twice as many, up to `most` at once."""
    start, size = 0, first
    while start < len(actions):
        yield actions[start : start + size]
        start += size
        size = min(size * 2, most)


async def gather(writes: Sequence[Coroutine[Any, Any, bool]]) -> list[bool]:
    """All of them; the first error is raised once every one has ended."""
    if len(writes) == 1:
        return [await writes[0]]
    # No TaskGroup: a write that was cut off because another failed would leave its result unknown,
    # and those of a pass that is cut off would end in any order.
    results = await asyncio.gather(*writes, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result is True for result in results]


def _step(action: Action) -> tuple[object, object]:
    """Actions in a row that have this in common go together: those of one resource. What pods need
    to report goes with the Services, so that pods wait no longer for it."""
    is_channel = isinstance(action, Create) and action.generated is Generated.CHANNEL
    return (SERVICES if is_channel else action.resource, type(action))


def _is_before_pods(action: Action) -> bool:
    return isinstance(action, Create) and action.resource != PODS


def _name(action: Action) -> str:
    return f"{action.resource.plural}/{action.name}"


def _told(resource: Resource) -> Resource:
    """As errors that reach a job's status name it: by its plural, like the other texts there."""
    return resource._replace(kind=resource.plural)


def _is_malformed(error: ApiError) -> bool:
    """Whether the server could not read the object: 400 says this, and also that a webhook that
    may change its mind has refused it (decision 10)."""
    return error.code == 400 and any(sign in str(error) for sign in _MALFORMED)
