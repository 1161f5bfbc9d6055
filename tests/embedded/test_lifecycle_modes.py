"""Pause, resume and debug with real training: `trainyard pause`, `resume`, `debug`, `exec`."""

from __future__ import annotations

import pytest

from tests.embedded import lifecycle_training as training
from tests.embedded.command_line import shell, until
from tests.embedded.launching import require_programs
from tests.embedded.lifecycle_yard import (
    START_SECONDS,
    Yard,
    condition,
    generic,
    pytorch,
    replicas,
    shared_yard,
    template,
)

cluster = shared_yard("modes")


def test_a_job_paused_while_it_trains_resumes_to_the_end_from_its_checkpoint(
    cluster: Yard,
) -> None:
    """It costs nothing, and meanwhile there are neither pods nor processes."""
    require_programs("torchrun")
    command = training.command("paused")
    cluster.submit(pytorch("paused", template(command, env={"JOB": "paused"}), replicas=2))
    until(lambda: training.step(cluster, "paused") >= 5, "it trains", START_SECONDS)
    cluster.run("pause", "paused")
    status = cluster.await_phase("paused", "Paused")
    assert condition(status, "Paused")["status"] == "True"
    cluster.await_pods("paused", {})
    cluster.await_processes("paused", alive=False)
    step = training.step(cluster, "paused")
    assert 5 <= step < training.STEPS
    assert "paused" in cluster.run("explain", "paused").lower()
    training.let_go(cluster, "paused")
    cluster.run("resume", "paused")
    status = cluster.end("paused", "Succeeded")
    training.check_result(cluster, "paused", 2, begun_after=step)
    assert [world for _, world in training.starts(cluster, "paused")] == [2] * 4
    assert status["backoffCount"] == 0
    assert [attempt["reason"] for attempt in status["attempts"]] == ["Paused", "Succeeded"]
    assert condition(status, "Paused").get("status", "False") == "False"


@pytest.mark.parametrize("kind", ["PyTorchTrainingJob", "GenericJob"])
def test_a_job_created_paused_has_no_pods_until_it_is_resumed_as_its_resume_specs_say(
    cluster: Yard, kind: str
) -> None:
    name = f"asleep-{kind[:3].lower()}"
    pods = template([*shell(f'echo "$@" >> /data/{name}'), "sh"], args=["first"])
    resume = {"type": "worker", "args": ["again", "$(ME)"]}
    pods["spec"]["containers"][0]["env"].append({"name": "ME", "value": "resumed"})
    mode = {"pause": {"enabled": True, "resumeSpecs": [resume]}}
    if kind == "GenericJob":
        cluster.submit(generic(name, replicas("worker", 2, pods), runMode=mode))
    else:
        cluster.submit(pytorch(name, pods, runMode=mode))
    cluster.await_phase(name, "Paused")
    assert not cluster.pods(name)
    cluster.run("resume", name)
    cluster.end(name, "Succeeded")
    assert set(cluster.lines(name)) == {"again resumed"}


def test_a_debug_job_idles_until_the_training_is_launched_in_its_replicas_by_hand(
    cluster: Yard,
) -> None:
    """The environment of the replicas is all that the script needs: ranks, address, volume."""
    require_programs("torchrun")
    pods = template(training.command("by-hand"))
    cluster.submit(pytorch("by-hand", pods, replicas=2), by="debug")
    cluster.await_phase("by-hand", "Running")
    assert not training.starts(cluster, "by-hand")
    words = training.command("by-hand", steps=5)
    launch = ["exec", "by-hand", "--replica"]
    with (
        cluster.running(*launch, "worker-0", "--", *words) as first,
        cluster.running(*launch, "worker-1", "--", *words) as second,
    ):
        outputs = [process.communicate(timeout=START_SECONDS)[0] for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs
    assert all("trained {'step': 5, 'model': 10}" in output for output in outputs)
    training.check_result(cluster, "by-hand", 2, begun_after=0, steps=5)
    assert cluster.phase("by-hand") == "Running"
    cluster.run("delete", "by-hand", "--wait")
