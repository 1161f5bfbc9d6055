"""The model of NCCL's recorder writes as torch's own recorders do, and what is read of any of them.

torch of this environment is looked at always; in a soak each version of `VERSIONS` is installed for
it. `TRAINYARD_TORCH_BINS` names the `bin` folders of environments with others, as in a PATH.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.nccl.recorder import NcclRecorder
from tests.tools import soak
from trainyard.payloads.observer import flight_recorders

VERSIONS = ("2.4.1", "2.6.0", "2.8.0", "2.10.0", "2.12.1", "2.14.1")
"""Builds for CUDA, of gigabytes each: they can be imported without a GPU."""
PROBE = """\
import json, os, sys, time
import torch, torch.distributed as dist
from trainyard.payloads.observer import flight_recorders as found
import torch._C._distributed_c10d as c10d
found.turn_on(os.environ)
shown = {"torch": torch.__version__, "recorders": found.recorders(), "empty": {}}
for name, function in found.recorders().items():
    shown["empty"][name] = found._read(found._dump(function, True))
shown["variables"] = {k: v for k, v in os.environ.items() if k.startswith("TORCH_")}
store = dist.HashStore()
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
dist.all_reduce(torch.ones(3))
until = time.monotonic() + 60  # a thread of gloo's notes the end
while any(b > c for _, b, c in found.counts()) and time.monotonic() < until:
    time.sleep(0.01)
