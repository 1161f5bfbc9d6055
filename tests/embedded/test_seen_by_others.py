"""The tables of docs/security.md on several people on one machine: each cell is a test.

A cell that is new, or says something else, has no test, and fails.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.embedded.command_line import CommandLine, Object, job, run_kubectl, shell, until
from tests.embedded.people import Machine
from trainyard.kube.embedded_contract import HIDDEN_OUTPUT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become other users")

_PAGE = Path(__file__).parents[2] / "docs" / "security.md"
_WORD = "SEKRIT-WORD"
_TIME = "2026-01-02T03:04:05Z"
_STATUS: Object = {
    "phase": "Failed",
    "restartCount": 2,
    "startTime": _TIME,
    "completionTime": _TIME,
    "goodput": {"starting": 1.5, "state": "training", "asOf": _TIME},
    "conditions": [
        {"type": "Failed", "status": "True", "reason": "ReplicaFailure", "message": _WORD},
        {"type": "Paused", "status": "True", "reason": "Paused", "message": "on purpose"},
    ],
    "attempts": [
        {
            "number": 1,
            "replica": "told-worker-0",
            "exitCode": 3,
            "reason": "Error",
            "startTime": _TIME,
            "endTime": _TIME,
            "message": _WORD,
            "cause": _WORD,
            "lastSeen": _WORD,
        }
    ],
    "progress": {
        "step": 7,
        "epoch": 1.5,
        "stepsPerSecond": 3.5,
        "metrics": [{"name": _WORD, "value": _WORD}],
        "checkpoint": {"path": _WORD},
        "message": _WORD,
    },
    "nodeCheck": {
        "state": "BadNodes",
        "badNodes": [{"replica": "told-worker-0", "node": "one", "reason": _WORD}],
        "message": _WORD,
    },
}
"""Of a job that another controller looks after, so that ours leaves it."""


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A cluster of Alice, who has a job of every sort, and Bob."""
    made = Machine()
    alice = made.alice
    try:
        made.root.run("up", "--allow-user", "alice", "--allow-user", "bob")
        first, second = _WORD.split("-")
        fails = job("fails", shell(f"a={first}; echo $a-{second}; exit 3"))
        told = job("told", shell("true"), managedBy="example.com/other")
        told["metadata"] |= {"labels": {"a": "b"}, "annotations": {"note": "of hers"}}
        stays = job("stays", shell("sleep 3600"))
        alice.run("submit", "-f", alice.manifest("m.yaml", fails, told, stays))
        alice.run("wait", "fails", "--for", "phase=Failed", "--timeout", "2m")
        alice.run("wait", "stays", "--for", "phase=Running", "--timeout", "2m")
        patch = json.dumps({"status": _STATUS})
        where = ("-n", "alice", "patch", "pj", "told", "--subresource=status", "--type=merge")
        assert "patched" in run_kubectl(made.root, *where, "-p", patch)
        assert "created" in run_kubectl(
            alice, "create", "configmap", "hers", "--from-literal=a=open"
        )
        job_uid = json.loads(run_kubectl(alice, "get", "pj", "told", "-o", "json"))["metadata"][
            "uid"
        ]
        owner = {
            "apiVersion": "batch.tensorstack.dev/v1beta1",
            "kind": "PyTorchTrainingJob",
            "name": "told",
            "uid": job_uid,
            "controller": True,
        }
        metadata = {"name": "stacks", "namespace": "alice", "ownerReferences": [owner]}
        stacks = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        file = made.root.manifest("stacks.yaml", stacks | {"data": {"stack": _WORD}})
        assert "created" in run_kubectl(made.root, "create", "-f", file)
        assert "created" in run_kubectl(
            alice, "create", "secret", "generic", "s", "--from-literal=a=b"
        )
        yield made
    finally:
        made.close()


