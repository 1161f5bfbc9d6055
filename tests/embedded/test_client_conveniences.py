"""What users of kubectl and its like look for first, on a cluster in the background."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO

import pytest

from tests.embedded.command_line import CommandLine, job, shell, until
from tests.embedded.terminal import on_terminal

_FOREVER = ["sleep", "3600"]


@pytest.fixture(scope="module")
def trainyard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """A cluster for all tests of this module: each has jobs of its own."""
    line = CommandLine(tmp_path_factory.mktemp("conveniences"))
    line.run("up")
    yield line
    line.run("down", code=None)
    line.kill_everything()


def _submit(trainyard: CommandLine, name: str, script: str = "true", **more: object) -> str:
    trainyard.run("submit", "-f", trainyard.manifest(f"{name}.yaml", job(name, shell(script))))
    if phase := more.get("phase"):
        trainyard.run("wait", name, "--for", f"phase={phase}", "--timeout", "120")
    return name


def _expect(stream: IO[str], pattern: str) -> str:
    """The next line that matches."""
    while line := stream.readline():
        if re.search(pattern, line):
            return line
    raise AssertionError(f"no line matches {pattern!r}")


def test_a_watched_list_tells_every_change_of_a_job_until_it_is_deleted(
    trainyard: CommandLine,
) -> None:
    trainyard.run("delete", "--all", "--yes", "--wait")
    with trainyard.running("list", "--watch") as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().split()[:3] == ["NAME", "KIND", "PHASE"]
        name = _submit(trainyard, "watched", "sleep 3600")
        _expect(watching.stdout, rf"^{name} .* Pending ")
        _expect(watching.stdout, rf"^{name} .* Running +1/1")
        trainyard.run("delete", name)
        _expect(watching.stdout, rf"^{name} .* Deleted")


def test_a_watched_list_begins_with_the_jobs_that_are_there(trainyard: CommandLine) -> None:
    name = _submit(trainyard, "there", phase="Succeeded")
    with trainyard.running("list", "pj", "--watch", "-o", "wide") as watching:
        assert watching.stdout is not None
        assert "REASON" in watching.stdout.readline()
        _expect(watching.stdout, rf"^{name} .* Succeeded ")
    assert "leave out -o json" in trainyard.run("list", "-w", "-o", "json", code=1)


def test_jobs_are_deleted_by_their_labels_and_all_at_once(trainyard: CommandLine) -> None:
    _submit(trainyard, "plain")
    marked = job("marked", ["true"])
    marked["metadata"]["labels"] = {"team": "vision"}
    trainyard.run("submit", "-f", trainyard.manifest("marked.yaml", marked))
    said = trainyard.run("delete", "-l", "team=vision", "--wait")
    assert said == "PyTorchTrainingJob default/marked deleted\n"
    refused = trainyard.run("delete", "--all", code=1)  # nobody is there to be asked
    assert re.search(
        r"--all would delete \d+ jobs?: .*default/plain.*; add --yes to do so", refused
    )
    assert "plain deleted" in trainyard.run("delete", "--all", "-y", "--wait")
    assert "There are no such jobs" in trainyard.run("delete", "--all")
    assert "either by name" in trainyard.run("delete", "plain", "--all", code=1)


def test_on_a_terminal_the_deletion_of_all_asks_and_names_them(trainyard: CommandLine) -> None:
    name = _submit(trainyard, "asked")
    code, screen = on_terminal(trainyard, "delete", "--all", typed="n\n")
    assert code == 1
    assert f"default/{name}" in screen
    assert re.search(r"Delete \d+ jobs?\? \[y/N\]: (error: )?nothing was deleted", screen)
    assert name in trainyard.run("list")
    code, screen = on_terminal(trainyard, "delete", "--all", "-A", typed="y\n")
    assert (code, f"default/{name} deleted" in screen) == (0, True)
    assert "with names" in trainyard.run("delete", name, "-A", code=1)


def test_a_job_is_submitted_again_in_place_of_the_one_before(trainyard: CommandLine) -> None:
    name = _submit(trainyard, "twice", "sleep 3600", phase="Running")
    file = trainyard.manifest(f"{name}.yaml", job(name, shell("echo second")))
    assert "--replace" in trainyard.run("submit", "-f", file, code=1)
    said = trainyard.run("submit", "--replace", "-f", file)
    assert said.splitlines()[-1] == f"PyTorchTrainingJob default/{name} created"
    trainyard.run("wait", name, "--timeout", "120")
    assert trainyard.run("logs", name) == "second\n"


def test_a_run_whose_output_nobody_reads_any_more_takes_its_job_from_the_cluster(
    trainyard: CommandLine,
) -> None:
    script = "while echo line; do sleep 0.05; done"
    file = trainyard.manifest("piped.yaml", job("piped", shell(script)))
    process = trainyard.start("run", "-f", file)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(120) == 141
    until(lambda: "piped" not in trainyard.run("list", "-o", "name"), "the job is gone")


def test_the_log_of_an_init_container_that_failed_is_shown_in_place_of_none(
    trainyard: CommandLine,
) -> None:
    prepare = {"name": "prepare", "image": "x", "command": shell("echo cannot download; exit 7")}
    obj = job("unprepared", _FOREVER, pod={"initContainers": [prepare]})
    trainyard.run("submit", "-f", trainyard.manifest("unprepared.yaml", obj))
    trainyard.run("wait", "unprepared", "--timeout", "120", code=1)
    for options in ((), ("-f",)):
        said = trainyard.run("logs", *options, "unprepared").splitlines()
        assert "init container prepare failed" in said[0]
        assert said[1:2] == ["cannot download"]
        assert ("Failed after" in "".join(said[2:])) == bool(options)


def test_logs_begin_at_a_moment_in_the_past(trainyard: CommandLine) -> None:
    name = _submit(trainyard, "recent", "echo now", phase="Succeeded")
    assert trainyard.run("logs", name, "--since", "10m") == "now\n"
    assert "is not a duration" in trainyard.run("logs", name, "--since", "soon", code=2)


def test_the_name_of_a_pod_is_answered_with_that_of_its_job(trainyard: CommandLine) -> None:
    name = _submit(trainyard, "owner", "sleep 3600", phase="Running")
    pod = trainyard.run("exec", name, "--", "hostname").strip()
    said = trainyard.run("logs", pod, code=1)
    assert f"{pod} is a pod of {name}" in said
    assert "--replica worker-0" in said


def test_debug_of_a_replica_that_does_not_exist_says_so_at_once(trainyard: CommandLine) -> None:
    file = trainyard.manifest("typo.yaml", job("typo", _FOREVER, replicas=2))
    said = trainyard.run("debug", "--rm", "-f", file, "--replica", "worker-7", "--", "true", code=1)
    assert "has no replica worker-7; there are worker-0, worker-1" in said


def test_a_shell_completes_the_names_of_jobs(trainyard: CommandLine) -> None:
    _submit(trainyard, "complete-me")
    trainyard.environment |= {
        "_TRAINYARD_COMPLETE": "bash_complete",
        "COMP_WORDS": "trainyard show comp",
        "COMP_CWORD": "2",
    }
    try:
        assert trainyard.run().splitlines() == ["plain,complete-me"]
    finally:
        for name in ("_TRAINYARD_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
            del trainyard.environment[name]


def test_one_command_waits_for_several_jobs_and_tells_if_one_failed(trainyard: CommandLine) -> None:
    good = [_submit(trainyard, name, "sleep 0.5") for name in ("one", "two")]
    said = trainyard.run("wait", *good, "--timeout", "120")
    assert sorted(said.splitlines()) == [
        f"PyTorchTrainingJob default/{name}: Succeeded" for name in sorted(good)
    ]
    slow, bad = _submit(trainyard, "slow", "sleep 3600"), _submit(trainyard, "bad", "exit 4")
    assert "exit code 4" in trainyard.run("wait", good[0], bad, "--timeout", "120", code=1)
    trainyard.run("wait", good[0], slow, "--timeout", "0.2", code=3)
