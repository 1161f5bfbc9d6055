"""What a program has printed is in its log, however it ends, although Python would hold it back."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.embedded.command_line import CommandLine, job, until
from tests.embedded.lifecycle_yard import Yard, yard
from tests.tools import require
from trainyard.api.scripts import script_objects
from trainyard.kinds.kind_registry import kinds_by_launcher
from trainyard.kinds.shared.script import Script

IS_ALL = os.environ.get("TRAINYARD_SOAK") == "1"
SCRIPT = """\
import os, pathlib, sys, time
name = sys.argv[-1]
if os.environ.get("RANK", "0") == str(int(os.environ.get("WORLD_SIZE", "1")) - 1):
    pathlib.Path("/proc/self/comm").write_text(name[:15])
    for i in range(20): print("step", i, "loss", .5)
    pathlib.Path("printed-" + name).touch()
    held = bytearray(3 << 30) if name.startswith("oom") else b""
time.sleep(10000)
"""
"""The last rank prints, and has the job's name for a process name."""
WANTED = [f"step {number} loss 0.5" for number in range(20)]
ENDS = ("kill", "pause", "deadline", "oom", "evict")
DISRUPTION = "EvictionByEvictionAPI"
EACH_TIME = ("plain", "none", "plain-u", "none-u")
"""Forms in which the manifest, and no launcher, decides how Python starts."""
LAUNCHED = {
    "kill": ("deepspeed",),
    "pause": ("colossalai",),
    "deadline": ("torchrun",),
    "oom": ("deepspeed",),
    "evict": ("colossalai",),
}
"""Those that take long to start: one an end, all of them where there is time."""
DEADLINE_SECONDS = (15, 60, 300)
"""A deadline that comes before the script has printed is too short for this machine."""
ENDED_BY = {"kill": 137, "deadline": "DeadlineExceeded", "oom": 137, "evict": DISRUPTION}
"""Reason or exit code of the attempt."""
BY_EVICTION = [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    for program in ("torchrun", "deepspeed", "pdsh", "colossalai", "sshd", "ssh"):
        require(program)
    with yard(tmp_path_factory.mktemp("output")) as made:
        (made.folder / "lost.py").write_text(SCRIPT)
        yield made


def forms(end: str) -> tuple[str, ...]:
    """The forms of launch to be tried with an end. A ColossalAIJob has no deadline."""
    launched = ("torchrun", "deepspeed", "colossalai") if IS_ALL else LAUNCHED[end]
    return (*EACH_TIME, *(each for each in launched if (end, each) != ("deadline", "colossalai")))


def manifest(name: str, form: str, end: str, deadline: int) -> dict[str, Any]:
    """A job that may not restart, over ssh of two replicas."""
    launcher, _, unbuffered = form.partition("-")
    text = script_objects.text(
        Script(
            name=name,
            target="lost.py",
            arguments=[name],
            launcher=launcher,
            replicas=2 if launcher in ("deepspeed", "colossalai") else 1,
            image=kinds_by_launcher()[launcher].image,
            timeout_seconds=deadline if end == "deadline" else None,
        )
    )
    made: dict[str, Any] = yaml.safe_load(text)
    if end == "evict":
        made["spec"].setdefault("runPolicy", {})["podFailurePolicy"] = {"rules": BY_EVICTION}
    for template in templates(made):
        template["spec"]["terminationGracePeriodSeconds"] = 1
        (container,) = template["spec"]["containers"]
        if unbuffered:
            container["command"].insert(1, "-u")
        if end == "oom":
            container["resources"] = {"limits": {"memory": "2Gi"}}
    return made


def templates(node: Any) -> Iterator[dict[str, Any]]:
    """Pod templates with containers."""
    if isinstance(node, dict):
        if (node.get("spec") or {}).get("containers"):
            yield node
        for value in node.values():
            yield from templates(value)
    elif isinstance(node, list):
        for value in node:
            yield from templates(value)


def printing(cluster: Yard, name: str) -> int:
    """The process that prints."""
    for pid in cluster.processes(name):
        with contextlib.suppress(OSError):  # it has ended
            if Path(f"/proc/{pid}/comm").read_text().strip() == name[:15]:
                return pid
    raise AssertionError(f"{name} does not run")


def evict(cluster: Yard, name: str) -> None:
    """The pod of the rank that prints, by the API, as `kubectl drain` does."""
    pods = cluster.pods(name)
    pod = pods.get("worker-1") or next(iter(pods.values()))
    metadata = {"name": pod["metadata"]["name"], "namespace": "default"}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = f"/api/v1/namespaces/default/pods/{metadata['name']}/eviction"
    code, answer = cluster.api.request("POST", path, body)
    assert code == 201, answer


@pytest.mark.parametrize("end", ENDS)
def test_lines_before_an_end_are_in_the_log(cluster: Yard, end: str) -> None:
    waiting = {f"{end}-{form}": form for form in forms(end)}
    for deadline in DEADLINE_SECONDS:
        made = [manifest(name, form, end, deadline) for name, form in waiting.items()]
        cluster.submit(*made)
        for name in waiting:
            until(
                lambda name=name: has_printed(cluster, name) or cluster.phase(name) == "Failed",
                f"{name} prints",
            )
        missed = {name: form for name, form in waiting.items() if not has_printed(cluster, name)}
        done = [name for name in waiting if name not in missed]
        if end == "pause":
            cluster.run("pause", *done)
        for name in done:
            if end == "kill":
                os.kill(printing(cluster, name), signal.SIGKILL)
            elif end == "evict":
                evict(cluster, name)
        for name in done:
            if end == "pause":
                cluster.run("wait", name, "--for", "phase=Paused")
            else:
                cluster.run("wait", name, code=1)
                (attempt,) = cluster.status(name)["attempts"]
                assert ENDED_BY[end] in (attempt["reason"], attempt.get("exitCode")), attempt
            # Over ssh the ranks of all replicas write into one log.
            rank = ("--rank", "1") if waiting[name] in ("deepspeed", "colossalai") else ()
            text = cluster.run("logs", name, *rank)
            said = re.findall(r"step \d+ loss 0\.5$", text, re.MULTILINE)
            assert said == WANTED, name
        cluster.run("delete", *waiting, "--wait")
        if not (waiting := missed):
            return
    pytest.fail(f"{', '.join(waiting)} did not print in time")


def has_printed(cluster: Yard, name: str) -> bool:
    return (cluster.folder / f"printed-{name}").exists()


def test_lines_of_one_rank_are_shown_wherever_it_runs(trainyard: CommandLine) -> None:
    """Two in one replica, by their tags; two in replicas of their own, by the replica."""
    (trainyard.folder / "ranks.py").write_text("import os\nprint('I am', os.environ['RANK'])\n")
    together = job(
        "together",
        container={"args": ["ranks.py"]},
        torchrunConfig={"enabled": True, "procPerNode": "2"},
    )
    apart = job("apart", ["python", "ranks.py"], replicas=2)
    trainyard.run("up")
    trainyard.run("submit", "-f", trainyard.manifest("jobs.yaml", together, apart))
    trainyard.run("wait", "together", "apart")
    assert trainyard.run("logs", "together", "--rank", "1") == "[rank1]: I am 1\n"
    assert trainyard.run("logs", "apart", "--rank", "1") == "I am 1\n"
    assert "no line names rank 7" in trainyard.run("logs", "together", "--rank", "7")
    assert trainyard.run("logs", "together", "-f", "--rank", "0") == "[rank0]: I am 0\n"
    trainyard.run("down")


def is_told(cluster: Yard, name: str) -> bool:
    """Whether the story of its end is complete."""
    said = cluster.run("explain", name)
    return "asked to end (SIGTERM)" in said and TOLD[name] in said


TOLD = {
    "alone": "killed after their grace period: worker-0",
    "below": "the shell keeps SIGTERM from python",
}


def test_explain_tells_who_was_asked_to_end_and_who_had_to_be_killed(cluster: Yard) -> None:
    (cluster.folder / "deaf.py").write_text(
        "import pathlib, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "pathlib.Path('deaf').touch()\n"
        "time.sleep(10000)\n"
    )
    brief = {"terminationGracePeriodSeconds": 1}
    alone = job("alone", ["python", "deaf.py"], pod=brief)
    below = job("below", ["bash", "-c", "python deaf.py | cat"], pod=brief)
    for made in (alone, below):
        name = made["metadata"]["name"]
        cluster.submit(made)
        until((cluster.folder / "deaf").exists, f"{name} runs")
        (cluster.folder / "deaf").unlink()
        cluster.run("pause", name)
        until(lambda name=name: is_told(cluster, name), f"{name} is explained")
        said = cluster.run("explain", name)
        cluster.run("delete", name, "--wait")
        assert said.count(TOLD[name]) == 1
