"""A recorded job once more: its manifest anew, with changes, and what is different by now."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainyard.client import git_repository, job_dependents
from trainyard.client.cluster_target import CommandError
from trainyard.client.installed_packages import environment_of
from trainyard.client.object_views import Object
from trainyard.client.provenance_lookup import Past
from trainyard.kinds.shared import labels
from trainyard.schema.problems import Path as FieldPath
from trainyard.schema.problems import format_path

_PART = re.compile(r"(?P<dot>\.?)(?:(?P<key>[^.\[\]=\s]+)|\[(?P<index>\d+)\])")
_NUMBERED = re.compile(r"-\d+\Z")
_LONGEST = 40
"""Of a name that `run` makes, and a number goes behind it."""
_RECORDED = (
    labels.RECORD,
    labels.COMMAND,
    labels.SUBMITTED_FROM,
    labels.COMMIT,
    labels.REMOTE,
    labels.INTERPRETER,
    labels.PACKAGES,
    labels.SNAPSHOT_OF,
)
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def parse_path(text: str) -> FieldPath:
    """``spec.replicaSpecs[0].replicas`` as the keys that lead there; raises CommandError."""
    keys: list[str | int] = []
    place = 0
    while match := _PART.match(text, place):
        if match["key"] and bool(match["dot"]) is not bool(keys):
            break
        keys.append(match["key"] or int(match["index"]))
        place = match.end()
    if not keys or place != len(text):
        raise CommandError(
            f"{text!r} is no path of a field: write one such as spec.replicaSpecs[0].replicas"
        )
    return tuple(keys)


def put(obj: Object, path: FieldPath, value: Any) -> None:
    """Change a field, and make the mappings that lead to it; raises CommandError."""
    here: Any = obj
    for number, key in enumerate(path):
        shown = format_path(path[: number + 1])
        is_last = number == len(path) - 1
        if isinstance(key, int):
            if not isinstance(here, list) or key > len(here):
                many = f"{len(here)} entries" if isinstance(here, list) else "no list"
                raise CommandError(f"cannot set {shown}: there is no such entry: it has {many}")
            if key == len(here):
                here.append(None if is_last else {})
        elif not isinstance(here, dict):
            raise CommandError(f"cannot set {shown}: {format_path(path[:number])} is no mapping")
        if is_last:
            here[key] = value
        elif isinstance(key, int):
            here = here[key]
        else:
            here = here.setdefault(key, {})


def objects_of(
    past: Past,
    name: str,
    changes: Mapping[str, Any],
    present: Sequence[Object] = (),
) -> list[Object]:
    """The manifest of a job that does the same under another name, with what it needs beside it.

    `changes` are values by the paths of fields, `present` the objects that go with a job that is
    there. Raises CommandError where there is no such place, or a secret, which is not recorded, is
    missing.
    """
    job = past.job
    parsed = [(parse_path(text), value) for text, value in changes.items()]
    obj: Object = {"apiVersion": job.kind.api_version, "kind": job.kind.kind}
    metadata = {key: job.metadata[key] for key in ("labels",) if job.metadata.get(key)}
    annotations = job.metadata.get("annotations") or {}
    kept = {k: v for k, v in annotations.items() if k not in (*_RECORDED, _APPLIED)}
    if past.has_copy and past.record:
        kept[labels.WORKING_DIR] = str(past.record.code)
    python = past.interpreter.rpartition(" ")[2]
    if python and os.access(python, os.X_OK):
        kept.setdefault(labels.PYTHON, python)
    elif python and kept.get(labels.PYTHON) == python:
        del kept[labels.PYTHON]
    obj["metadata"] = {"name": name, "namespace": job.namespace, **metadata, "annotations": kept}
    recorded = past.record.objects if past.record and not past.is_there else present
    names = job_dependents.names_for(recorded, job.name, name)
    obj["spec"] = job_dependents.with_names(copy.deepcopy(job.spec), names)
    if not past.is_there:
        _restore(past, obj, [path for path, _ in parsed], os.environ)
    for path, value in parsed:
        put(obj, path, value)
    obj["metadata"]["name"] = name
    beside = [each for each in recorded if "spec" not in each or each["kind"] == "Service"]
    return [*(_beside(each, names, name) for each in beside), obj]


def _beside(obj: Object, names: Mapping[tuple[str, str], str], job: str) -> Object:
    """An object of the old job's manifest for the new one, which it goes with if it did with the
    old one."""
    metadata = obj["metadata"]
    if (new := names.get((obj["kind"], metadata.get("name", "")))) is None:
        return obj
    annotations = {**metadata["annotations"], labels.SCRIPT_OF: job}
    return {**obj, "metadata": {**metadata, "name": new, "annotations": annotations}}


def _restore(
    past: Past, obj: Object, given: Sequence[FieldPath], environment: Mapping[str, str]
) -> None:
    """Take what was left out of a record from the environment, or from what is set."""
    left_out = past.record.content.get("leftOut") if past.record else ()
    prefix = f"{past.job.kind.kind} {past.job.name}."
    missing = []
    for text in (each.removeprefix(prefix) for each in left_out or () if each.startswith(prefix)):
        path = parse_path(text)
        if any(path[: len(each)] == each for each in given):
            continue
        holder: Any = obj
        for key in path[:-1]:
            holder = holder[key]
        name = str(holder.get("name", "")) if isinstance(holder, dict) else ""
        if name in environment:
            holder[path[-1]] = environment[name]
        else:
            missing.append(f"{text} ({name})" if name else text)
    if missing:
        raise CommandError(
            f"{', '.join(missing)} of {past.job.name} looked like a secret and was not recorded: "
            "set the variable in this shell, or name the value with --set PATH=VALUE (in Python "
            "changes={PATH: VALUE})"
        )


def new_name(name: str, taken: Collection[str]) -> str:
    """``train-2`` for ``train``, or the next number that is free."""
    stem = _NUMBERED.sub("", name)
    stem = stem if stem in taken else name
    number = 2
    while f"{stem[:_LONGEST].rstrip('-')}-{number}" in taken:
        number += 1
    return f"{stem[:_LONGEST].rstrip('-')}-{number}"


def differences_now(past: Past) -> list[str]:
    """What is not as it was when the job was submitted, in a sentence each."""
    found = [] if past.annotation(labels.SNAPSHOT_OF) else _code_now(past)
    interpreter = past.interpreter
    version, _, python = interpreter.rpartition(" ")
    if not python:
        return found
    if not os.access(python, os.X_OK):
        return [*found, f"the interpreter of then is gone: {python}; the present one runs it"]
    now = environment_of(python)
    if version and now.version != version:
        found.append(f"{python} is Python {now.version} now, and was {version}")
    if past.packages is not None and (difference := packages_text(past.packages, now.packages)):
        found.append(f"packages of {python} differ: {difference}")
    return found


def _code_now(past: Past) -> list[str]:
    commit = past.commit
    folder = (past.record.content.get("folder") if past.record else "") or (
        (past.job.metadata.get("annotations") or {}).get(labels.WORKING_DIR, "")
    )
    if not commit or not folder:
        return []
    now = git_repository.commit_of(Path(folder))
    if now is None or now.commit != commit:
        there = now.commit[:12] if now and now.commit else "in no repository"
        return [f"the code in {folder} is {there} now, and was {commit[:12]}"]
    then, present = past.changes, git_repository.changes_now(Path(folder))
    if then is None or present is None:
        return ["whether the code is the same is not known: git was not ready"]
    if (then.changed, then.diff) != (present.changed, present.diff):
        return [f"what is not committed in {folder} differs from then"]
    return []


def packages_text(before: Sequence[str], after: Sequence[str], most: int = 5) -> str:
    """``numpy 1.26.4 → 2.0.0, torch added``; empty where nothing differs."""
    changes = package_changes(before, after)
    texts = [
        f"{name} {old} → {new}" if old and new else f"{name} {'added' if new else 'removed'}"
        for name, (old, new) in changes.items()
    ]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def package_changes(before: Sequence[str], after: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Version before and after ("" where it was not there) of each package that differs."""
    old, new = (dict(each.split("==", 1) for each in some) for some in (before, after))
    names = sorted(old.keys() | new.keys())
    pairs = {name: (old.get(name, ""), new.get(name, "")) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