class Seen:
    """What the two see of the same objects of Alice's namespace."""

    def __init__(self, machine: Machine, *what: str) -> None:
        get = ("-n", "alice", "get", *what, "-o", "json")
        self.hers, self.his = (
            json.loads(run_kubectl(line, *get)) for line in (machine.alice, machine.bob)
        )

    def alike(self, *path: str) -> None:
        """Both see the same there, and that there is something."""
        hers, his = _at(self.hers, path), _at(self.his, path)
        assert hers == his
        assert any(each not in (None, "", [], {}) for each in hers), path

    def hidden(self, *path: str) -> None:
        """She sees words there, and he sees that there are some."""
        hers, his = _at(self.hers, path), _at(self.his, path)
        assert _WORD in str(hers), path
        assert set(_leaves(his)) == {HIDDEN_OUTPUT}, path


def _at(value: Any, path: tuple[str, ...]) -> list[Any]:
    """What is at a path, in every item of the lists on the way."""
    if isinstance(value, list):
        return [found for each in value for found in _at(each, path)]
    if not path:
        return [value]
    return _at(value[path[0]], path[1:]) if path[0] in value else []


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def _may(line: CommandLine, *questions: str) -> None:
    for question in questions:
        assert run_kubectl(line, "auth", "can-i", *question.split()).startswith("yes"), question


def _may_not(line: CommandLine, *questions: str) -> None:
    for question in questions:
        assert "no" in run_kubectl(line, "auth", "can-i", *question.split()).split(), question


def _refused(line: CommandLine, *commands: str) -> None:
    for command in commands:
        said = run_kubectl(line, *command.split())
        assert re.search(r"forbidden: User \"\w+\" cannot|cannot \w+ the namespace", said), said


def _sees_own(machine: Machine) -> None:
    said = run_kubectl(machine.alice, "get", "pj,pods,events,configmaps")
    assert "Forbidden" not in said
    assert "pytorchtrainingjob.batch.tensorstack.dev/told" in said


def _sees_others(machine: Machine) -> None:
    said = run_kubectl(machine.bob, "-n", "alice", "get", "pj,pods,events,configmaps")
    assert "Forbidden" not in said
    assert "pytorchtrainingjob.batch.tensorstack.dev/told" in said


def _sees_what_is_in_none(machine: Machine) -> None:
    said = run_kubectl(machine.bob, "get", "nodes,queues,namespaces", "-o", "name")
    assert {"node", "namespace/alice"} <= set(said.split()) | {said.partition("/")[0]}
    assert "queue.scheduler.tensorstack.dev/default" in said


def _reads_own(machine: Machine) -> None:
    alice = machine.alice
    assert run_kubectl(alice, "get", "secret", "s", "-o", "jsonpath={.data.a}") == "Yg=="
    until(lambda: _WORD in alice.run("logs", "fails", code=None), "she reads her log")
    assert alice.run("exec", "stays", "--", "echo", "hello") == "hello\n"
    _may(alice, "create pods --subresource=portforward")


def _reads_no_others(machine: Machine) -> None:
    pods = run_kubectl(machine.bob, "-n", "alice", "get", "pods", "-o", "name").split()
    pod = next(name for name in pods if "stays" in name)
    commands = ("get secrets", "get secret s", f"logs {pod}", f"exec {pod} -- id")
    _refused(machine.bob, *(f"-n alice {each}" for each in commands))
    _refused(machine.bob, f"-n alice port-forward {pod} 1:1", f"-n alice attach {pod}")
    _refused(machine.bob, "get secrets -A")


def _writes_own(machine: Machine) -> None:
    _may(machine.alice, "create pods", "delete pj", "patch configmaps")
    _may_not(machine.alice, "patch pods --subresource=status", "create pods --subresource=binding")
    where = ("patch", "pj", "told", "--subresource=status", "--type=merge")
    said = run_kubectl(machine.alice, *where, "-p", '{"status": {"phase": "Succeeded"}}')
    assert 'User "alice" cannot patch' in said


