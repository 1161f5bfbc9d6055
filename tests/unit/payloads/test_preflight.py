"""The preflight of a launch: what a replica finds, and how what they found is compared."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from trainyard.payloads.launch import preflight
from trainyard.payloads.payload_messages import PreflightAnswer, PreflightRequest


def found(*missing: str, gpus: int = 0, **versions: str) -> PreflightAnswer:
    return {"missing": [*missing], "versions": versions, "gpus": gpus}


def asked(wanted: PreflightRequest) -> PreflightAnswer:
    """What the program prints, as a replica's session runs it."""
    argument = urlsafe_b64encode(json.dumps(wanted).encode()).decode()
    command = [sys.executable, "-IS", preflight.__file__, argument]
    answer: PreflightAnswer = json.loads(
        subprocess.run(command, capture_output=True, check=True).stdout
    )
    return answer


def test_what_is_there_is_told_with_its_versions(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "launcher").write_text(f"#!{sys.executable}\n")
    (tmp_path / "launcher").chmod(0o755)
    for program in (sys.executable, str(tmp_path / "launcher")):
        answer = asked({"folder": str(tmp_path), "program": program, "script": "train.py"})
        assert answer["missing"] == []
        assert answer["versions"]["python"] == "{}.{}".format(*sys.version_info[:2])
        assert set(answer["versions"]) == {"python", "torch", "deepspeed", "colossalai"}


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    wanted: PreflightRequest = {
        "folder": f"{tmp_path}/no",
        "program": "no-such",
        "script": "train.py",
    }
    answer = asked(wanted)
    assert answer["missing"] == [f"the folder {tmp_path}/no", "no-such", "train.py"]


def test_a_program_that_is_no_python_has_no_versions(tmp_path: Path) -> None:
    answer = asked({"folder": str(tmp_path), "program": "/bin/sh", "script": ""})
    assert answer == found()


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"worker-0": found(), "worker-1": found()}, ""),
        ({"worker-0": found(), "worker-1": found("train.py")}, "train.py on worker-1"),
        (
            {"worker-0": found("x"), "worker-1": found("x", "torchrun")},
            "x on worker-0, worker-1; torchrun on worker-1",
        ),
    ],
)
def test_what_is_missing_is_told_by_replicas(
    answers: dict[str, PreflightAnswer], told: str
) -> None:
    assert preflight.describe_missing(answers) == told


def test_versions_that_differ_and_gpus_that_are_too_few_are_told() -> None:
    answers = {
        "worker-0": found(gpus=8, torch="2.3.0", python="3.11"),
        "worker-1": found(gpus=4, torch="2.1.0", python="3.11"),
        "worker-2": found(torch="2.3.0", python="3.11"),
    }
    assert preflight.differences(answers, 8) == [
        "torch differs: 2.3.0 on worker-0, worker-2; 2.1.0 on worker-1",
        "worker-1 has 4 GPUs for 8 processes",
    ]
    assert preflight.differences({"worker-0": answers["worker-0"]}, 8) == []


def test_of_many_that_differ_alike_a_few_are_named() -> None:
    """The words must fit into an Event."""
    answers = {f"worker-{n}": found(gpus=4, torch="2.1.0") for n in range(1, 9)}
    answers["worker-0"] = found(gpus=8, torch="2.3.0")
    assert preflight.differences(answers, 8) == [
        "torch differs: 2.1.0 on worker-1, worker-2, worker-3 and 5 more; 2.3.0 on worker-0",
        "worker-1, worker-2, worker-3 and 5 more have 4 GPUs for 8 processes",
    ]
