"""What torch itself says where it is asked for a GPU that is not there, and what that means."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from trainyard.diagnosis.log_meanings import find_meaning

_CALLS = [
    "torch.cuda.set_device(0)",
    "torch.cuda.current_device()",
    "torch.cuda.get_device_properties(0)",
    "torch.cuda.mem_get_info()",
    "torch.cuda.synchronize()",
    "torch.cuda.Stream()",
    "torch.cuda.Event()",
    "torch.cuda.CUDAGraph()",
    "torch.cuda.device(0).__enter__()",
    "torch.cuda.reset_peak_memory_stats()",
    "torch.cuda.nccl.version()",
    "torch.accelerator.set_device_index(0)",
    "torch.ones(1).cuda()",
    "torch.ones(1).cuda(0)",
    'torch.ones(1).to("cuda")',
    "torch.ones(1).to(0)",
    'torch.ones(1, device="cuda:0")',
    "torch.ones(1).pin_memory()",
    "torch.nn.Linear(2, 2).to(0)",
    "torch.nn.Linear(2, 2).cuda()",
    'dist.init_process_group("nccl", rank=0, world_size=1, store=dist.HashStore())',
]
_PROGRAM = """
import json, sys, torch, torch.distributed as dist
for call in json.loads(sys.argv[1]):
    try:
        eval(call)
    except Exception as error:
        print(json.dumps([call, f"{type(error).__name__}: {error}"]))
if torch.cuda.is_available():
    print(json.dumps(["", ""]))
"""
_ALONE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2), device_ids=[0])
"""


def said_by(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_whatever_asks_for_a_gpu_is_understood() -> None:
    pytest.importorskip("torch")
    done = said_by(_PROGRAM, json.dumps(_CALLS))
    results = dict(map(json.loads, done.stdout.splitlines()))
    if "" in results:
        pytest.skip("there is a GPU")
    assert set(results) == set(_CALLS), done.stderr
    meanings = {call: find_meaning(text) for call, text in results.items()}
    unknown = {call: results[call] for call, found in meanings.items() if found is None}
    assert not unknown
    assert {found.what.rpartition(", ")[0] for found in meanings.values() if found} == {
        "it asks for CUDA",
        "NCCL is for GPUs, and there is none where it runs",
    }


def test_device_ids_of_a_model_on_the_cpu_are_understood() -> None:
    pytest.importorskip("torch")
    found = find_meaning(said_by(_ALONE).stderr)
    assert found is not None
    assert found.what.startswith("DistributedDataParallel is given a GPU by device_ids")
