"""Requests of which we want to know what a real API server answers.

A case is a list of steps in a namespace of its own (`{ns}` in paths); every step is answered. Most
are one object with one field set to something unusual, said as dotted path and value.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
JSON, MERGE, STRATEGIC = (
    "application/json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"


class _Gone:
    def __repr__(self) -> str:
        return "-"


GONE = _Gone()
"""The field is to be left out."""
_LONGEST_NAME = 120


@dataclass(frozen=True)
class Step:
    """One request."""

    method: str
    path: str
    body: Any = None
    content_type: str = JSON


@dataclass(frozen=True)
class Case:
    """Requests in one namespace, one after the other."""

    name: str
    steps: Sequence[Step]


def changed(base: Object, changes: Mapping[str, Any]) -> Object:
    """A copy of `base` with values at dotted paths, where a number is an index."""
    obj: Any = copy.deepcopy(base)
    for path, value in changes.items():
        parts = path.split(".")
        place: Any = obj
        for part, following in itertools.pairwise(parts):
            empty: Any = [] if following.isdigit() else {}
            if part.isdigit():
                while len(place) <= int(part):
                    place.append(copy.deepcopy(empty))
                place = place[int(part)]
            else:
                place = place.setdefault(part, empty)
        last = parts[-1].replace("~", ".")
        if value is GONE:
            place.pop(last, None)
        elif last.isdigit():
            place[int(last) :] = [_without_gone(value)]
        else:
            place[last] = _without_gone(value)
    return obj


def _without_gone(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_gone(each) for key, each in value.items() if each is not GONE}
    return [_without_gone(each) for each in value] if isinstance(value, list) else value


def core(resource: str) -> str:
    """The collection of a namespaced resource of the core group."""
    return f"/api/v1/namespaces/{{ns}}/{resource}"


POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "main", "image": "image:1"}]},
}
SERVICE: Object = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "s"},
    "spec": {"ports": [{"port": 80}]},
}
CONFIG_MAP: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
SECRET: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}
CLAIM: Object = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "v"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
}
LEASE: Object = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "l"},
    "spec": {"holderIdentity": "a", "leaseDurationSeconds": 10},
}
EVENT: Object = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "e.1"},
    "involvedObject": {"kind": "Pod", "name": "p", "namespace": "{ns}", "apiVersion": "v1"},
    "reason": "Because",
    "message": "so",
    "type": "Normal",
    "source": {"component": "test"},
    "firstTimestamp": "2026-01-01T00:00:00Z",
    "lastTimestamp": "2026-01-01T00:00:00Z",
    "count": 1,
}
ACCOUNT: Object = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}
COLLECTIONS = {
    "pod": (core("pods"), POD),
    "service": (core("services"), SERVICE),
    "configmap": (core("configmaps"), CONFIG_MAP),
    "secret": (core("secrets"), SECRET),
    "claim": (core("persistentvolumeclaims"), CLAIM),
    "event": (core("events"), EVENT),
    "account": (core("serviceaccounts"), ACCOUNT),
    "lease": ("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", LEASE),
}


def cases(subject: str = "core") -> Iterator[Case]:
    """All about Kubernetes' own kinds (`core`) or about ours (`jobs`), each under its own name."""
    from tests.differential import hostile, jobs

    seen: Counter[str] = Counter()
    core = itertools.chain(_of_core(), hostile.CORE)
    for case in [*jobs.CASES, *hostile.OF_OURS] if subject == "jobs" else core:
        name = case.name[:_LONGEST_NAME]
        seen[name] += 1
        yield Case(f"{name} #{seen[name]}" if seen[name] > 1 else name, case.steps)


def _of_core() -> Iterator[Case]:
    from tests.differential import objects, requests

    for kind, tables in objects.TABLES.items():
        path, base = COLLECTIONS[kind]
        for changes in tables:
            said = " ".join(f"{field}={value!r}" for field, value in changes.items())
            yield Case(f"{kind} {said}", [Step("POST", path, changed(base, changes))])
    yield from requests.CASES
