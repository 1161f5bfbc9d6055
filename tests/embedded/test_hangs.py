"""Jobs that hang, and jobs that are only slow, with real torch in real pods: what is said of them.

All of `hanging.py` under TRAINYARD_SOAK=1, in all four kinds; else a few of each.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.command_line import Object, until
from tests.embedded.lifecycle_yard import (
    Yard,
    condition,
    generic,
    pytorch,
    replicas,
    template,
    yard,
)

SCRIPT = Path(__file__).with_name("hanging.py")
SOURCE = SCRIPT.read_text().splitlines()
AFTER_SECONDS = 8
LONG_SECONDS = 600.0
SOAK = bool(os.environ.get("TRAINYARD_SOAK"))
HANGS = re.findall(r"@hangs\ndef (\w+)", SCRIPT.read_text())
HEALTHY = re.findall(r"@healthy\ndef (\w+)", SCRIPT.read_text())
SUSPECTS = {"stopped", "holds_interpreter"}
"""Of which nobody can tell whether they go on."""
NOBODYS = {"reordered", "both_receive", "everybody", "wrong_world_size"}
"""In which all wait, and any of them may be named."""
USUAL = ["skipped", "fifo", "endless_loop", "mismatched", "dataloader", "wrong_world_size"]
FEW = ["evaluation", "quick_steps"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with yard(tmp_path_factory.mktemp("hangs")) as found:
        yield found


def policy(action: str = "Explain") -> Object:
    return {"hang": {"afterSeconds": AFTER_SECONDS, "action": action}}


def job(name: str, case: str, **options: Any) -> Object:
    pods = template(["python", str(SCRIPT), case], **options.pop("container", {}))
    return pytorch(name, pods, replicas=2, **{"runPolicy": policy(), **options})


def hung(made: Yard, name: str) -> Object:
    return condition(made.status(name), "Hung")


def named(text: str) -> str:
    """The source of the first line that a text names."""
    found = re.search(r"hanging\.py:(\d+)", text)
    return SOURCE[int(found[1]) - 1] if found else ""


@pytest.mark.parametrize("case", [*HANGS, "wrong_world_size"] if SOAK else USUAL)
def test_a_hang_is_told_with_the_rank_and_the_line(made: Yard, case: str) -> None:
    name = case.replace("_", "-")
    made.submit(job(name, case))
    try:
        until(lambda: hung(made, name).get("reason", "-") != "-", f"{case} is told", LONG_SECONDS)
        told = hung(made, name)
        assert told["status"] == ("False" if case in SUSPECTS else "True"), told
        if case not in NOBODYS:
            assert "worker-1 (rank 1)" in told["message"].partition(";")[0] or (
                case in ("mismatched", "one_step_less") and "worker-1 (rank 1)" in told["message"]
            )
        if case not in SUSPECTS:
            assert "# HANG" in named(told["message"]), told["message"]
    finally:
        made.run("delete", name, "--yes", code=None)


def test_what_was_found_is_explained_and_kept(made: Yard) -> None:
    made.submit(job("kept", "skipped"))
    until(lambda: hung(made, "kept").get("status") == "True", "it is told", LONG_SECONDS)
    text = made.run("explain", "kept")
    assert "it hangs" in text
    assert "worker-1 (rank 1) has not entered all_reduce #21; it sleeps in wait_for_peer" in text
    assert re.search(r"Hung +True +Hung", made.run("show", "kept"))
    stacks = evidence(made, "kept")
    assert stacks.startswith("worker-1 (rank 1): idle\n    wait_for_peer (")
    assert "worker-0 (rank 0): waiting" in stacks
    now = made.run("stacks", "kept")
    assert now.index("worker-1 (rank 1): idle\n    wait_for_peer (") >= 0
    assert "worker-0 (rank 0): waiting\n    all_reduce (" in now
    assert "  thread MainThread:\n    wait_for_peer (" in made.run("stacks", "--threads", "kept")
    assert "all_reduce #21 (not done)" in stacks
    made.run("delete", "kept", "--yes")


def evidence(made: Yard, name: str) -> str:
    """The stacks in the ConfigMap of a job that hung."""
    _, listed = made.api.request("GET", "/api/v1/namespaces/default/configmaps")
    owned = [each for each in listed["items"] if each["metadata"]["name"].startswith(f"{name}-")]
    return next(each["data"]["stacks"] for each in owned if "stacks" in each["data"])


def test_a_hang_restarts_the_job_where_that_is_wanted(made: Yard) -> None:
    # The second attempt finds the mark of the first one, and is well.
    script = f"test -e /data/again && exec true; touch /data/again; exec python {SCRIPT} skipped"
    pods = template(["sh", "-c", f"sleep $((RANK * 2)); {script.replace('again', 'again-$RANK')}"])
    body = pytorch("again", pods, replicas=2, policy="Never", runPolicy=policy("Restart"))
    made.submit(body)
    status = made.end("again", "Succeeded", LONG_SECONDS)
    assert [attempt.get("reason") for attempt in status["attempts"]][:1] == ["Hung"]
    assert status["backoffCount"] == 1
    assert "wait_for_peer" in evidence(made, "again")


def test_a_hang_ends_the_job_where_that_is_wanted(made: Yard) -> None:
    made.submit(job("ends", "skipped", runPolicy=policy("Fail")))
    status = made.end("ends", "Failed", LONG_SECONDS)
    assert condition(status, "Failed")["reason"] == "Hung"
    assert "it hung: worker-1 (rank 1) has not entered" in made.run("explain", "ends")
    assert "when it hung: worker-1 (rank 1) has not" in made.run("stacks", "ends")


@pytest.mark.parametrize("case", HEALTHY if SOAK else FEW)
def test_a_slow_job_is_never_said_to_hang(made: Yard, case: str) -> None:
    name = f"slow-{case.replace('_', '-')}"
    made.submit(job(name, case))
    said = []
    until(
        lambda: (
            said.append(json.dumps(hung(made, name))) or made.phase(name) in ("Succeeded", "Failed")
        ),
        "it ends",
        LONG_SECONDS,
    )
    assert made.phase(name) == "Succeeded", made.story(name)
    assert not [text for text in said if '"True"' in text]


def test_a_job_that_is_not_to_be_observed_is_left_alone(made: Yard) -> None:
    show = template(
        ["sh", "-c", "env | grep -c -e TRAINYARD_OBSERVE -e ^PYTHONPATH=/t9k; ls -d /t9k/observer"]
    )
    made.submit(pytorch("alone", show, policy="Never", runPolicy={"observe": False}))
    made.end("alone", "Failed")
    assert made.run("logs", "alone").split()[0].endswith("0")


def test_a_generic_job_that_waits_for_requests_never_hangs(made: Yard) -> None:
    ranked = {
        "RANK": "$(rank)",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29511",
    }
    pods = template(["python", str(SCRIPT), "serves"], env=ranked)
    made.submit(generic("serves", replicas("worker", 1, pods), runPolicy=policy("Fail")))
    probe = job("beside", "everybody")  # which hangs, so that there was time for both
    made.submit(probe)
    until(lambda: hung(made, "beside").get("status") == "True", "the other is told", LONG_SECONDS)
    assert made.phase("serves") == "Running"
    assert hung(made, "serves").get("status") != "True"
    made.run("delete", "serves", "beside", "--yes")
