"""ConfigMaps and Secrets that bring a script, function or variables to a cluster, and go with
their job (decisions 157 and 372).

Such an object names its job in an annotation, as a manifest cannot know the job's UID; who submits
it makes the job its owner once the job is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from trainyard.client.cluster_target import CommandError
from trainyard.client.job_view import Job
from trainyard.kinds.shared import labels
from trainyard.kube.client import Client
from trainyard.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from trainyard.kube.resources import CONFIG_MAPS, SECRETS, Resource

Object = dict[str, Any]

_RESOURCES = {each.kind: each for each in (CONFIG_MAPS, SECRETS)}
_CONTENTS = ("data", "binaryData", "type")
_REFERENCES = {
    "secretKeyRef": (SECRETS.kind, "name"),
    "secretRef": (SECRETS.kind, "name"),
    "secret": (SECRETS.kind, "secretName"),
    "configMapKeyRef": (CONFIG_MAPS.kind, "name"),
    "configMapRef": (CONFIG_MAPS.kind, "name"),
    "configMap": (CONFIG_MAPS.kind, "name"),
}
"""Fields of a pod that name a Secret or a ConfigMap, and in which key."""


def owner_of(body: Object) -> str:
    """The name of the job to which an object belongs; "" of everything else."""
    annotations = body["metadata"].get("annotations") or {}
    return str(annotations.get(labels.SCRIPT_OF, "")) if body.get("kind") in _RESOURCES else ""


def variables_of(body: Object) -> list[str]:
    """The variables of a shell that a Secret gets its data from; none of everything else."""
    annotations = body["metadata"].get("annotations") or {}
    if body.get("kind") != SECRETS.kind:
        return []
    names = str(annotations.get(labels.VALUES_FROM_SHELL, "")).split(",")
    return [name for name in map(str.strip, names) if name]


def with_values(body: Object) -> Object:
    """A Secret with the values that it gets from this process; everything else as it is.

    Raises CommandError for a variable that is not set here.
    """
    names, metadata = variables_of(body), body["metadata"]
    present = {**(body.get("data") or {}), **(body.get("stringData") or {})}
    values = {name: os.environ.get(name) for name in names if name not in present}
    if missing := [name for name, value in values.items() if value is None]:
        raise CommandError(
            f"set {', '.join(missing)} in this shell: Secret {metadata.get('name')} takes its "
            "values from there, and they are written nowhere else"
        )
    if wrong := [name for name, value in values.items() if not _is_text(value or "")]:
        raise CommandError(f"{', '.join(wrong)} is not UTF-8 text, which is all that a pod takes")
    return {**body, "stringData": {**(body.get("stringData") or {}), **values}} if values else body


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def names_for(objects: Iterable[Object], old: str, new: str) -> dict[tuple[str, str], str]:
    """What objects of a job are called as those of another job, by kind and name."""
    names = ((each["kind"], each["metadata"]["name"]) for each in objects if owner_of(each) == old)
    return {(kind, name): f"{new}-{name.removeprefix(f'{old}-')}" for kind, name in names}


def with_names(value: Any, names: Mapping[tuple[str, str], str]) -> Any:
    """A part of a spec that refers to objects by other names."""
    if isinstance(value, list):
        return [with_names(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    found = {key: with_names(each, names) for key, each in value.items()}
    for field, (kind, key) in _REFERENCES.items():
        reference = found.get(field)
        if isinstance(reference, dict) and (name := names.get((kind, str(reference.get(key))))):
            found[field] = {**reference, key: name}
    return found


async def create(client: Client, resource: Resource, body: Object) -> None:
    """Create the object, in the place of one of an earlier job of that name.

    That one may be waiting to be collected, and must not be taken from under the new job. Raises
    CommandError where what is there is no job's.
    """
    metadata = body["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    with suppress(AlreadyExists):
        await client.create(resource, body)
        return
    with suppress(NotFound, Conflict):
        present = await client.get(resource, name, namespace)
        if not owner_of({**present, "kind": resource.kind}):
            raise CommandError(
                f"{resource.kind} {namespace}/{name} is there and is no job's: give the job "
                f"another name, or take the {resource.kind} out of the manifest"
            )
        await client.delete(resource, name, namespace, uid=present["metadata"]["uid"])
    await client.create(resource, body)


async def delete(client: Client, resource: Resource, body: Object) -> None:
    """Delete the object, whose job came to nothing."""
    with suppress(Forbidden, NotFound):
        await client.delete(resource, body["metadata"]["name"], body["metadata"]["namespace"])


async def objects_with(client: Client, job: Job) -> list[Object]:
    """The objects that go with a job that is there, as a manifest has them, but for those that one
    may not read."""
    found = []
    for kind, name in sorted(set(_references(job.spec))):
        with suppress(Forbidden, NotFound):
            obj = {**await client.get(_RESOURCES[kind], name, job.namespace), "kind": kind}
            if owner_of(obj) == job.name:
                kept = {key: obj["metadata"][key] for key in ("name", "namespace", "annotations")}
                made = {"apiVersion": "v1", "kind": kind, "metadata": kept}
                found.append(made | {key: obj[key] for key in _CONTENTS if key in obj})
    return found


def _references(value: Any) -> Iterator[tuple[str, str]]:
    """Kind and name of the ConfigMaps and Secrets to which a part of a spec refers."""
    if isinstance(value, list):
        for each in value:
            yield from _references(each)
    elif isinstance(value, dict):
        for field, each in value.items():
            kind, key = _REFERENCES.get(field, ("", ""))
            if isinstance(each, dict) and isinstance(name := each.get(key), str):
                yield kind, name
            yield from _references(each)


async def set_owner(client: Client, resource: Resource, body: Object, job: Job) -> None:
    """Let the object be deleted with the job; where one may not say so, it stays."""
    owner = {
        "apiVersion": job.kind.api_version,
        "kind": job.kind.kind,
        "name": job.name,
        "uid": job.uid,
    }
    metadata, patch = body["metadata"], {"metadata": {"ownerReferences": [owner]}}
    with suppress(Forbidden, NotFound):
        await client.patch(resource, metadata["name"], patch, metadata["namespace"])
