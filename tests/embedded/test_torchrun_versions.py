"""What runs in the place of torchrun, with the agents of several versions of torch.

The pinned version is always tried. In a soak the agents (`torch.distributed.elastic`) of others are
laid over it, from wheels for another processor, which are small; what they call in C++ is then the
pinned version's. `TRAINYARD_TORCH_BINS` names the `bin` folders of environments with whole other
versions, as in a PATH.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.embedded.torchrun_launching import (
    BIN,
    STAY,
    TIMEOUT_SECONDS,
    exit_code,
    free_port,
    launch,
)
from tests.tools import require, soak
from trainyard.kinds.pytorch.torchrun_launch import REJOIN_ENV

AGENTS = ("2.1.2", "2.4.1", "2.9.1")
"""Versions whose agents are laid over the pinned torch in a soak."""
_OWN = ("elastic", "launcher", "run.py", "argparse_util.py")
_USED = "numa"
"""What agents are made of in `torch/distributed`, and what they use in `torch`."""
_CACHE = Path(__file__).parents[2] / ".cache" / "torch-agents"
TRAIN = """\
import os, time
import torch.distributed as dist
dist.init_process_group("gloo")
print("met", os.environ["WORLD_SIZE"], flush=True)
if os.environ["WORLD_SIZE"] == "2":
    if "LEAVES" in os.environ:
        time.sleep(600)
    dist.barrier()
"""


class Torch(NamedTuple):
    """Where a version is: the folder of its programs, and variables that it needs."""

    bin: Path
    env: Mapping[str, str]


def torches() -> list[object]:
    given = filter(None, os.environ.get("TRAINYARD_TORCH_BINS", "").split(":"))
    return ["pinned", *AGENTS[: soak(0, len(AGENTS))], *given]


def agents_of(version: str) -> Path:
    """A folder for PYTHONPATH: the torch of this Python with the agents of another version."""
    folder = _CACHE / version
    if (folder / "torch").exists():
        return folder
    platforms = ("manylinux2014_aarch64", "manylinux_2_28_aarch64")
    chosen = [f"--platform={platform}" for platform in platforms]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*command, *chosen, "-d", str(folder), f"torch=={version}"], check=True)
    draft = folder / "draft"
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    pinned = Path(found.origin).parent
    for part, own in (("torch", ("distributed", _USED)), ("torch/distributed", _OWN)):
        (draft / part).mkdir(parents=True)
        for each in (pinned.parent / part).iterdir():
            if each.name not in (*own, "__pycache__"):
                (draft / part / each.name).symlink_to(each)
    (wheel,) = folder.glob("torch-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        own_names = (f"torch/{_USED}/", *(f"torch/distributed/{each}" for each in _OWN))
        archive.extractall(draft, [n for n in archive.namelist() if n.startswith(own_names)])
    wheel.unlink()
    (draft / "torch").rename(folder / "torch")
    return folder


@pytest.fixture(params=torches(), scope="module")
def torch(request: pytest.FixtureRequest) -> Torch:
    require("torchrun")
    if request.param == "pinned":
        return Torch(BIN, {})
    if request.param in AGENTS:
        return Torch(BIN, {"PYTHONPATH": str(agents_of(request.param))})
    return Torch(Path(request.param), {})


def test_a_launch_ends_with_the_code_of_its_rank(tmp_path: Path, torch: Torch) -> None:
    (tmp_path / "train.py").write_text("import os; os.kill(os.getpid(), 9)")
    path = f"{torch.bin}:{os.environ['PATH']}"
    with launch(tmp_path, "train.py", path=path, env=torch.env) as process:
        output = process.communicate(timeout=TIMEOUT_SECONDS)[0].decode()
    assert process.returncode == 137, output
    assert "this torch has no" not in output


def test_an_agent_that_waits_for_the_others_leaves_on_sigterm(tmp_path: Path, torch: Torch) -> None:
    (tmp_path / "stay.py").write_text(STAY)
    port, path = free_port(), f"{torch.bin}:{os.environ['PATH']}"
    with (
        launch(tmp_path, "stay.py", "stay", nodes=2, port=port, path=path, env=torch.env),
        launch(
            *(tmp_path, "stay.py", "go"),
            nodes=2,
            port=port,
            path=path,
            env=torch.env,
            log_level="INFO",
        ) as process,
    ):
        assert process.stdout is not None
        assert any(b"seconds for other agents to finish" in line for line in process.stdout)
        process.terminate()
        assert exit_code(process) == 143


def test_a_member_that_leaves_is_missed_and_the_others_go_on(tmp_path: Path, torch: Torch) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    env = {**torch.env, **REJOIN_ENV, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "2"}
    given = {
        "nodes": "1:2",
        "elastic": True,
        "port": free_port(),
        "path": f"{torch.bin}:{os.environ['PATH']}",
    }
    with launch(tmp_path, "train.py", env=env, **given) as stays:
        time.sleep(1)  # it is to have the rendezvous, which the other would take along
        with launch(tmp_path, "train.py", env={**env, "LEAVES": "1"}, **given) as leaves:
            assert stays.stdout is not None
            lines = []
            for line in stays.stdout:
                lines.append(line.decode())
                if lines[-1] == "met 2\n":
                    leaves.terminate()
            assert (exit_code(leaves), exit_code(stays)) == (143, 0), lines
    assert [line for line in lines if line.startswith("met")] == ["met 2\n", "met 1\n"], lines
    assert not any("this torch has no" in line for line in lines), lines
