"""Commands in containers: outcomes, and what can be entered at all."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.client.objects import found, job, pod
from trainyard.cli.commands.debug import choose_job
from trainyard.client.cluster_target import CommandError
from trainyard.client.exec_client import exit_code
from trainyard.client.pod_views import PodView
from trainyard.client.replica_commands import check_running
from trainyard.kube.errors import ApiError
from trainyard.manifest.reader import read


def ended_with(code: int) -> dict[str, Any]:
    """As the outcome channel says it (remotecommand of apimachinery)."""
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}


def test_the_outcome_carries_the_exit_code() -> None:
    assert exit_code({"status": "Success"}, "x") == 0
    assert exit_code(ended_with(137), "x") == 137


def test_a_command_that_could_not_run_is_an_error() -> None:
    refusal = {"status": "Failure", "code": 500, "message": "no such container"}
    with pytest.raises(ApiError, match="cannot run a command in p: no such container"):
        exit_code(refusal, "run a command in p")


def test_a_running_container_can_be_entered() -> None:
    check_running(
        found(job("Running")), PodView(pod(states={"pytorch": {"running": {}}})), "pytorch"
    )


@pytest.mark.parametrize(
    ("state", "container", "message"),
    [
        ({"waiting": {}}, "pytorch", r"replica worker-0 of .* is not running \(Pending\)"),
        ({"terminated": {}}, "pytorch", "is not running"),
        ({"running": {}}, "web", "has no container web; it has pytorch"),
    ],
)
def test_nothing_else_can_be_entered(state: dict[str, Any], container: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        check_running(found(job()), PodView(pod(states={"pytorch": state})), container)


def manifest(*names: str) -> str:
    return "\n---\n".join(
        f"""
apiVersion: batch.tensorstack.dev/v1beta1
kind: GenericJob
metadata: {{name: {name}}}
spec:
  replicaSpecs:
  - type: worker
    template: {{spec: {{containers: [{{name: main, image: x, command: ["true"]}}]}}}}
"""
        for name in names
    )


def test_the_only_job_of_a_file_is_debugged() -> None:
    assert choose_job(read(manifest("a")).documents, "").raw["metadata"]["name"] == "a"


def test_of_several_jobs_one_must_be_named() -> None:
    documents = read(manifest("a", "b")).documents
    with pytest.raises(CommandError, match="2 jobs; choose by --job: a, b"):
        choose_job(documents, "")
    assert choose_job(documents, "b").raw["metadata"]["name"] == "b"
    with pytest.raises(CommandError, match="no job c in the file; it has a, b"):
        choose_job(documents, "c")
