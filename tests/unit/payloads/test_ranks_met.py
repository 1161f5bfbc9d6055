"""Whether a process works without others, as its libraries have it.

Modules of their names stand for the libraries, with what these have in the place that is read.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from trainyard.payloads.observer import ranks_met

LIBRARIES = ("torch.distributed", "torch.distributed.distributed_c10d", "torch.optim.optimizer")


@pytest.fixture(autouse=True)
def _none_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*LIBRARIES, "mpi4py.MPI", "accelerate.state", "torch._C._distributed_rpc"]:
        monkeypatch.delitem(sys.modules, name, raising=False)


def has(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> None:
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(**contents))  # type: ignore[arg-type]


def alone(*, is_certain: bool = False) -> str:
    return ranks_met.library_alone(is_certain=is_certain)


def mpi(size: int, *, runs: bool = True, ended: bool = False) -> dict[str, Any]:
    world = SimpleNamespace(Get_size=lambda: size)
    return {
        "COMM_WORLD": world,
        "Is_initialized": lambda: runs,
        "Is_finalized": lambda: ended,
    }


def test_torch_is_asked_only_once_it_is_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    assert alone(is_certain=True) == ""
    has(monkeypatch, "torch.distributed")
    has(monkeypatch, "torch.distributed.distributed_c10d", _backend=None)
    assert alone() == ""
    assert alone(is_certain=True) == "torch"
    has(monkeypatch, "torch._C._distributed_rpc", _is_current_rpc_agent_set=lambda: True)
    assert alone(is_certain=True) == ""


def test_a_group_that_accelerate_does_not_use_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, "torch.distributed")
    has(monkeypatch, "torch.distributed.distributed_c10d", _backend="gloo")
    assert alone(is_certain=True) == ""
    for kind, found in (("NO", "accelerate"), ("MULTI_CPU", "")):
        state = SimpleNamespace(_shared_state={"distributed_type": SimpleNamespace(value=kind)})
        has(monkeypatch, "accelerate.state", PartialState=state)
        assert alone(is_certain=True) == found
    has(monkeypatch, "accelerate.state", PartialState=SimpleNamespace(_shared_state={}))
    assert alone(is_certain=True) == ""


@pytest.mark.parametrize(
    ("world", "found"),
    [
        (mpi(1), "mpi4py"),
        (mpi(2), ""),
        (mpi(1, runs=False), ""),
        (mpi(1, ended=True), ""),
        ({}, ""),  # it is being imported
    ],
)
def test_mpi_knows_how_many_there_are(
    monkeypatch: pytest.MonkeyPatch, world: dict[str, Any], found: str
) -> None:
    has(monkeypatch, "mpi4py.MPI", **world)
    assert alone() == found


def test_torch_beside_mpi_is_no_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, "torch.distributed")
    has(monkeypatch, "torch.distributed.distributed_c10d", _backend=None)
    has(monkeypatch, "mpi4py.MPI", **mpi(4))
    assert alone(is_certain=True) == ""


@pytest.mark.parametrize(
    ("client", "count", "backends", "found"),
    [
        (None, 1, {"cpu": 1}, "jax"),
        (None, 1, {}, ""),  # it may yet be initialized
        (object(), 2, {"cpu": 1}, ""),
    ],
)
def test_jax_is_asked_once_it_computes(
    monkeypatch: pytest.MonkeyPatch, client: object, count: int, backends: object, found: str
) -> None:
    state = SimpleNamespace(client=client, num_processes=count)
    has(monkeypatch, "jax._src.distributed", global_state=state)
    has(monkeypatch, "jax._src.xla_bridge", _backends=backends)
    assert alone() == found


@pytest.mark.parametrize(
    ("frame", "found"),
    [
        (("/s/torch/autograd/__init__.py", 1, "backward"), True),
        (("/s/torch/optim/optimizer.py", 1, "wrapper"), True),
        (("/s/torch/optim/lr_scheduler.py", 1, "step"), False),
        (("/w/autograd/__init__.py", 1, "backward"), False),
    ],
)
def test_training_is_seen_by_its_frames(frame: tuple[str, int, str], found: bool) -> None:
    assert ranks_met.is_training((("/w/train.py", 3, "main"), frame)) is found


def test_a_parameter_of_an_optimizer_has_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    class Optimizer:
        def __init__(self, parameters: list[object]) -> None:
            self.param_groups = [{"params": parameters}]

    class Parameter:
        _version = 7

    Parameter.__module__ = "torch.nn.parameter"
    assert ranks_met.parameter_version(Optimizer([Parameter()])) is None
    has(monkeypatch, "torch.optim.optimizer", Optimizer=Optimizer)
    assert ranks_met.parameter_version(Optimizer([Parameter()])) == 7
    Parameter.__module__ = "mine"
    assert ranks_met.parameter_version(Optimizer([Parameter()])) is None
    assert ranks_met.parameter_version(Optimizer([])) is None
    assert ranks_met.parameter_version(object.__new__(Optimizer)) is None
    assert ranks_met.parameter_version(Optimizer) is None
