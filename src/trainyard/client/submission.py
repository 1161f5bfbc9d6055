"""Put the objects of a manifest into a cluster: what jobs need first, then the jobs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.client import job_dependents, submission_records
from trainyard.client.cluster_target import ClusterTarget, CommandError
from trainyard.client.job_lookup import list_jobs, unserved
from trainyard.client.job_view import Job
from trainyard.client.provenance import SubmissionContext, record, state_of
from trainyard.kinds.kind_registry import JOB_KINDS, KINDS
from trainyard.kinds.shared import labels
from trainyard.kinds.shared.install_commands import command_for_crds
from trainyard.kube import embedded_contract
from trainyard.kube.client import Client
from trainyard.kube.errors import AlreadyExists, KubeError, NotFound
from trainyard.kube.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    SECRETS,
    SERVICES,
    Resource,
)
from trainyard.machine import interpreters
from trainyard.schema.dataclass import dataclass

if TYPE_CHECKING:
    from trainyard.manifest.reader import Document

_Prepared = tuple[Resource, dict[str, Any]]
_AT_ONCE = 32
"""Jobs that are checked or created in parallel."""
_CORE = {
    resource.kind: resource
    for resource in (NAMESPACES, SECRETS, CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, SERVICES)
}


def resource_of(kind: str) -> Resource:
    """Where objects of a kind that manifests may hold are served; raises CommandError."""
    if kind in _CORE:
        return _CORE[kind]
    if kind in KINDS:
        return KINDS[kind].resource
    raise CommandError(f"cannot submit a {kind}: take it out of the file, or use kubectl")


@dataclass(frozen=True, slots=True)
class StandIns:
    """What of this machine stands for what jobs name: for the embedded cluster (decision 156)."""

    volumes: Mapping[str, str] = field(default_factory=dict)
    """Claims to folders."""
    images: tuple[tuple[str, str], ...] = ()
    """Patterns of images and environments; the first match counts."""
    python: str | None = None
    """The interpreter of the jobs; None: what the caller's shell would run (decision 120)."""

    def annotations(self) -> dict[str, str]:
        """What jobs carry of it."""
        python = interpreters.active_interpreter(os.environ) if self.python is None else self.python
        lines = "\n".join(f"{pattern}={folder}" for pattern, folder in self.images)
        found = {
            labels.PYTHON: python,
            labels.IMAGES: lines,
            labels.SEARCH_PATHS: embedded_contract.search_paths(os.environ),
        }
        return {name: value for name, value in found.items() if value}


_NONE = StandIns()
_NOTHING = SubmissionContext()


async def submit(
    target: ClusterTarget,
    documents: Iterable[Document],
    stand_ins: StandIns = _NONE,
    context: SubmissionContext = _NOTHING,
) -> list[Job]:
    """Apply everything that is no job, then create the jobs in the order of the file.

    Namespaces that are named and absent are made on the embedded cluster, which nobody else uses.
    Of jobs that exist already, none is touched. ``context`` is what is recorded beside the rest.
    """
    ordered = sorted(documents, key=lambda document: _rank(document.kind))
    prepared = []
    for document in ordered:
        resource = resource_of(document.kind)
        body = _prepared(document, resource, target.namespace)
        if target.socket and resource.kind in JOB_KINDS:
            annotations = body["metadata"]["annotations"]
            body["metadata"]["annotations"] = {**stand_ins.annotations(), **annotations}
        prepared.append((resource, body))
    ready = [(resource, job_dependents.with_values(body)) for resource, body in prepared]
    recording = record(target, [body for _, body in prepared], context)
    try:
        created = await _put(target, ready, stand_ins.volumes)
    except BaseException:
        if sum(resource.kind in JOB_KINDS for resource, _ in prepared) == 1:
            recording.discard()  # of several some may be there
        raise
    recording.name(created)
    await _forget_old_records(target)
    return created