def _writes_no_others(machine: Machine) -> None:
    commands = (
        "delete pj told",
        "annotate pj told x=y",
        "create configmap new",
        "delete pods --all",
    )
    _refused(machine.bob, *(f"-n alice {each}" for each in commands))


def _makes_namespaces(machine: Machine) -> None:
    assert "created" in run_kubectl(machine.bob, "create", "namespace", "bob-papers")
    assert "is forbidden" in run_kubectl(machine.bob, "create", "namespace", "papers")
    _may_not(machine.bob, "create queues.scheduler.tensorstack.dev", "delete nodes")


def _status(*paths: str, is_hidden: bool = False) -> Callable[[Machine], None]:
    def look(machine: Machine) -> None:
        seen = Seen(machine, "pj", "told")
        for path in paths:
            (seen.hidden if is_hidden else seen.alike)("status", *path.split("."))

    return look


def _sees_spec(machine: Machine) -> None:
    seen = Seen(machine, "pj", "told")
    seen.alike("spec")
    seen.alike("metadata", "labels")
    seen.alike("metadata", "annotations")


def _sees_conditions(machine: Machine) -> None:
    _status("conditions.type", "conditions.status", "conditions.reason")(machine)
    [own] = [
        each
        for each in Seen(machine, "pj", "told").his["status"]["conditions"]
        if each["type"] == "Paused"
    ]
    assert own["message"] == "on purpose"


def _sees_no_other_messages(machine: Machine) -> None:
    conditions = Seen(machine, "pj", "told").his["status"]["conditions"]
    assert {each["type"]: each["message"] for each in conditions}["Failed"] == HIDDEN_OUTPUT


def _sees_pods(machine: Machine) -> None:
    seen = Seen(machine, "pods")
    seen.alike("items", "status", "phase")
    seen.alike("items", "status", "podIP")
    ended = ("items", "status", "containerStatuses", "state", "terminated")
    seen.alike(*ended, "exitCode")
    seen.alike(*ended, "reason")
    seen.alike("items", "status", "containerStatuses", "ready")


def _sees_no_messages_of_pods(machine: Machine) -> None:
    seen = Seen(machine, "pods")
    seen.hidden("items", "status", "containerStatuses", "state", "terminated", "message")


def _sees_events(machine: Machine) -> None:
    seen = Seen(machine, "events")
    for path in ("reason", "involvedObject", "count", "lastTimestamp"):
        seen.alike("items", path)
    messages = {each["reason"]: each["message"] for each in seen.his["items"]}
    assert messages["Started"] == "Started container main"
    assert messages["NewReplica"].startswith("Create the replica[")


def _sees_no_messages_of_events(machine: Machine) -> None:
    seen = Seen(machine, "events")
    assert _WORD in str(seen.hers)
    assert _WORD not in str(seen.his)
    failures = [each for each in seen.his["items"] if each["reason"] == "ReplicaFailure"]
    assert {each["message"] for each in failures} == {HIDDEN_OUTPUT}


def _sees_configmaps(machine: Machine) -> None:
    Seen(machine, "configmap", "hers").alike("data")


def _sees_no_stacks(machine: Machine) -> None:
    Seen(machine, "configmap", "stacks").hidden("data")


class Cell(NamedTuple):
    """What a cell begins with, and whether it is true."""

    text: str
    check: Callable[[Machine], None]


