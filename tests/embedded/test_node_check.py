"""Nodes that are checked before the start, by real torch, in real pods."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.embedded.command_line import Object, until
from tests.embedded.launching import require_programs
from tests.embedded.lifecycle_yard import START_SECONDS, Yard, pytorch, shared_yard, template

CHECKED = {"nodeCheck": {"enabled": True}}
SLOW = """\
import importlib.abc, sys, time

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torch.distributed":
            torch, right = sys.modules["torch"], sys.modules["torch"].Tensor.__matmul__
            def slowly(one, other):
                began = time.thread_time()
                while time.thread_time() - began < 0.6:
                    pass
                return right(one, other)
            torch.Tensor.__matmul__ = slowly
            sys.meta_path.remove(self)

sys.meta_path.insert(0, Finder())
"""
"""What makes a Python that imports torch compute as a core that is far slower would."""


cluster = shared_yard("node-check")


def command(name: str) -> list[str]:
    """Writes that it has started, and with what signals it was."""
    found = "int(signal.getsignal(signal.SIGTERM))"
    script = f"import signal; print({found}, file=open('/data/{name}', 'a'))"
    return [sys.executable, "-c", script]


def ended(cluster: Yard, name: str, replicas: int) -> Object:
    """The check, in the status of a job whose commands have all started."""
    until(lambda: len(cluster.lines(name)) == replicas, "all start", START_SECONDS)
    status = cluster.end(name, "Succeeded")
    found = status["nodeCheck"]
    assert isinstance(found, dict)
    assert found["state"] != "Checking", cluster.story(name)
    assert "members" not in found
    return found


@pytest.mark.parametrize("replicas", [1, 3])
def test_all_are_tried_with_each_other_and_then_start(cluster: Yard, replicas: int) -> None:
    name = f"check-{replicas}"
    policy = {**CHECKED, "successPolicy": "AllReplicas"}
    cluster.submit(pytorch(name, template(command(name)), replicas=replicas, runPolicy=policy))
    found = ended(cluster, name, replicas)
    assert found["state"] == "Passed", cluster.story(name)
    assert ("all-reduce" in found["message"]) == (replicas > 1)
    assert set(cluster.lines(name)) == {"0"}
    assert "have passed their check" in cluster.run("events", name)
    assert "Passed, " in cluster.run("show", name)


def test_torchrun_starts_after_it(cluster: Yard) -> None:
    require_programs("torchrun")
    name = "check-torchrun"
    script = cluster.data / f"{name}.py"
    script.write_text(f"open('/data/{name}', 'a').write('started\\n')\n")
    pods = template([f"/data/{script.name}"])
    policy = {**CHECKED, "successPolicy": "AllReplicas"}
    config = {"enabled": True}
    cluster.submit(pytorch(name, pods, replicas=2, runPolicy=policy, torchrunConfig=config))
    assert ended(cluster, name, 2)["state"] == "Passed", cluster.story(name)


def odd_one(cluster: Yard, name: str, module: str, text: str) -> Object:
    """Three replicas, the last of which finds a module of its own."""
    folder: Path = cluster.data / f"{name}-path"
    folder.mkdir()
    (folder / module).write_text(text)
    usual = template(command(name))
    odd = template(command(name))
    odd["spec"]["containers"][0]["env"] = [{"name": "PYTHONPATH", "value": f"/data/{folder.name}"}]
    policy = {**CHECKED, "successPolicy": "AllReplicas"}
    job = pytorch(name, usual, replicas=2, runPolicy=policy)
    job["spec"]["replicaSpecs"].append({"type": "odd", "replicas": 1, "template": odd})
    cluster.submit(job)
    return ended(cluster, name, 3)


def test_a_node_that_computes_slowly_is_named(cluster: Yard) -> None:
    name = "check-slow"
    found = odd_one(cluster, name, "sitecustomize.py", SLOW)
    assert found["state"] == "BadNodes", cluster.story(name)
    (bad,) = found["badNodes"]
    assert bad["replica"].endswith("-odd-0")
    assert bad["node"]
    assert "its matmul took" in bad["reason"]
    assert "BadNodes, " in cluster.run("show", name)


def test_an_image_without_torch_is_told_of_and_starts(cluster: Yard) -> None:
    name = "check-none"
    found = odd_one(cluster, name, "torch.py", "raise ImportError('there is none here')\n")
    assert found["state"] == "Incomplete", cluster.story(name)
    assert found["message"].startswith("1 of 3 replicas were not tested, odd-0 first")
    assert "there is none here" in found["message"]