async def _put(
    target: ClusterTarget,
    prepared: Sequence[_Prepared],
    volumes: Mapping[str, str],
) -> list[Job]:
    client = target.client
    if target.socket:
        await _create_namespaces(client, [body for _, body in prepared])
    jobs = [each for each in prepared if each[0].kind in JOB_KINDS]
    if jobs and not target.socket:
        for some in _batches(jobs):
            await asyncio.gather(*(_check_definition(target, *each) for each in some))
    dependents = await _provide(client, prepared[: len(prepared) - len(jobs)], jobs)
    for namespace in {body["metadata"]["namespace"] for _, body in jobs}:
        for claim, folder in volumes.items():
            await _stand_for(client, namespace, claim, folder)
    return await _create_all(client, jobs, dependents)


async def _create_all(
    client: Client, jobs: Sequence[_Prepared], dependents: dict[tuple[str, str], list[_Prepared]]
) -> list[Job]:
    """Create the jobs and make each the owner of what it brought; raises what one failed with."""
    created: list[Job] = []
    failures: list[BaseException] = []
    for some in _batches(jobs):
        calls = [_create(client, *each) for each in some]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        created += [each for each in outcomes if isinstance(each, Job)]
        if failures := [each for each in outcomes if isinstance(each, BaseException)]:
            break
    for made in created:
        for dependent in dependents.pop((made.namespace, made.name), ()):
            await job_dependents.set_owner(client, *dependent, made)
    if failures:
        await _withdraw(client, jobs, dependents)
        raise failures[0]
    return created


async def _withdraw(
    client: Client, jobs: Iterable[_Prepared], dependents: Mapping[tuple[str, str], list[_Prepared]]
) -> None:
    """Delete what was brought for jobs that are not there."""
    for resource, body in jobs:
        namespace, name = _key(body)
        left = dependents.get((namespace, name), [])
        try:
            if left:
                await client.get(resource, name, namespace)
        except NotFound:
            for dependent in left:
                await job_dependents.delete(client, *dependent)
        except KubeError:
            continue  # it may be there


def _batches(jobs: Sequence[_Prepared]) -> Iterator[Sequence[_Prepared]]:
    return (jobs[start : start + _AT_ONCE] for start in range(0, len(jobs), _AT_ONCE))


async def _provide(
    client: Client, others: Iterable[_Prepared], jobs: Sequence[_Prepared]
) -> dict[tuple[str, str], list[_Prepared]]:
    """Apply what jobs need; what brings scripts among it, by namespace and name of their job."""
    dependents: dict[tuple[str, str], list[_Prepared]] = {}
    for resource, body in others:
        job = next((each for each in jobs if _brings(body, each[1])), None)
        if job is None:
            await _apply(client, resource, body)
            continue
        await _check_absent(client, *job)
        await job_dependents.create(client, resource, body)
        dependents.setdefault(_key(job[1]), []).append((resource, body))
    return dependents


def _key(body: dict[str, Any]) -> tuple[str, str]:
    return body["metadata"]["namespace"], body["metadata"].get("name", "")


def _brings(body: dict[str, Any], job: dict[str, Any]) -> bool:
    """Whether an object brings the script or function of this job."""
    name = job_dependents.owner_of(body)
    return bool(name) and _key(job) == (body["metadata"].get("namespace"), name)


async def _forget_old_records(target: ClusterTarget) -> None:
    state = state_of(target)
    if state is None or not submission_records.is_crowded(state):
        return
    jobs = await list_jobs(target, None) if target.folder else []
    names = {(job.metadata.get("annotations") or {}).get(labels.RECORD, "") for job in jobs}
    submission_records.forget(state, names)


def _rank(kind: str) -> int:
    if kind == NAMESPACES.kind:
        return 0
    return 2 if kind in JOB_KINDS else 1


def _prepared(document: Document, resource: Resource, namespace: str) -> dict[str, Any]:
    body = dict(document.raw)
    body["metadata"] = metadata = dict(body.get("metadata") or {})
    if resource.namespaced:
        metadata.setdefault("namespace", namespace)
    if document.kind in JOB_KINDS:
        annotations = metadata.get("annotations") or {}
        folder = str(_folder_of(document.file))
        metadata["annotations"] = {labels.WORKING_DIR: folder, **annotations}
    return body


