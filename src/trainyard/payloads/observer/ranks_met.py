"""Whether a process that is one of several works without the others, as its libraries have it.

Looks at what the program has imported, and imports nothing. Mounted into the user's image: standard
library, Python 3.8.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainyard.payloads.observer.rank_state import Frame

TORCH, ACCELERATE, MPI, JAX = "torch", "accelerate", "mpi4py", "jax"


def library_alone(*, is_certain: bool) -> str:
    """The library by which this process has no others, or "".

    torch may make a process group at any time, and so counts only where it `is_certain` that it is
    too late for that: the process trains, or ends. MPI and JAX know from their start on.
    """
    is_torch = "torch.distributed" in sys.modules
    if (is_torch and not is_certain) or _is_rpc_used():
        return ""
    if (size := _mpi_size()) or (size := _jax_size()):
        return "" if size > 1 else (MPI if _mpi_size() else JAX)
    if accelerate_is_alone():
        return ACCELERATE
    # What torch notes of a group stays when that is destroyed; old versions note nothing.
    group = sys.modules.get("torch.distributed.distributed_c10d")
    return TORCH if group is not None and getattr(group, "_backend", "") is None else ""


def accelerate_is_alone() -> bool:
    """Whether accelerate has found that there is one process only; it may have made a group, of
    which it then makes no use (1.15, without GPUs)."""
    module = sys.modules.get("accelerate.state")
    state: Any = getattr(getattr(module, "PartialState", None), "_shared_state", {})
    return str(getattr(state.get("distributed_type"), "value", "")) == "NO"


def is_training(frames: tuple[Frame, ...]) -> bool:
    """Whether the main thread computes gradients, or takes a step of an optimizer of torch's."""
    return any(
        (file.endswith("torch/autograd/__init__.py") and name == "backward")
        or (file.endswith("torch/optim/optimizer.py") and name == "wrapper")
        for file, _, name in frames
    )


def parameter_version(value: object) -> int | None:
    """How often the first parameter of an optimizer of torch's was changed; None of anything
    else."""
    optimizer = getattr(sys.modules.get("torch.optim.optimizer"), "Optimizer", None)
    if optimizer is None or optimizer not in type.mro(type(value)):
        return None
    try:
        (parameter, *_) = object.__getattribute__(value, "__dict__")["param_groups"][0]["params"]
    except (AttributeError, LookupError, TypeError, ValueError):  # a wrapper around another
        return None
    # A class of somebody else's would run code of theirs.
    is_plain = type(parameter).__module__ in ("torch", "torch.nn.parameter")
    return int(parameter._version) if is_plain else None


def _mpi_size() -> int:
    """0 where MPI does not run."""
    module = sys.modules.get("mpi4py.MPI")
    world = getattr(module, "COMM_WORLD", None)
    if module is None or world is None or not module.Is_initialized() or module.Is_finalized():
        return 0
    return int(world.Get_size())


def _jax_size() -> int:
    """0 where JAX has not begun to compute: until then it may join others."""
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    backends = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None)
    if state is None or not backends:
        return 0
    return 1 if state.client is None else int(state.num_processes or 1)


def _is_rpc_used() -> bool:
    """Whether torch.distributed.rpc connects processes, which needs no group."""
    module: Any = sys.modules.get("torch._C._distributed_rpc")
    return module is not None and bool(module._is_current_rpc_agent_set())
