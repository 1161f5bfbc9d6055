"""What a second user of a shared cluster may see of somebody else's jobs (docs/security.md)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import click
import pytest

from tests.embedded.command_line import CommandLine, job, shell, until
from tests.embedded.people import Machine
from tests.tools import kubectl_path, oldest_and_newest_kubectl
from trainyard.cli.main import cli

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become other users")
WORD = "SEKRIT-OUTPUT"


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A cluster of Alice, whose job failed twice with a secret word, and Bob."""
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

        def events() -> str:  # in which the program's own traceback is
            return made.alice.start("events", "hers").communicate(timeout=60)[0]

        until(lambda: WORD in events(), "the events tell her")
        yield made
    finally:
        made.close()


def _kubectl(line: CommandLine, *arguments: str) -> str:
    config = line.run("kubeconfig").strip()
    command = [*line.wrapper, kubectl_path(oldest_and_newest_kubectl()[-1])]
    done = subprocess.run(
        [*command, "--kubeconfig", config, *arguments],
        env={**line.environment, "HOME": str(line.folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout + done.stderr


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
    seen = _kubectl(machine.bob, "-n", "alice", *LOOKS[look])
    assert WORD not in seen
    assert "hers" in seen or look == "rows"
    if look not in ("status", "job", "jobs", "watched whole", "raw"):
        assert "for those who may read the logs here" in seen
    hers = _kubectl(machine.alice, "-n", "alice", *LOOKS[look])
    assert WORD in hers
    assert "for those who may" not in hers


def test_the_fact_is_told_to_everybody(machine: Machine) -> None:
    seen = json.loads(_kubectl(machine.bob, "-n", "alice", "get", "pj", "hers", "-o", "json"))
    status = seen["status"]
    assert status["phase"] == "Failed"
    assert status["attempts"][0]["exitCode"] == 3
    assert {"Failed", "Completed"} <= {each["type"] for each in status["conditions"]}
    events = json.loads(_kubectl(machine.bob, "-n", "alice", "get", "events", "-o", "json"))
    assert {"ReplicaFailure", "Restart"} & {each["reason"] for each in events["items"]}
    messages = {each["message"] for each in events["items"] if each["reason"] == "Started"}
    assert "Started container main" in messages


ARGUMENTS = {
    "exec": ["hers", "--", "true"],
    "scale": ["hers", "--replicas", "worker=2"],
    "stacks": ["hers"],
    "diff": ["hers", "hers"],
    "rerun": ["hers"],
    "wait": ["hers", "--timeout", "2s"],
}
COMMANDS = sorted(
    set(cli.list_commands(click.Context(cli)))
    & {
        *("show", "explain", "events", "logs", "exec", "delete", "pause", "resume", "scale", "top"),
        *("stacks", "wait", "diff", "debug", "history", "rerun", "list"),
    }
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_on_somebody_elses_job_has_one_clear_answer(
    machine: Machine, command: str
) -> None:
    """`run` asserts that there is no traceback."""
    words = ARGUMENTS.get(command, [] if command == "list" else ["hers"])
    at = ["--"] if "--" in words else []
    before = words[: words.index("--")] if at else words
    said = machine.bob.run(command, "-n", "alice", *before, *words[len(before) :], code=None)
    assert said.strip(), command
    assert WORD not in said
