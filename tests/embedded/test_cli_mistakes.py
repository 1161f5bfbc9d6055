"""Bad input: a message that names object, path and fix, exit code 1 and no traceback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.embedded.command_line import CommandLine, job
from tests.tools import missing


def _with(path: str, value: object) -> str:
    manifest = job("wrong", ["/bin/true"])
    *parents, last = path.split(".")
    place = manifest
    for key in parents:
        place = place[int(key) if key.isdigit() else key]
    place[last] = value
    return yaml.safe_dump(manifest)


_MISTAKES = {
    "unknown field": (_with("spec.colour", "blue"), ["wrong", "spec.colour"]),
    "misspelt field": (
        _with("spec.replicaSpecs.0.replica", 2),
        ["spec.replicaSpecs[0].replica", "did you mean 'replicas'?"],
    ),
    "misspelt container field": (
        _with("spec.replicaSpecs.0.template.spec.containers.0.commands", ["x"]),
        ["containers[0].commands", "command"],
    ),
    "misspelt kind": (_with("kind", "PytorchTrainingJob"), ["PyTorchTrainingJob"]),
    "wrong type": (_with("spec.replicaSpecs.0.replicas", "two"), ["spec.replicaSpecs[0].replicas"]),
    "negative count": (
        _with("spec.replicaSpecs.0.replicas", -1),
        ["spec.replicaSpecs[0].replicas"],
    ),
    "empty file": ("", ["is empty"]),
    "only comments": ("# nothing\n", ["holds no object"]),
    "no job": ("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n", ["no job in the file"]),
    "broken YAML": ("apiVersion: v1\nkind: [\nmetadata: {}\n", ["m.yaml:4:1"]),
    "not an object": ("- just\n- a list\n", ["must be a mapping"]),
    "nothing to run": (yaml.safe_dump(job("empty")), ["neither command nor args", "set command"]),
}


@pytest.mark.parametrize(("text", "wanted"), _MISTAKES.values(), ids=_MISTAKES)
def test_a_broken_manifest_is_refused(trainyard: CommandLine, text: str, wanted: list[str]) -> None:
    output = trainyard.run("run", "-f", trainyard.manifest("m.yaml", text), code=1)
    for part in ("m.yaml", *wanted):
        assert part in output
    assert not trainyard.processes()


def test_a_missing_file_is_named(trainyard: CommandLine) -> None:
    assert "absent.yaml" in trainyard.run("run", "-f", "absent.yaml", code=1)


def test_a_folder_is_not_a_manifest(trainyard: CommandLine) -> None:
    assert "is a directory" in trainyard.run("run", "-f", ".", code=1).lower()


def test_a_state_folder_that_cannot_be_written_is_named_with_the_fix(
    trainyard: CommandLine,
) -> None:
    (trainyard.folder / "file").write_text("in the way")
    trainyard.environment["TRAINYARD_STATE_DIR"] = str(trainyard.folder / "file" / "state")
    file = trainyard.manifest("m.yaml", job("fine", ["/bin/true"]))
    for command in (["run", "-f", file], ["up"]):
        output = trainyard.run(*command, code=1)
        assert "file/state" in output
        assert "TRAINYARD_STATE_DIR" in output


def test_a_full_state_folder_is_named(trainyard: CommandLine) -> None:
    if os.geteuid():
        missing("mounting a small disk needs root")
    trainyard.state.mkdir()
    mount = [
        "mount",
        "-t",
        "tmpfs",
        "-o",
        "size=4k,nr_inodes=8,mode=700",
        "tmpfs",
        str(trainyard.state),
    ]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        missing("a tmpfs cannot be mounted here")
    try:
        (trainyard.state / "filler").write_bytes(b"x" * 4096)
        file = trainyard.manifest("m.yaml", job("fine", ["/bin/true"]))
        for command in (["run", "-f", file], ["up"]):
            output = trainyard.run(*command, code=1)
            assert str(trainyard.state) in output
            assert "No space left" in output
    finally:
        trainyard.kill_everything()
        subprocess.run(["umount", str(trainyard.state)], check=True)


def test_a_port_in_use_is_named_and_nothing_stays_up(trainyard: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        output = trainyard.run("up", "--port", port, code=1)
    assert f"127.0.0.1:{port}" in output
    assert "choose another port" in output
    assert not trainyard.processes()


@pytest.mark.parametrize("command", ["down", "kubeconfig"])
def test_with_nothing_up_a_command_says_so(trainyard: CommandLine, command: str) -> None:
    output = trainyard.run(command, code=1)
    assert "no cluster is up" in output
    assert "trainyard up" in output


def test_status_with_nothing_up_ends_with_3(trainyard: CommandLine) -> None:
    assert "no cluster is up" in trainyard.run("status", code=3)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--volume", "nonsense"], "CLAIM=DIR"),
        (["--resource", "gpu=many"], "amount"),
        (["--image", "torch*=/no/such/folder"], "is no Python environment: it has no bin/python"),
        (["--isolation", "vm"], "plain"),
    ],
)
def test_a_wrong_option_is_explained(
    trainyard: CommandLine, options: list[str], wanted: str
) -> None:
    file = trainyard.manifest("m.yaml", job("fine", ["/bin/true"]))
    assert wanted in trainyard.run("run", "-f", file, *options, code=2)


def test_running_a_job_that_exists_already_says_how_to_go_on(trainyard: CommandLine) -> None:
    file = trainyard.manifest("m.yaml", job("twice", ["/bin/true"]))
    trainyard.run("up")
    try:
        trainyard.run("run", "-f", file, "--keep")
        output = trainyard.run("run", "-f", file, code=1)
        assert "default/twice already exists" in output
        assert "trainyard delete twice" in output
        assert "`run` and `submit` do with --replace" in output
        uid = first_uid(trainyard)
        output = trainyard.run("run", "--replace", "-f", file, "--keep")
        assert "PyTorchTrainingJob twice: Succeeded" in output
        assert first_uid(trainyard) != uid
        assert "Succeeded" in trainyard.run("run", "--replace", "-f", file)
        assert "twice" not in trainyard.run("list")
    finally:
        trainyard.run("down")


def first_uid(trainyard: CommandLine) -> str:
    (found,) = json.loads(trainyard.run("list", "-o", "json"))["items"]
    return str(found["metadata"]["uid"])


def test_a_run_that_the_cluster_which_is_up_cannot_do_says_that_it_has_its_own(
    trainyard: CommandLine, tmp_path: Path
) -> None:
    file = trainyard.manifest("m.yaml", job("elsewhere", ["/bin/true"]))
    trainyard.run("up", "--resource", "nvidia.com/gpu=2")
    try:
        volume = f"sets={tmp_path / 'sets'}"
        output = trainyard.run("run", "-f", file, "--volume", volume)
        assert f"is without --volume {volume}: this runs on a cluster of its own" in output
        output = trainyard.run("run", "-f", file, "--resource", "nvidia.com/gpu=2")
        assert "of its own" not in output
        assert f"logs: {trainyard.state}/pods" in output, "it has what was asked for"
    finally:
        trainyard.run("down")
