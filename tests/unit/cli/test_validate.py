"""`trainyard validate --cluster`: what a version of Kubernetes makes of a manifest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import trainyard
from trainyard.api.offline import render
from trainyard.cli.main import cli
from trainyard.schema.errors import TrainyardError
from trainyard.schema.field_versions import known_versions, unsupported_fields

_EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*/*.yaml"))
_JOB = """\
apiVersion: batch.tensorstack.dev/v1beta1
kind: PyTorchTrainingJob
metadata: {name: a}
spec:
  replicaSpecs:
  - type: worker
    template:
      metadata:
        annotations: {seccomp.security.alpha.kubernetes.io/pod: runtime/default}
      spec:
        initContainers:
        - name: side
          image: i
          restartPolicy: Always
          readinessProbe: {exec: {command: [a]}}
        containers:
        - name: pytorch
          image: i
          command: [python, t.py]
          volumeMounts: [{name: data, mountPath: /data}, {name: shm, mountPath: /dev/shm}]
        volumes:
        - {name: data, image: {reference: "a:b"}}
        - {name: shm, emptyDir: {medium: Memory, sizeLimit: 1Gi}}
---
apiVersion: v1
kind: Service
metadata: {name: s}
spec: {ports: [{port: 80}], internalTrafficPolicy: Local}
"""
_POD = "PyTorchTrainingJob default/a: spec.replicaSpecs[0].template."


def _validate(tmp_path: Path, text: str, *options: str) -> Result:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return CliRunner().invoke(cli, ["validate", str(path), *options])


def _lines(result: Result) -> list[str]:
    """Without file, line and column."""
    return [line.partition(": ")[2] for line in result.output.splitlines()]


def test_what_an_old_cluster_drops_is_a_warning_and_what_it_refuses_an_error(
    tmp_path: Path,
) -> None:
    result = _validate(tmp_path, _JOB, "--cluster", "1.20")
    init = f"{_POD}spec.initContainers[0]"
    came = "is dropped by Kubernetes 1.20: the field came with"
    assert _lines(result) == [
        (
            f"warning: {init}.restartPolicy: {came} 1.28 and is used since 1.29; run it among the "
            "containers, or the pod waits for it to end"
        ),
        (
            f"error: {init}.readinessProbe: is for init containers with restartPolicy: Always "
            "only: Kubernetes 1.20 refuses it, as it drops "
            "spec.replicaSpecs[0].template.spec.initContainers[0].restartPolicy"
        ),
        (
            f"warning: {_POD}spec.volumes[0].image: {came} 1.31 and is used since 1.35, and the "
            "volume is an empty folder; copy the files in an init container"
        ),
        (
            f"warning: {_POD}spec.volumes[1].emptyDir.sizeLimit: does not size the volume on "
            "Kubernetes 1.20 but half of the node's memory does; a pod that exceeds it is evicted"
        ),
        (
            f"warning: Service default/s: spec.internalTrafficPolicy: {came} 1.21 and is used "
            "since 1.22; leave it out"
        ),
        "1 error, 4 warnings",
    ]
    assert result.exit_code == 1
    assert f"{tmp_path}/job.yaml:14:11: warning" in result.output


def test_a_gate_that_is_off_is_told_of_and_a_newer_cluster_has_less_to_say(tmp_path: Path) -> None:
    result = _validate(tmp_path, _JOB, "--cluster", "v1.33.4+k3s1")
    assert _lines(result)[1] == (
        f"error: {_POD}spec.volumes[0].image: is refused by Kubernetes 1.33 unless its feature "
        "gate ImageVolume is on, as it is by default since 1.35; copy the files in an init "
        "container"
    )
    result = _validate(tmp_path, _JOB, "--cluster", "1.36")
    annotation = "metadata.annotations['seccomp.security.alpha.kubernetes.io/pod']"
    assert _lines(result) == [
        (
            f"warning: {_POD}{annotation}: has no effect on Kubernetes 1.36, nor on any since "
            "1.27; set securityContext.seccompProfile"
        ),
        "2 objects valid for Kubernetes 1.36, 1 warning",
    ]
    assert result.exit_code == 0
    assert _validate(tmp_path, _JOB, "--cluster", "1.36", "--strict").exit_code == 1
    assert _lines(_validate(tmp_path, _JOB)) == ["2 objects valid"]


def test_a_version_newer_than_all_that_are_known_is_judged_as_the_newest(tmp_path: Path) -> None:
    result = _validate(tmp_path, _JOB, "--cluster", f"1.{known_versions()[1] + 1}")
    assert f"valid for Kubernetes 1.{known_versions()[1]}" in result.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--cluster", "newest"], "'newest' is no version of Kubernetes; write it like 1.27"),
        (["--cluster", "1.19"], "Kubernetes 1.19 is too old; known are 1.20 to 1."),
        (["--context", "c"], "--kubeconfig and --context go with --cluster current"),
        (["--cluster", "current", "--kubeconfig", "/nowhere"], "/nowhere"),
    ],
)
def test_a_cluster_that_cannot_be_meant_is_told(
    options: Sequence[str], said: str, tmp_path: Path
) -> None:
    result = _validate(tmp_path, _JOB, *options)
    is_error = isinstance(result.exception, TrainyardError | click.ClickException)
    assert said in (str(result.exception) if is_error else result.output)
    assert result.exit_code != 0


def test_what_is_wrong_everywhere_is_told_first(tmp_path: Path) -> None:
    result = _validate(tmp_path, _JOB.replace("port: 80", "port: 0"), "--cluster", "1.20")
    assert "must be between 1 and 65535" in result.output
    assert "internalTrafficPolicy" not in result.output
    assert "restartPolicy" in result.output


def test_the_api_says_the_same(tmp_path: Path) -> None:
    rows = json.loads(_validate(tmp_path, _JOB, "--cluster", "1.20", "-o", "json").output)
    found = trainyard.validate(_JOB, cluster="1.20")
    assert [row["message"] for row in rows] == [problem.message for problem in found]
    assert trainyard.validate(_JOB) == []


@pytest.mark.parametrize("path", _EXAMPLES, ids=lambda path: path.parent.name)
def test_the_oldest_cluster_takes_examples_and_all_that_is_made_for_them(path: Path) -> None:
    assert trainyard.validate(path, cluster=f"1.{known_versions()[0]}") == []
    made: list[dict[str, Any]] = render(path)
    assert made
    for obj in made:
        assert unsupported_fields(obj, obj["kind"], known_versions()[0], "served") == []
