"""The table of jobs."""

from __future__ import annotations

from tests.unit.client.objects import NOW, condition, found, job
from trainyard.cli.text_output import job_table, running_text


def test_a_job_is_one_line() -> None:
    running = job("Running", aggregate={"running": 3, "pending": 1}, backoffCount=2)
    text = job_table([found(running)], NOW, everywhere=False, wide=False)
    assert text.splitlines()[0].split() == ["NAME", "KIND", "PHASE", "RUNNING", "RESTARTS", "AGE"]
    assert text.splitlines()[1].split() == [
        "digits", "PyTorchTrainingJob", "Running", "3/4", "2", "60s",
    ]  # fmt: skip


def test_a_job_that_nobody_has_seen_is_pending() -> None:
    text = job_table([found(job())], NOW, everywhere=True, wide=False)
    assert text.splitlines()[1].split()[:5] == [
        "default",
        "digits",
        "PyTorchTrainingJob",
        "Pending",
        "-",
    ]


def test_a_job_on_its_way_out_is_terminating() -> None:
    text = job_table([found(job("Running", deleting=3))], NOW, everywhere=False, wide=False)
    assert "Terminating" in text


def test_wide_adds_queue_and_reason() -> None:
    waits = job(
        "Pending",
        spec={"scheduler": {"t9kScheduler": {"queue": "night"}}},
        conditions=[condition("Running", "False", "Unschedulable", "no room")],
    )
    text = job_table([found(waits)], NOW, everywhere=False, wide=True)
    assert text.splitlines()[1].split()[-2:] == ["night", "Unschedulable"]


def test_nothing_is_known_of_a_job_without_status() -> None:
    assert running_text(found(job())) == ""
    assert found(job()).queue == ""