def _folder_of(file: str) -> Path:
    """Where a manifest lies; of one that comes through a pipe, as by `<(…)`, where its user is."""
    path = Path(file).absolute()
    is_stream = path.parts[1:2] in (("dev",), ("proc",)) or not path.is_file()
    return Path.cwd() if is_stream else path.parent.resolve()


async def _create(client: Client, resource: Resource, body: dict[str, Any]) -> Job:
    try:
        return Job(JOB_KINDS[resource.kind], await client.create(resource, body))
    except AlreadyExists as error:
        raise _taken(resource, body) from error


async def _check_definition(
    target: ClusterTarget, resource: Resource, body: dict[str, Any]
) -> None:
    """Raise CommandError where the server does not know the kind or a field that the job has.

    Before it gets what belongs to the job. Servers before 1.25 drop fields without a word.
    """
    try:
        stored = await target.client.create(resource, body, dry_run=True)
    except NotFound as error:
        if not error.reason:  # the path, and not the namespace
            raise await unserved(target) from error
        return
    except KubeError:
        return  # such as without the right to create: creation tells
    if dropped := list(_dropped(body.get("spec"), stored.get("spec"), "spec")):
        install = command_for_crds(await target.client.server_version())
        raise CommandError(
            f"the definition of {resource.full_name} in {target.title} is older than this "
            f"trainyard and does not know {', '.join(dropped)}; apply that of this trainyard "
            f"(`{install}`) or leave the field out"
        )


def _dropped(sent: Any, stored: Any, path: str) -> Iterator[str]:
    """The fields that a server has left out."""
    if isinstance(sent, dict):
        kept = stored if isinstance(stored, dict) else {}
        for name, value in sent.items():
            if name in kept:
                yield from _dropped(value, kept[name], f"{path}.{name}")
            elif value is not None:
                yield f"{path}.{name}"
    elif isinstance(sent, list) and isinstance(stored, list):
        for number, pair in enumerate(zip(sent, stored, strict=False)):
            yield from _dropped(*pair, f"{path}[{number}]")


async def _check_absent(client: Client, resource: Resource, body: dict[str, Any]) -> None:
    """Raise CommandError where the job is there, before its script is replaced."""
    namespace, name = _key(body)
    with suppress(NotFound):
        await client.get(resource, name, namespace)
        raise _taken(resource, body)


def _taken(resource: Resource, body: dict[str, Any]) -> CommandError:
    namespace, name = _key(body)
    where = "" if namespace == "default" else f" -n {namespace}"
    return CommandError(
        f"{resource.kind} {namespace}/{name} already exists; delete it first (trainyard delete "
        f"{name}{where}; `run` and `submit` do with --replace) or give this one another name"
    )


async def _create_namespaces(client: Client, bodies: Iterable[dict[str, Any]]) -> None:
    present, _ = await client.list(NAMESPACES)
    known = {each["metadata"]["name"] for each in present}
    for name in {body["metadata"].get("namespace") or "default" for body in bodies} - known:
        with suppress(AlreadyExists):
            await client.create(NAMESPACES, {"metadata": {"name": name}})


async def _apply(client: Client, resource: Resource, body: dict[str, Any]) -> None:
    try:
        await client.create(resource, body)
    except AlreadyExists:
        metadata = body["metadata"]
        await client.patch(resource, metadata["name"], body, metadata.get("namespace"))


async def _stand_for(client: Client, namespace: str, claim: str, folder: str) -> None:
    """Let a folder stand for a claim, which is made if need be."""
    mark = {"metadata": {"annotations": {labels.FOLDER: folder}}}
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"metadata": {"name": claim, "namespace": namespace, **mark["metadata"]}, "spec": spec}
    try:
        await client.create(PERSISTENT_VOLUME_CLAIMS, body)
    except AlreadyExists:
        await client.patch(PERSISTENT_VOLUME_CLAIMS, claim, mark, namespace)


def with_debug(document: Document) -> Document:
    """The same job in debug mode (decision 29)."""
    spec = dict(document.raw.get("spec") or {})
    run_mode = dict(spec.get("runMode") or {})
    run_mode["debug"] = {**(run_mode.get("debug") or {}), "enabled": True}
    spec["runMode"] = run_mode
    return replace(document, raw={**document.raw, "spec": spec})
