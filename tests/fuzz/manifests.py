"""Manifests with something changed, read and rendered as `validate` and `run` do."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import yaml

from tests.fuzz import corpus
from tests.fuzz.mutation import mutated, mutated_bytes
from trainyard.composition.kinds_extension import RESOURCES
from trainyard.kinds.kind_registry import KINDS, describe
from trainyard.kinds.shared.job import Job
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.workload import objects
from trainyard.manifest.reader import read
from trainyard.schema.errors import TrainyardError

_RENDERED = 30
"""Objects of one job; of ten thousand replicas all are made in the same way."""


@dataclass(frozen=True)
class Judgement:
    """What became of one manifest."""

    objects: int
    """That would be created for its jobs."""
    problems: int


@cache
def _texts() -> list[bytes]:
    return [path.read_bytes() for path in corpus.EXAMPLES]


@cache
def _documents() -> list[Any]:
    return [each for text in _texts() for each in yaml.safe_load_all(text) if each]


def manifest(rng: random.Random) -> bytes:
    """The text of a manifest."""
    if rng.random() < 0.4:
        return mutated_bytes(rng.choice(_texts()), rng)
    if rng.random() < 0.7:
        documents = [mutated(rng.choice(_documents()), rng, 3)]
    else:
        row = rng.choice([row for row in RESOURCES if row.kind in KINDS])
        documents = [mutated(corpus.valid(row, rng), rng, 3)]
    if rng.random() < 0.1:
        documents.append(mutated(rng.choice(_documents()), rng))
    try:
        text = yaml.dump_all(documents, sort_keys=False, Dumper=_DUMPER)
    except RecursionError:
        return b"[" * 2000
    data: bytes = text.encode("utf-8", "surrogatepass")
    return mutated_bytes(data, rng, 1) if rng.random() < 0.1 else data


_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def judged(data: bytes) -> Judgement:
    """Read a manifest and render its jobs; raises whatever they raise, but for refusals."""
    try:
        result = read(data.decode("utf-8-sig"), "m.yaml")
    except UnicodeDecodeError:
        return Judgement(0, 1)
    for problem in result.problems:
        str(problem)
    if result.errors:
        return Judgement(0, len(result.problems))
    made = 0
    for job in result.jobs:
        made += sum(bool(yaml.dump(each, Dumper=_DUMPER)) for each in _rendered(job))
    return Judgement(made, len(result.problems))


def _rendered(job: Job) -> list[dict[str, Any]]:
    try:
        return list(islice(objects(describe(job, Settings())), _RENDERED))
    except TrainyardError as error:
        raise AssertionError(f"valid, and yet not to be rendered: {error}") from error


def shrunk(data: bytes, failure: type[Exception], tries: int = 500) -> bytes:
    """A manifest with fewer lines that fails alike."""
    lines = data.splitlines(keepends=True)
    size = max(1, len(lines) // 2)
    while size and tries > 0:
        for start in range(0, len(lines), size):
            tries -= 1
            fewer = lines[:start] + lines[start + size :]
            if _fails(b"".join(fewer), failure):
                lines = fewer
                break
        else:
            size //= 2
    return b"".join(lines)


def _fails(data: bytes, failure: type[Exception]) -> bool:
    try:
        judged(data)
    except failure:
        return True
    except Exception:
        return False
    return False
