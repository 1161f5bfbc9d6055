"""Jobs that hang, and jobs that are only slow, with real torch in real pods: what is said of them.

All of `hanging.py` under TRAINYARD_SOAK=1; else a few, which run side by side: most of their time
they wait.
"""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.command_line import CommandLine, Object, until
from tests.embedded.lifecycle_yard import (
    Yard,
    condition,
    generic,
    manifest,
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
SUSPECTS = {"holds_interpreter"}
"""Of which nobody can tell whether they go on."""
STOPPED = {"stopped"}
"""Of which the line is that where they were seen last."""
NOBODYS = {"reordered", "both_receive", "everybody", "wrong_world_size"}
"""In which all wait, and any of them may be named."""
USUAL = ["mismatched", "reordered", "wrong_world_size", "stopped"]
FEW = ["evaluation", "stopped_a_while"]
in_soak = pytest.mark.skipif(not SOAK, reason="TRAINYARD_SOAK=1 runs it")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """With the jobs of the usual run under way."""
    with yard(tmp_path_factory.mktemp("hangs")) as found:
        hanging = [job(name_of(case), case) for case in USUAL]
        slow = [job(f"slow-{name_of(case)}", case) for case in FEW]
        kept, ends = job("kept", "skipped"), job("ends", "fifo", runPolicy=policy("Fail"))
        found.submit(kept, ends, serving(), *hanging, *slow)
        yield found


def policy(action: str = "Explain") -> Object:
    return {"hang": {"afterSeconds": AFTER_SECONDS, "action": action}}


def name_of(case: str) -> str:
    return case.replace("_", "-")


def job(name: str, case: str, **options: Any) -> Object:
    pods = template(["python", str(SCRIPT), case], **options.pop("container", {}))
    return pytorch(name, pods, replicas=2, **{"runPolicy": policy(), **options})


def serving() -> Object:
    """A job whose only rank waits for a connection."""
    ranked = {
        "RANK": "$(rank)",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29511",
    }
    pods = template(["python", str(SCRIPT), "serves"], env=ranked)
    return generic("serves", replicas("worker", 1, pods), runPolicy=policy("Fail"))


def hung(made: Yard, name: str) -> Object:
    return condition(made.status(name), "Hung")


def events(made: Yard, name: str) -> list[str]:
    """The reasons of what was told of a job."""
    _, listed = made.api.request("GET", "/api/v1/namespaces/default/events")
    return [e["reason"] for e in listed["items"] if e["involvedObject"]["name"] == name]


def named(text: str) -> str:
    """The source of the first line that a text names."""
    found = re.search(r"hanging\.py:(\d+)", text)
    return SOURCE[int(found[1]) - 1] if found else ""


@pytest.mark.parametrize("case", [*HANGS, "wrong_world_size"] if SOAK else USUAL)
def test_a_hang_is_told_with_the_rank_and_the_line(made: Yard, case: str) -> None:
    name = name_of(case)
    if case not in USUAL:
        made.submit(job(name, case))
    try:
        until(lambda: hung(made, name).get("reason", "-") != "-", f"{case} is told", LONG_SECONDS)
        told = hung(made, name)
        assert told["status"] == ("False" if case in SUSPECTS else "True"), told
        if case not in NOBODYS:
            assert "worker-1 (rank 1)" in told["message"].partition(";")[0] or (
                case in ("mismatched", "one_step_less") and "worker-1 (rank 1)" in told["message"]
            )
        if case not in SUSPECTS | STOPPED:
            assert "# HANG" in named(told["message"]), told["message"]
    finally:
        made.run("delete", name, "--yes", code=None)


def test_what_was_found_is_explained_and_kept_and_who_serves_is_left_alone(made: Yard) -> None:
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
    # One that waits for requests has waited for as long.
    assert made.phase("serves") == "Running"
    assert "Hung" not in events(made, "serves")
    assert hung(made, "serves").get("status") != "True"
    made.run("delete", "kept", "serves", "--yes")


def evidence(made: Yard, name: str) -> str:
    """The stacks in the ConfigMap of a job that hung."""
    _, listed = made.api.request("GET", "/api/v1/namespaces/default/configmaps")
    owned = [each for each in listed["items"] if each["metadata"]["name"].startswith(f"{name}-")]
    return next(each["data"]["stacks"] for each in owned if "stacks" in each["data"])


def launched(kind: str) -> Object:
    """A job of two ranks that hang, which the launcher of its kind starts."""
    words, run_policy = [str(SCRIPT), "skipped"], policy()
    if kind == "torchrun":
        pods, config = template(words), {"enabled": True, "procPerNode": "2"}
        return pytorch("torchrun", pods, torchrunConfig=config, runPolicy=run_policy)
    pods = template(["python"])
    (main,) = pods["spec"]["containers"]
    del main["command"]
    main["name"] = "worker"
    if kind == "deepspeed":
        config = {"slotsPerWorker": 1, "run": {"python": words}}
        spec = {"config": config, "worker": {"replicas": 2, "template": pods}}
        return manifest("DeepSpeedJob", "deepspeed", {**spec, "runPolicy": run_policy})
    spec = {
        "torchConfig": {"procPerWorker": 1, "script": words},
        "replicaSpecs": [{"type": "worker", "replicas": 2, "template": pods}],
    }
    return manifest("ColossalAIJob", "colossalai", {**spec, "runPolicy": run_policy})


@in_soak
@pytest.mark.parametrize("kind", ["torchrun", "deepspeed", "colossalai"])
def test_ranks_that_a_launcher_starts_are_observed(made: Yard, kind: str) -> None:
    made.submit(launched(kind))
    until(lambda: hung(made, kind).get("reason", "-") != "-", f"{kind} is told", LONG_SECONDS)
    told = hung(made, kind)
    assert (told["status"], told["reason"]) == ("True", "Hung"), told
    replica = "worker-0" if kind == "torchrun" else "worker-1"
    assert told["message"].startswith(f"{replica} (rank 1) has not entered all_reduce #21"), told
    assert "# HANG" in named(told["message"])
    made.run("delete", kind, "--yes")


@in_soak
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
    status = made.end("ends", "Failed", LONG_SECONDS)
    assert condition(status, "Failed")["reason"] == "Hung"
    told = made.run("explain", "ends")
    assert "it hung: worker-1 (rank 1) has not entered" in told
    assert "# HANG" in named(told)
    assert "when it hung: worker-1 (rank 1) has not" in made.run("stacks", "ends")


@pytest.mark.parametrize("case", HEALTHY if SOAK else FEW)
def test_a_slow_job_is_never_said_to_hang(made: Yard, case: str) -> None:
    name = f"slow-{name_of(case)}"
    if case not in FEW:
        made.submit(job(name, case))
    made.end(name, "Succeeded", LONG_SECONDS)
    assert "Hung" not in events(made, name)


def test_a_job_that_is_not_to_be_observed_is_left_alone(made: Yard) -> None:
    show = template(
        ["sh", "-c", "env | grep -c -e TRAINYARD_OBSERVE -e ^PYTHONPATH=/t9k; ls -d /t9k/observer"]
    )
    made.submit(pytorch("alone", show, policy="Never", runPolicy={"observe": False}))
    made.end("alone", "Failed")
    assert made.run("logs", "alone").split()[0].endswith("0")


def test_stacks_of_a_process_that_nobody_observes_need_py_spy(made: Yard) -> None:
    program = "import time\ndef hold():\n    print('up', flush=True)\n    time.sleep(3600)\nhold()"
    made.submit(pytorch("isolated", template(["python", "-IS", "-c", program])))
    until(lambda: "up" in made.run("logs", "isolated", code=None), "it is up", LONG_SECONDS)
    told = made.run("stacks", "isolated")
    assert told.startswith("worker-0 (rank 0): is not observed")
    spy = shutil.which("py-spy", path=f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}")
    assert ("hold (<string>:4)" if spy else "pip install 'trainyard-jobs[stacks]'") in told
    made.run("delete", "isolated", "--yes")


def test_a_program_finds_what_it_would_find_by_its_own_path(made: Yard) -> None:
    library = made.data / "lib"
    library.mkdir()
    (library / "sitecustomize.py").write_text("print('its own')\n")
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "paths"},
        "data": {"PYTHONPATH": "/data/lib"},
    }
    code, answer = made.api.request("POST", "/api/v1/namespaces/default/configmaps", body)
    assert code == 201, answer
    show = ["python", "-c", "import os; print(os.environ['PYTHONPATH'])"]
    pods = template(show, envFrom=[{"configMapRef": {"name": "paths"}}])
    made.submit(pytorch("paths", pods))
    made.end("paths", "Succeeded")
    said = [line.rpartition(" ")[2] for line in made.run("logs", "paths").splitlines()]
    assert said == ["own", "/t9k/observer:/data/lib"]


def test_without_namespaces_a_job_is_observed_too_and_nothing_is_said_of_it(tmp_path: Path) -> None:
    show = "import os; first = os.environ['PYTHONPATH'].partition(':')[0]"
    line = CommandLine(tmp_path)
    body = pytorch("plain", {"spec": {"containers": [{"name": "main", "image": "x"}]}})
    (main,) = body["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"]
    main["command"] = ["python", "-c", f"{show}; print(*sorted(os.listdir(first)))"]
    said = line.run("run", "--isolation", "plain", "-f", line.manifest("plain.yaml", body))
    assert "sitecustomize.py trainyard_observer.zip\n" in said
    assert "VolumeNotMounted" not in said
    assert "are not permitted here, so volumes" not in said