shown |= {"counts": found.counts(), "collectives": found.last_collectives()}
shown["entries"] = found.last_entries()
shown["unobserved"] = found.unobserved(os.environ)
print(json.dumps(shown))
"""
SOURCE = Path(__file__).parents[2] / "src"
VERSION_KEYS = {"comm_lib_version", "nccl_version"}
"""Of the library, whose version torch tells since 2.7, by another name since 2.10."""
KEYS = {"version", "pg_config", "pg_status", "comm_lib_version", "nccl_comm_state", "entries"}


def torches() -> list[str]:
    given = os.environ.get("TRAINYARD_TORCH_BINS", "").split(":")
    return ["pinned", *VERSIONS[: soak(0, len(VERSIONS))], *filter(None, given)]


@pytest.fixture(params=torches(), scope="module")
def shown(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """What a torch shows of its recorders."""
    folder = tmp_path_factory.mktemp("torch")
    python = Path(sys.executable)
    if request.param in VERSIONS:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        python = folder / "bin" / "python"
        install = [str(python), "-m", "pip", "install", "-q", "--no-cache-dir"]
        subprocess.run([*install, f"torch=={request.param}", "numpy<2"], check=True)
    elif request.param != "pinned":
        python = Path(request.param) / "python"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE)}
    command = [str(python), "-W", "ignore", "-c", PROBE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    yield json.loads(done.stdout.splitlines()[-1])  # gloo may say something before
    shutil.rmtree(folder)


def _has_gloo(shown: dict[str, Any]) -> bool:
    return "fr" in shown["recorders"]


def test_each_torch_has_the_recorders_and_names_that_are_read(shown: dict[str, Any]) -> None:
    print(shown["torch"], ", ".join(shown["recorders"].values()), shown["unobserved"])
    is_for_cuda = "+cpu" not in shown["torch"]
    assert ("nccl" in shown["recorders"]) == is_for_cuda
    assert _has_gloo(shown) or is_for_cuda
    if _has_gloo(shown):
        assert shown["unobserved"] == ""
        assert shown["counts"] == [["0", 1, 1]]
        [only] = shown["collectives"]
        assert (only["operation"], only["sizes"], only["done"]) == ("all_reduce", [[3]], True)
    else:
        assert shown["unobserved"].startswith(f"torch {shown['torch']} has no flight recorder of")
        assert shown["counts"] == []
    version = tuple(map(int, shown["torch"].split(".")[:2]))
    name = "TORCH_FR_BUFFER_SIZE" if version >= (2, 8) else "TORCH_NCCL_TRACE_BUFFER_SIZE"
    assert shown["variables"] == {name: "2000"}


def test_the_model_writes_what_each_torch_writes(shown: dict[str, Any]) -> None:
    model = NcclRecorder()
    model.join("0", (0, 1))
    empty = json.loads(model.dump_json(True, False))
    for name, told in shown["empty"].items():
        if shown["recorders"][name].endswith("_json"):
            assert set(empty) - VERSION_KEYS == set(told) - VERSION_KEYS
        else:
            assert set(told) == set(pickle.loads(model.dump_pickle(True, False, False)))
    model.enqueue("0", "all_reduce", [[3]], 1)
    dump = json.loads(model.dump_json(True, False))
    assert set(dump) == KEYS
    for entry in shown["entries"]:
        assert _types(entry) == _types(dump["entries"][0])


def _types(entry: dict[str, Any]) -> dict[str, str]:
    return {key: type(value).__name__ for key, value in entry.items()}


def _counted(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", module)
    return flight_recorders.counts()


def test_recorders_are_found_by_their_names_and_those_that_tell_the_same_are_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nccl, gloo = NcclRecorder(), NcclRecorder()
    for each in (nccl, gloo):
        each.join("0", (0, 1))
    nccl.enqueue("0", "all_reduce", [[3]], 1)
    gloo.complete(gloo.enqueue("0", "all_reduce", [[3]], 1), 2)
    gloo.watch()
    torch = ModuleType("torch._C._distributed_c10d")
    torch._dump_later_trace_json = nccl.dump_json  # type: ignore[attr-defined]
    assert _counted(torch, monkeypatch) == (("later:0", 1, 0),)
    torch._dump_fr_trace_json = gloo.dump_json  # type: ignore[attr-defined]
    assert _counted(torch, monkeypatch) == (("0", 1, 1), ("later:0", 1, 0))
    torch._dump_nccl_trace_json = nccl.dump_json  # type: ignore[attr-defined]
    assert _counted(torch, monkeypatch) == (("0", 1, 1), ("later:0", 1, 0))


def test_a_recorder_for_pickle_alone_is_counted_by_its_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nccl = NcclRecorder()
    nccl.join("0", (0, 1))
    nccl.complete(nccl.enqueue("0", "all_reduce", [[3]], 1), 2)
    nccl.enqueue("0", "all_reduce", [[3]], 3)
    nccl.enqueue("0", "send 0->1", [[3]], 4, is_p2p=True)
    torch = ModuleType("torch._C._distributed_c10d")
    torch._dump_nccl_trace = nccl.dump_pickle  # type: ignore[attr-defined]
    assert _counted(torch, monkeypatch) == (("nccl:0", 2, 1), ("nccl:0 p2p", 1, 0))


def test_of_many_that_were_begun_ahead_those_about_the_first_unfinished_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nccl = NcclRecorder()
    nccl.join("0", (0, 1))
    entries = [nccl.enqueue("0", "all_reduce", [[n]], n) for n in range(1, 101)]
    for each in entries[:40]:
        nccl.complete(each, 200)
    nccl.watch()
    torch = ModuleType("torch._C._distributed_c10d")
    torch._dump_nccl_trace_json = nccl.dump_json  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, torch.__name__, torch)
    found = flight_recorders.last_collectives()
    assert [each["number"] for each in found] == list(range(38, 50))
    assert [each["done"] for each in found] == [True] * 3 + [False] * 9


def test_the_parts_of_a_coalesced_operation_are_done_with_it_and_what_timed_out_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nccl = NcclRecorder()
    nccl.join("0", (0, 1))
    parts = ("send 0->1", "recv 0<-1")
    nccl.complete(nccl.enqueue("0", "coalesced", [[3]], 1, is_p2p=True, parts=parts), 2)
    nccl.watch()
    given_up = nccl.enqueue("0", "all_reduce", [[3]], 3)
    given_up.is_retired = True
    torch = ModuleType("torch._C._distributed_c10d")
    torch._dump_nccl_trace_json = nccl.dump_json  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, torch.__name__, torch)
    found = [(each["operation"], each["done"]) for each in flight_recorders.last_collectives()]
    assert found == [
        (*parts[:1], True),
        (parts[1], True),
        ("coalesced", True),
        ("all_reduce", False),
    ]


@pytest.mark.parametrize(
    ("functions", "variables", "told"),
    [
        ({}, {}, "torch 2.16.0 has no flight recorder of nccl that is known here"),
        (
            {"_dump_fr_trace_json": b'{"pg_status":{}}'},
            {},
            "torch 2.16.0 has no flight recorder of",
        ),
        ({"_dump_nccl_trace_json": b'{"pg_status":{}}'}, {}, ""),
        ({"_dump_nccl_trace_json": b"<v3>"}, {}, "the flight recorder of torch 2.16.0 writes what"),
        (
            {"_dump_nccl_trace_json": b'{"pg_status":{}}'},
            {"TORCH_FR_BUFFER_SIZE": "0"},
            "TORCH_FR_BUFFER_SIZE=0 turns the flight recorder of torch 2.16.0 off",
        ),
    ],
)
def test_what_cannot_be_read_is_told(
    functions: dict[str, bytes],
    variables: dict[str, str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c10d, torch, distributed, world = (ModuleType(name) for name in ("c", "torch", "d", "w"))
    for name, text in functions.items():
        setattr(c10d, name, lambda *_, text=text: text)
    torch.__version__ = "2.16.0"  # type: ignore[attr-defined]
    world.default_pg, world.pg_backend_config = "pg", {"pg": "cuda:nccl"}  # type: ignore[attr-defined]
    distributed._world = world  # type: ignore[attr-defined]
    names = ("torch._C._distributed_c10d", "torch", "torch.distributed.distributed_c10d")
    for name, module in zip(names, (c10d, torch, distributed), strict=True):
        monkeypatch.setitem(sys.modules, name, module)
    found = flight_recorders.unobserved(variables)
    assert found.startswith(told)
    assert bool(found) == bool(told)


@pytest.mark.parametrize(
    ("version", "given", "wanted"),
    [
        ("2.4.1", {}, {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}),
        ("2.4.1", {"TORCH_NCCL_TRACE_BUFFER_SIZE": "9"}, {"TORCH_NCCL_TRACE_BUFFER_SIZE": "9"}),
        ("2.4.1", {"TORCH_FR_BUFFER_SIZE": "0"}, {"TORCH_FR_BUFFER_SIZE": "0"}),
        ("2.7.1", {}, {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}),
        ("2.8.0", {}, {"TORCH_FR_BUFFER_SIZE": "2000"}),
        ("2.13.0+cpu", {}, {"TORCH_FR_BUFFER_SIZE": "2000"}),
        (
            "2.13.0+cpu",
            {"TORCH_NCCL_TRACE_BUFFER_SIZE": "9"},
            {"TORCH_NCCL_TRACE_BUFFER_SIZE": "9"},
        ),
    ],
)
def test_recorders_are_turned_on_unless_the_user_has_said_otherwise(
    version: str, given: dict[str, str], wanted: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = ModuleType("torch")
    torch.__version__ = version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    variables = dict(given)
    flight_recorders.turn_on(variables)
    assert variables == wanted
