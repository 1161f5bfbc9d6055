"""What a second user of a shared cluster may see of somebody else's jobs (docs/security.md)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

import click
import pytest

from tests.embedded.command_line import CommandLine, job, run_kubectl, shell, until
from tests.embedded.people import Machine
from trainyard.cli.main import cli

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become other users")
WORD = "SEKRIT-OUTPUT"
TOKEN = "SEKRIT-TOKEN"
"""A variable of Alice's shell, which her job `nap` gets by its name."""


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A cluster of Alice, whose job failed twice with a secret word, and Bob. Another of hers has
    a variable of her shell."""
    made = Machine()
    try:
        made.root.run("up", "--allow-user", "alice", "--allow-user", "bob")
        # The word as a whole stands in no spec, which everybody may read.
        first, second = WORD.split("-")
        fails = f'python3 -c \'raise ValueError("{first}" + "-{second}")\''
        script = f"a={first}; echo $a-{second}; {fails}; exit 3"
        failing = job("hers", shell(script), policy="OnFailure", runPolicy={"backoffLimit": 1})
        made.alice.run("submit", "-f", made.alice.manifest("m.yaml", failing))
        made.alice.start("wait", "hers", "--timeout", "2m").communicate(timeout=180)
        sizes = {"enabled": True, "minReplicas": 1, "maxReplicas": 2, "expectedReplicas": 1}
        rests = job("rests", container={"args": ["x.py"]}, elastic=sizes)
        rests["spec"] |= {"torchrunConfig": {"enabled": True}}
        rests["spec"] |= {"runMode": {"pause": {"enabled": True}}}
        made.alice.run("submit", "-f", made.alice.manifest("n.yaml", rests))
        (made.alice.folder / "nap.sh").write_text("echo it is $HER_TOKEN; sleep 3600\n")
        made.alice.environment["HER_TOKEN"] = TOKEN
        made.alice.run("run", "-d", "--env", "HER_TOKEN", "nap.sh")
        made.alice.run("wait", "nap", "--for", "phase=Running", "--timeout", "2m")

        def events() -> str:  # in which the program's own traceback is
            return made.alice.start("events", "hers").communicate(timeout=120)[0]

        until(lambda: WORD in events(), "the events tell her")
        yield made
    finally:
        made.close()


def _logs(line: CommandLine, job: str) -> str:
    """What a job has written, once it has."""
    until(lambda: line.run("logs", job, code=None).startswith("it is"), "it writes")
    return line.run("logs", job)


def _secret(line: CommandLine, job: str) -> str:
    return run_kubectl(line, "-n", "alice", "get", "secret", f"{job}-env", "-o", "json")


LOOKS = {
    "job": ["get", "pj", "hers", "-o", "yaml"],
    "jobs": ["get", "pj", "-o", "json"],
    "status": ["get", "pj", "hers", "--subresource=status", "-o", "json"],
    "all": ["get", "pj,pods,events,configmaps", "-o", "json"],
    "described": ["describe", "pj,pods"],
    "events": ["get", "events"],
    "wide": ["get", "events,pods,pj", "-o", "wide"],
    "new events": ["get", "events.events.k8s.io", "-o", "json"],
    "rows": ["get", "events", "-o", "custom-columns=M:.message"],
    "watched": ["get", "events", "--watch", "--request-timeout=2s"],
    "watched whole": ["get", "pj", "--watch", "-o", "json", "--request-timeout=2s"],
    "raw": ["get", "--raw", "/api/v1/namespaces/alice/pods"],
    "raw watch": ["get", "--raw", "/api/v1/namespaces/alice/events?watch=1&timeoutSeconds=1"],
}


@pytest.mark.parametrize("look", LOOKS)
def test_what_a_program_wrote_is_for_those_who_may_read_its_log(
    machine: Machine, look: str
) -> None:
    seen = run_kubectl(machine.bob, "-n", "alice", *LOOKS[look])
    assert WORD not in seen
    assert TOKEN not in seen
    assert "hers" in seen or look == "rows"
    if look not in ("status", "job", "jobs", "watched whole", "raw"):
        assert "for those who may read the logs here" in seen
    hers = run_kubectl(machine.alice, "-n", "alice", *LOOKS[look])
    assert WORD in hers
    assert "for those who may" not in hers


def test_the_fact_is_told_to_everybody(machine: Machine) -> None:
    seen = json.loads(run_kubectl(machine.bob, "-n", "alice", "get", "pj", "hers", "-o", "json"))
    status = seen["status"]
    assert status["phase"] == "Failed"
    assert status["attempts"][0]["exitCode"] == 3
    assert {"Failed", "Completed"} <= {each["type"] for each in status["conditions"]}
    events = json.loads(run_kubectl(machine.bob, "-n", "alice", "get", "events", "-o", "json"))
    assert {"ReplicaFailure", "Restart"} & {each["reason"] for each in events["items"]}
    messages = {each["message"] for each in events["items"] if each["reason"] == "Started"}
    assert "Started container main" in messages


def test_a_variable_of_the_shell_is_in_a_secret_of_its_job(machine: Machine) -> None:
    assert _logs(machine.alice, "nap") == f"it is {TOKEN}\n"
    secret = json.loads(_secret(machine.alice, "nap"))
    job = json.loads(run_kubectl(machine.alice, "get", "gj", "nap", "-o", "json"))
    assert TOKEN not in json.dumps(job)
    owners = [(each["kind"], each["uid"]) for each in secret["metadata"]["ownerReferences"]]
    assert owners == [("GenericJob", job["metadata"]["uid"])]
    assert 'User "bob" cannot get resource "secrets"' in _secret(machine.bob, "nap")
    assert "Forbidden" in run_kubectl(machine.bob, "get", "secrets", "-A")
    written = [path for path in machine.alice.folder.rglob("*") if path.is_file()]
    assert any(path.name == "record.json" for path in written)
    assert not [path for path in written if TOKEN.encode() in path.read_bytes()]


def test_a_repetition_has_the_variable_from_the_secret(machine: Machine) -> None:
    alice = machine.alice
    token = alice.environment.pop("HER_TOKEN")
    try:
        alice.run("rerun", "nap", "--name", "again", "--submit")
        assert _logs(alice, "again") == f"it is {TOKEN}\n"
        alice.run("delete", "again", "--wait")
        until(lambda: "NotFound" in _secret(alice, "again"), "the Secret goes with the job")
        assert "data" in json.loads(_secret(alice, "nap"))
        refused = alice.run("rerun", "again", "--name", "third", code=1)
        assert "error: set HER_TOKEN in this shell: Secret third-env takes its" in refused
    finally:
        alice.environment["HER_TOKEN"] = token


def test_a_saved_manifest_takes_the_variable_from_the_shell_that_submits_it(
    machine: Machine,
) -> None:
    alice = machine.alice
    words = ("--env", "HER_TOKEN", "--name", "saved", "--save", "saved.yaml", "nap.sh")
    alice.run("init", *words)
    manifest = alice.folder / "saved.yaml"
    assert TOKEN not in manifest.read_text()
    alice.run("submit", "-f", "saved.yaml")
    assert _logs(alice, "saved") == f"it is {TOKEN}\n"
    alice.run("delete", "saved", "--wait")
    as_root = "securityContext: {runAsUser: 0}\n          containers:"
    manifest.write_text(manifest.read_text().replace("containers:", as_root))
    refused = alice.run("submit", "-f", "saved.yaml", code=1)
    assert "runAsUser" in refused
    assert "NotFound" in _secret(alice, "saved"), "nothing stays of a job that came to nothing"
    run_kubectl(alice, "create", "secret", "generic", "saved-env", "--from-literal=own=1")
    refused = alice.run("run", "-d", *words[:4], "nap.sh", code=1)
    assert "Secret alice/saved-env is there and is no job's" in refused
    assert "own" in json.loads(_secret(alice, "saved"))["data"]


_FORBIDDEN = r'User "bob" cannot \w+ resource "\S+" in API group "\S*" (in the namespace|at the)'
_UNREADABLE = r"[Pp]ermission denied"
_NOT_HIS = "it belongs to root"
REFUSED = {
    "chaos": (["-f", "{hers}/m.yaml"], _UNREADABLE),
    "convert": (["{hers}/m.yaml"], _UNREADABLE),
    "debug": (["-n", "alice", "-f", "own.yaml"], _FORBIDDEN),
    "delete": (["-n", "alice", "nap"], _FORBIDDEN),
    "doctor": (["--kubeconfig", "{hers}/config"], _UNREADABLE),
    "down": ([], _NOT_HIS),
    "exec": (["-n", "alice", "nap", "--", "true"], _FORBIDDEN),
    "init": (["{hers}/nap.sh"], _UNREADABLE),
    "kubeconfig": (["--renew", "--user", "alice"], "only the cluster's owner ends others' tokens"),
    "logs": (["-n", "alice", "nap"], _FORBIDDEN),
    "manifests": (["--image", "x", "--config", "{hers}/c.yaml"], _UNREADABLE),
    "operator": (["--kubeconfig", "{hers}/config"], _UNREADABLE),
    "pause": (["-n", "alice", "nap"], _FORBIDDEN),
    "queue": (["close", "default"], _FORBIDDEN),
    "render": (["{hers}/m.yaml"], _UNREADABLE),
    "rerun": (["-n", "alice", "nap"], _FORBIDDEN),
    "restart": ([], _NOT_HIS),
    "resume": (["-n", "alice", "rests"], _FORBIDDEN),
    "run": (["-d", "-n", "alice", "own.yaml"], _FORBIDDEN),
    "scale": (["-n", "alice", "rests", "--replicas", "2"], _FORBIDDEN),
    "stacks": (["-n", "alice", "nap"], _FORBIDDEN),
    "submit": (["-n", "alice", "-f", "own.yaml", "--replace"], _FORBIDDEN),
    "up": (["--allow-user", "carol"], "only root can let others use a cluster"),
    "validate": (["{hers}/m.yaml"], _UNREADABLE),
}
"""By command: what Bob asks of something that is not his, and how he is refused."""
SEEN = {
    "diff": ["-n", "alice", "hers", "nap"],
    "events": ["-n", "alice", "hers"],
    "explain": ["-n", "alice", "hers"],
    "list": ["-n", "alice", "-o", "json"],
    "show": ["-n", "alice", "hers", "-o", "yaml"],
    "status": [],
    "top": ["-n", "alice", "nap"],
    "wait": ["-n", "alice", "nap", "--timeout", "2s"],
}
"""By command: what he may see of something that is not his."""
WITHOUT_OBJECTS = {"completion", "crds", "history"}
"""Commands that are about no object of a cluster, or about one's own alone."""