_OWN, _OTHERS, _NONE = "in namespaces of their own", "in others", "in none"
_SEEN, _NOT_SEEN = "Seen", "Not seen"
CELLS: dict[tuple[str, str], Cell] = {
    ("look at jobs", _OWN): Cell("yes", _sees_own),
    ("look at jobs", _OTHERS): Cell("yes", _sees_others),
    ("look at jobs", _NONE): Cell("yes: nodes, queues, namespaces", _sees_what_is_in_none),
    ("read Secrets", _OWN): Cell("yes", _reads_own),
    ("read Secrets", _OTHERS): Cell("no", _reads_no_others),
    ("create, change and delete", _OWN): Cell("yes, but not status and bindings", _writes_own),
    ("create, change and delete", _OTHERS): Cell("no", _writes_no_others),
    ("create, change and delete", _NONE): Cell("namespaces called after them", _makes_namespaces),
    ("spec, labels, annotations", _SEEN): Cell("all", _sees_spec),
    ("phase, counts, times, goodput", _SEEN): Cell(
        "all", _status("phase", "restartCount", "startTime", "completionTime", "goodput")
    ),
    ("conditions", _SEEN): Cell("type, status, reason; messages that are", _sees_conditions),
    ("conditions", _NOT_SEEN): Cell("other messages", _sees_no_other_messages),
    ("attempts", _SEEN): Cell(
        "replica, exit code, reason, times",
        _status("attempts.replica", "attempts.exitCode", "attempts.reason", "attempts.startTime"),
    ),
    ("attempts", _NOT_SEEN): Cell(
        "message, cause, where the rank stood last",
        _status("attempts.message", "attempts.cause", "attempts.lastSeen", is_hidden=True),
    ),
    ("progress", _SEEN): Cell(
        "steps, epoch, speed", _status("progress.step", "progress.epoch", "progress.stepsPerSecond")
    ),
    ("progress", _NOT_SEEN): Cell(
        "metrics, the path of a checkpoint, the line for people",
        _status("progress.metrics", "progress.checkpoint", "progress.message", is_hidden=True),
    ),
    ("node check", _SEEN): Cell(
        "state, nodes", _status("nodeCheck.state", "nodeCheck.badNodes.node")
    ),
    ("node check", _NOT_SEEN): Cell(
        "what the check said",
        _status("nodeCheck.message", "nodeCheck.badNodes.reason", is_hidden=True),
    ),
    ("pods", _SEEN): Cell("phase, addresses, containers' states, exit codes", _sees_pods),
    ("pods", _NOT_SEEN): Cell("messages: termination messages", _sees_no_messages_of_pods),
    ("events", _SEEN): Cell(
        "reason, object, count, times; messages of the cluster's own (`NewReplica`, `Started`)",
        _sees_events,
    ),
    ("events", _NOT_SEEN): Cell("other messages", _sees_no_messages_of_events),
    ("ConfigMaps", _SEEN): Cell("those that somebody wrote", _sees_configmaps),
    ("ConfigMaps", _NOT_SEEN): Cell("contents of those that the controller made", _sees_no_stacks),
    ("Secrets, logs", _NOT_SEEN): Cell("all", _reads_no_others),
}
"""By the beginning of a row's name, and the column."""
_TABLES = ("May they …", "Of a job of somebody else")


def _written() -> dict[tuple[str, str], str]:
    """The cells of both tables that are not empty, by row and column."""
    found: dict[tuple[str, str], str] = {}
    header: list[str] = []
    for line in _PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line[:1] == "|" else []
        if not cells:
            header = []
        elif cells[0] in _TABLES:
            header = cells
        elif header and set(cells[0]) != {"-"}:
            pairs = zip(header[1:], cells[1:], strict=True)
            found |= {(cells[0], column): cell for column, cell in pairs if cell}
    return found


_WRITTEN = _written()


def test_there_is_no_test_without_a_cell() -> None:
    assert len(_WRITTEN) == len(CELLS)


@pytest.mark.parametrize("cell", _WRITTEN, ids=lambda cell: f"{cell[0][:25]}: {cell[1]}")
def test_a_cell_of_the_tables_is_true(machine: Machine, cell: tuple[str, str]) -> None:
    row, column = cell
    tests = [test for (name, of), test in CELLS.items() if of == column and row.startswith(name)]
    assert len(tests) == 1, f"no test of {row}, {column}: {_WRITTEN[cell]}"
    assert _WRITTEN[cell].startswith(tests[0].text)
    tests[0].check(machine)
