"""How commands that take manifests are told which: by -f, or alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainyard.cli.main import cli

_JOB = """\
apiVersion: batch.tensorstack.dev/v1beta1
kind: GenericJob
metadata: {name: one}
spec:
  replicaSpecs:
    - type: worker
      template: {spec: {containers: [{name: main, image: any, command: [echo]}]}}
"""


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


@pytest.mark.parametrize("command", ["validate", "convert", "render"])
def test_a_manifest_needs_no_option(command: str, tmp_path: Path) -> None:
    file, other = tmp_path / "job.yaml", tmp_path / "other.yaml"
    file.write_text(_JOB)
    other.write_text(_JOB.replace("one", "other"))
    alone = invoke(command, str(file), str(other))
    assert alone.exit_code == 0, alone.output
    for option in ("-f", "--file", "--filename"):
        assert invoke(command, option, str(file), str(other)).output == alone.output


@pytest.mark.parametrize("command", ["validate", "convert", "render", "submit"])
def test_without_a_manifest_it_is_asked_for(command: str) -> None:
    result = invoke(command)
    assert result.exit_code == 2
    assert f"name a manifest: trainyard {command} -f FILE" in result.output


@pytest.mark.parametrize("command", ["validate", "convert", "render", "submit", "run"])
def test_a_script_in_the_place_of_a_manifest_is_told(command: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import torch\n")
    for words in (("-f", str(file)), *([(str(file),)] if command != "run" else ())):
        result = invoke(command, *words)
        assert result.exit_code == 2
        assert f"{file} is a script: trainyard run {file} runs it" in result.output