def test_every_command_is_tried() -> None:
    commands = cli.list_commands(click.Context(cli))
    assert sorted([*REFUSED, *SEEN, *WITHOUT_OBJECTS]) == sorted(commands)


@pytest.mark.parametrize("command", REFUSED)
def test_a_command_on_what_is_somebody_elses_is_refused_in_one_line(
    machine: Machine, command: str
) -> None:
    words, reason = REFUSED[command]
    machine.bob.manifest("own.yaml", job("own", shell("true")))
    hers = str(machine.alice.folder)
    process = machine.bob.start(command, *(word.format(hers=hers) for word in words))
    said = process.communicate(timeout=180)[0]
    assert process.returncode in (1, 2), said
    *before, last = said.strip().splitlines()
    assert re.search(reason, last), said
    # A run tells first with what it would run, a wrong option how the command is used.
    expected = ("Python ", "Usage: ", "Try ", "") if command in ("run", "manifests") else ()
    assert all(line.startswith(expected) for line in before) if expected else not before, said
    assert WORD not in said
    assert TOKEN not in said


@pytest.mark.parametrize("command", SEEN)
def test_a_command_that_shows_what_is_somebody_elses_shows_no_words_of_it(
    machine: Machine, command: str
) -> None:
    said = machine.bob.run(command, *SEEN[command], code=None)
    assert said.strip()
    assert WORD not in said
    assert TOKEN not in said
    assert "these are its last words" not in said


def test_explain_says_who_may_know_why_it_failed(machine: Machine) -> None:
    for command in ("explain", "wait"):
        said = machine.bob.run(command, "-n", "alice", "hers", code=None)
        assert "what it wrote is for those who may read the logs of namespace alice" in said
        assert "ask whoever submitted it" in said
    said = machine.bob.run("logs", "-n", "alice", "hers", "--previous", code=1)
    assert "cannot read the logs of PyTorchTrainingJob alice/hers: they are another user's" in said


def test_what_is_recorded_is_ones_own(machine: Machine) -> None:
    """Among one's own files, where the cluster is somebody else's."""
    assert "hers" in machine.alice.run("history")
    assert "hers" not in machine.bob.run("history")
