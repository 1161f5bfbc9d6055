"""Manifests that nobody should write, and what `trainyard run -f` says of each."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import yaml

from tests.embedded.command_line import Object, job, shell

API = "apiVersion: batch.tensorstack.dev/v1beta1\nkind: PyTorchTrainingJob\n"
HEAD = f"{API}metadata: {{name: deep}}\nspec: "


class Ends(NamedTuple):
    """A job that is run, the phase in which it ends, and what is said of it."""

    manifest: Object
    phase: str
    words: tuple[str, ...] = ()


def _job(name: str, script: str = "echo ran", **changes: Any) -> Object:
    return job(name, shell(script), **changes)


def _with(path: str, value: object, **changes: Any) -> str:
    """A job with one field set."""
    manifest = _job("hostile", **changes)
    *parents, last = path.split(".")
    place: Any = manifest
    for key in parents:
        place = place[int(key) if key.isdigit() else key]
    place[last] = value
    return yaml.safe_dump(manifest)


def _replicas(text: str) -> str:
    return yaml.safe_dump(_job("hostile")).replace("replicas: 1", f"replicas: {text}")


def _volume(volume: Object, mount: Object) -> Object:
    return {
        "pod": {"volumes": [{"name": "v", **volume}]},
        "container": {"volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]},
    }


def _doubling(depth: int) -> str:
    """Text that stands for 9 ** depth values."""
    names = [chr(ord("a") + number) for number in range(depth)]
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for before, name in pairwise(names):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]")
    return "\n".join(lines) + "\n"


_CONTAINER = "spec.replicaSpecs.0.template.spec.containers.0"

REFUSED: dict[str, tuple[str | bytes, str]] = {
    "grows without end": (_doubling(9), "stands for more than 300000 values"),
    "nested lists": (HEAD + "[" * 6000 + "]" * 6000, "nested more than 100 levels deep"),
    "nested mappings": (HEAD + "{a: " * 3000 + "1" + "}" * 3000, "more than 100 levels deep"),
    "a key twice": (yaml.safe_dump(_job("a")) + "spec: {}\n", "duplicate key 'spec'"),
    "code in a tag": ("!!python/object/apply:os.system [exit 1]\n", "must be a mapping"),
    "UTF-16": (yaml.safe_dump(_job("a")).encode("utf-16"), "save it as UTF-8"),
    "no text": (b"apiVersion: \xff\xfe\n", "is not UTF-8 text"),
    "a NUL in the file": (b"apiVersion: v1\x00\n", "control characters are not allowed"),
    "infinite replicas": (_replicas(".inf"), "spec.replicaSpecs[0].replicas: must be an integer"),
    "a number of 5000 digits": (_replicas("9" * 5000), "does not fit a number"),
    "too many replicas": (_replicas("10001"), "at most 10000"),
    "a name that moves the cursor": (
        _with("metadata.name", "\x1b[31mred\x1b[2J"),
        "cannot be a host name",
    ),
    "a path for a namespace": (
        _with("metadata.namespace", "../../etc"),
        "cannot create Namespace ../../etc",
    ),
    "a label with spaces": (_with("metadata.labels", {"bad label!": "x"}), "qualified name"),
    "a time that is none": (
        _with("metadata.creationTimestamp", "yesterday"),
        "'yesterday' is not a time",
    ),
    "status as text": (_with("status", {"conditions": "yes"}), "status.conditions: must be a list"),
    "metadata as text": (API + "metadata: text\n", "metadata: must be a mapping"),
    "a list of lists": (
        yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [{"kind": "List"}]}),
        "unknown kind 'List'",
    ),
    "a volume over everything": (
        yaml.safe_dump(_job("a", **_volume({"emptyDir": {}}, {"mountPath": "/"}))),
        "is the root of the pod",
    ),
    "a way out of a volume": (
        yaml.safe_dump(_job("a", **_volume({"emptyDir": {}}, {"subPath": "../../etc"}))),
        "subPath: must not contain '..'",
    ),
    "a variable's name with =": (
        _with(f"{_CONTAINER}.env", [{"name": "A=B", "value": "x"}]),
        "containers[0].env[0].name: 'A=B' cannot be the name of a variable",
    ),
    "a NUL in a variable": (
        _with(f"{_CONTAINER}.env", [{"name": "A", "value": "x\0y"}]),
        "containers[0].env[0].value: holds a NUL character",
    ),
    "a variable that Linux does not take": (
        _with(f"{_CONTAINER}.env", [{"name": "A", "value": "x" * 200_000}]),
        "containers[0].env[0].value: is longer than the 131072 bytes",
    ),
    "a command without a word": (
        _with(f"{_CONTAINER}.command", [""]),
        "containers[0].command[0]: is empty; name the program",
    ),
    "a NUL in the command": (
        _with(f"{_CONTAINER}.command", ["a\0b"]),
        "containers[0].command[0]: holds a NUL character",
    ),
    "a port that there is not": (
        _with(f"{_CONTAINER}.ports", [{"containerPort": 70000}]),
        "containers[0].ports[0].containerPort: must be between 1 and 65535, is 70000",
    ),
}

_ONCE = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
_GONE = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1234"}
_LIMITED = {"activeDeadlineSeconds": 2}

RUN = (
    Ends(
        job("folder", ["/etc"]),
        "Failed",
        ("cannot run /etc: not an executable file", "make the file executable"),
    ),
    Ends(
        _job("in-a-file", container={"workingDir": "/etc/passwd"}),
        "Failed",
        ("cannot enter working directory /etc/passwd: Not a directory",),
    ),
    Ends(
        job("long", ["/bin/echo", *(["y" * 100_000] * 22)]),
        "Failed",
        ("its arguments and environment are longer than Linux allows",),
    ),
    Ends(
        _job(
            "greedy",
            'exec python3 -c "bytearray(10**9)"',
            container={"resources": {"limits": {"memory": "20Mi"}}},
        ),
        "Failed",
        ("OOMKilled", "it used more memory than it may"),
    ),
    Ends(
        _job(
            "no-such-grace",
            "trap '' TERM; while :; do sleep 1; done",
            pod={"terminationGracePeriodSeconds": -1},
            runPolicy=_LIMITED,
        ),
        "Failed",
        ("it ran longer than its deadline of 2 s",),
    ),
    Ends(
        _job(
            "deaf",
            "trap '' TERM; while :; do sleep 1; done",
            pod={"terminationGracePeriodSeconds": 10**9},
            runPolicy=_LIMITED,
        ),
        "Failed",
        ("it ran longer than its deadline of 2 s",),
    ),
    Ends(
        _job(
            "lingers",
            "sleep 100",
            runPolicy=_LIMITED,
            pod={"terminationGracePeriodSeconds": 1},
            container={"lifecycle": {"preStop": {"exec": {"command": ["sleep", "1000"]}}}},
        ),
        "Failed",
    ),
    Ends(
        _job("ill", "sleep 100", container={"livenessProbe": _ONCE}),
        "Failed",
        ("Liveness probe failed: its command ended with 1", "its liveness probe failed"),
    ),
    Ends(
        _job(
            "unprepared",
            pod={
                "initContainers": [
                    {
                        "name": "i",
                        "image": "x",
                        "command": ["sh", "-c", "echo unprepared-words; exit 3"],
                    }
                ]
            },
        ),
        "Failed",
        ("unprepared-words",),
    ),
    Ends(_job("closed", "exec >&- 2>&-; exit 7"), "Failed", ("failed (exit code 7",)),
    Ends(_job("kills-all", "kill -9 -1; echo survived"), "Succeeded", ("survived",)),
    Ends(
        _job("daemons", "setsid sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000' &"), "Succeeded"
    ),
    Ends(_job("one-line", "head -c 30000000 /dev/zero | tr '\\0' x"), "Succeeded"),
    Ends(_job("noise", "head -c 200000 /dev/urandom"), "Succeeded"),
    Ends(
        _job("ghost", "sleep 1000") | {"metadata": {"name": "ghost", "ownerReferences": [_GONE]}},
        "deleted",
    ),
    Ends(
        _job("tied") | {"metadata": {"name": "tied", "finalizers": ["example.com/never"]}},
        "Succeeded",
    ),
)
"""Their jobs run side by side in one cluster."""

WAITING = {
    "a ConfigMap that is not there": (
        _job("no-config", **_volume({"configMap": {"name": "gone"}}, {})),
        "ConfigMap default/gone, which a volume needs, does not exist",
    ),
    "a Secret that is not there": (
        _job("no-secret", container={"envFrom": [{"secretRef": {"name": "gone"}}]}),
        "Secret default/gone does not exist",
    ),
    "a folder that is not there": (
        _job("no-folder", **_volume({"hostPath": {"path": "/no/such", "type": "Directory"}}, {})),
        "hostPath /no/such does not exist",
    ),
}
"""They wait for what somebody else may still make, and say so."""
