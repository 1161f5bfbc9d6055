"""Options of torchrun in `extraOptions` and before the script, beside those that the job makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainyard.kinds.pytorch.spec import TorchrunConfig
from trainyard.kinds.shared import job_rules
from trainyard.kinds.shared.launch import torchrun_options
from trainyard.schema.problems import Path, Problem, warning

_CONFIG: Path = ("spec", "torchrunConfig")
_GENERATED = {
    "nnodes": "is the number of replicas",
    "nproc_per_node": "torchrunConfig.procPerNode sets",
    "rdzv_backend": "torchrunConfig.rdzvBackend sets",
    "rdzv_endpoint": "is the address of rank 0",
    "rdzv_id": "all replicas of the job share",
    "role": "is the replica type",
}
_MAX_RESTARTS = {"max_restarts": "torchrunConfig.maxRestarts sets"}
_STATIC = "has no effect: it is for rdzv_backend static, the replicas meet at rdzv_endpoint"
_REMARKS = {
    "standalone": "makes each replica train by itself",
    **dict.fromkeys(("node_rank", "master_addr", "master_port"), _STATIC),
}


def check(config: TorchrunConfig) -> Iterator[Problem]:
    """Every problem of `extraOptions`, and a rendezvous that nobody serves."""
    path = (*_CONFIG, "extraOptions")
    words = config.extra_options
    yield from torchrun_options.check_stray_words(words, path, "the args of the training container")
    yield from torchrun_options.check(words, path, _generated(config), _REMARKS)
    named = {name for _, name in torchrun_options.options(words)}
    if _needs_endpoint(config) and "rdzv_endpoint" not in named:
        message = (
            f"{config.rdzv_backend} is not run by the job, and without an endpoint replicas look "
            "for it at rank 0; give extraOptions --rdzv_endpoint=HOST:PORT"
        )
        yield warning((*_CONFIG, "rdzvBackend"), message)


def check_args(config: TorchrunConfig, words: Sequence[str], path: Path) -> Iterator[Problem]:
    """Problems of torchrun's own options in the args of the training container."""
    ours = torchrun_options.before_script(words)
    yield from torchrun_options.check(ours, path, _generated(config), _REMARKS)
    if not ours:
        yield from job_rules.check_script(words, path)


def _needs_endpoint(config: TorchrunConfig) -> bool:
    return config.rdzv_backend != "c10d"


def _generated(config: TorchrunConfig) -> dict[str, str]:
    found = dict(_GENERATED)
    if config.max_restarts is not None:
        found |= _MAX_RESTARTS
    if _needs_endpoint(config):
        del found["rdzv_endpoint"]
    return found
