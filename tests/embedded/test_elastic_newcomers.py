"""Newcomers of an elastic PyTorchTrainingJob that fail, under real torchrun: nobody else pays.

The scripts do without torch, which would only cost time: they tell of their start, and a newcomer's
ends at once. `maxRestarts` 0 lets an agent give up with its first rank.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.embedded.command_line import Object, until
from tests.embedded.launching import require_programs
from tests.embedded.lifecycle_yard import (
    ENDS,
    START_SECONDS,
    Yard,
    condition,
    ends_of,
    pytorch,
    template,
    yard,
)

IS_SOAK = os.environ.get("TRAINYARD_SOAK") == "1"

SCRIPT = """\
import os, pathlib, socket, sys, time
folder, code, first = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
folder.mkdir(exist_ok=True)
with open(folder / "starts", "a") as file:
    file.write(os.environ["RANK"] + " " + os.environ["WORLD_SIZE"] + "\\n")
if int(socket.gethostname().rpartition("-")[2]) >= first:
    sys.exit(code)
while not (folder / "enough").exists():
    time.sleep(0.1)
"""


@pytest.fixture
def cluster(tmp_path: Any) -> Iterator[Yard]:
    require_programs("torchrun")
    with yard(tmp_path) as made:
        made.file("train.py").write_text(SCRIPT)
        yield made


def _job(name: str, policy: str, budget: int, code: int, *, fails_from: int = 2) -> Object:
    """Two replicas of at most four; those from `fails_from` on end with the code at once."""
    arguments = ["/data/train.py", f"/data/{name}", str(code), str(fails_from)]
    return pytorch(
        name,
        template(arguments),
        replicas=2,
        policy=policy,
        runPolicy={"backoffLimit": budget},
        torchrunConfig={
            "enabled": True,
            "maxRestarts": 0,
            "extraOptions": ["--rdzv_conf", "last_call_timeout=1,keep_alive_interval=1"],
        },
        elastic={"enabled": True, "minReplicas": 1, "maxReplicas": 4, "expectedReplicas": 2},
    )


def _await_world(cluster: Yard, name: str, size: int) -> None:
    wanted = [f"{rank} {size}" for rank in range(size)]
    try:
        until(
            lambda: sorted(cluster.lines(name, "starts")[-size:]) == wanted,
            f"the last world of {name} is of {size}",
        )
    except AssertionError as error:
        raise AssertionError(f"{error}\n{cluster.story(name)}") from None


def test_a_newcomer_that_fails_pays_alone_and_the_others_keep_their_pods(cluster: Yard) -> None:
    """Under Never, OnFailure with a budget of 1, and ExitCode; then the others go on without it."""
    jobs = {"never": ("Never", 3, 1), "once": ("OnFailure", 1, 1), "code": ("ExitCode", 1, 137)}
    spent = {"never": 0, "once": 1, "code": 1}
    cluster.submit(*(_job(name, *how) for name, how in jobs.items()))
    for name in jobs:
        _await_world(cluster, name, 2)
    before = {name: cluster.uids(name) for name in jobs}
    for name in jobs:
        cluster.run("scale", name, "--replicas", "3")
    for name, (_, _, code) in jobs.items():
        until(
            lambda name=name: cluster.status(name)["aggregate"]["failed"] == 1,  # type: ignore[misc]
            f"{name} has lost its newcomer",
        )
        _await_world(cluster, name, 2)
        uids, status = cluster.uids(name), cluster.status(name)
        assert {r: uids[r] for r in before[name]} == before[name], cluster.story(name)
        assert status["phase"] == "Running"
        assert status["backoffCount"] == status["tasks"][0]["restartCount"] == spent[name]
        ends = [("", None)] + [("worker-2", code)] * spent[name] + [("", None)]
        assert ends_of(status) == ends
        assert "worker-2] exited with error code" in condition(status, "ReplicaFailure")["message"]
        assert "taken away" not in cluster.run("events", name)
    cluster.file("train.py").write_text(SCRIPT.replace("sys.exit(code)", "pass"))
    cluster.run("scale", "never", "--replicas", "4")
    _await_world(cluster, "never", 4)
    uids = cluster.uids("never")
    assert {r: uids[r] for r in before["never"]} == before["never"]
    assert cluster.status("never")["aggregate"]["running"] == 4, "what was lost is back"
    for name in jobs:
        cluster.file(name, "enough").touch()
        cluster.end(name, "Succeeded")


@pytest.mark.skipif(not IS_SOAK, reason="takes a minute; set TRAINYARD_SOAK=1")
@pytest.mark.parametrize(("policy", "spent"), [("Never", 0), ("OnFailure", 1), ("ExitCode", 1)])
def test_a_job_that_is_scaled_every_ten_seconds_ends_by_its_own_policy(
    cluster: Yard, policy: str, spent: int
) -> None:
    cluster.submit(_job("scaled", policy, 1, 137, fails_from=0))
    sizes, due = [3, 2], time.monotonic()
    limit = due + 10 * START_SECONDS
    while cluster.phase("scaled") not in ENDS and time.monotonic() < limit:
        if time.monotonic() >= due:
            cluster.run("scale", "scaled", "--replicas", str(sizes[0]), code=None)
            sizes, due = sizes[::-1], due + 10
        time.sleep(0.1)
    status = cluster.end("scaled", "Failed", 0.1)
    assert status["backoffCount"] == spent
