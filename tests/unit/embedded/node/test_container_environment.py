"""The environment a container starts with."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.embedded.node.containers.container_environment import host_name, image_environment
from trainyard.embedded.node.node_settings import NodeSettings


def settings(tmp_path: Path, **environment: str) -> NodeSettings:
    return NodeSettings("n", str(tmp_path), environment=environment, python_prefix="/py", gpus=())


@pytest.mark.parametrize(
    "name", ["MASTER_ADDR", "RANK", "WORLD_SIZE", "PET_NNODES", "TORCHELASTIC_RUN_ID", "HOSTNAME"]
)
def test_another_jobs_variables_are_not_inherited(tmp_path: Path, name: str) -> None:
    env = image_environment("any", settings(tmp_path, **{name: "x", "NCCL_DEBUG": "y"}))
    assert name not in env
    assert env["NCCL_DEBUG"] == "y"


def test_a_long_host_name_is_cut_as_kubernetes_does() -> None:
    pod = {"metadata": {"name": "a" * 62 + "-b"}, "spec": {}}
    assert host_name(pod) == "a" * 62
