"""The generated torchrun launch, with the real torchrun: exit codes, and which rank's it is."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.embedded.torchrun_launching import STAY, TIMEOUT_SECONDS, exit_code, free_port, launch
from tests.tools import require
from trainyard.payloads.shipping import torchrun_program


@pytest.fixture(autouse=True)
def needs_torch() -> None:
    require("torchrun")


SCRIPT = """\
import os, signal, sys, time
import torch.distributed as dist
rank, how, who = int(os.environ["RANK"]), sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo")
print("started", flush=True)
if rank == who:
    if how.startswith("signal"):
        os.kill(os.getpid(), int(how.removeprefix("signal")))
    sys.exit(int(how))
dist.barrier()
"""


SAVING = """\
import os, signal, subprocess, time
helper, signals = subprocess.Popen(["sleep", "1000"]), []
signal.signal(signal.SIGTERM, lambda *_: signals.append(1))
print(f"begun, helper {helper.pid}\\n", end="", flush=True)
while not signals:
    time.sleep(0.01)
time.sleep(1)
print("rank", os.environ["RANK"], "saved after", len(signals), "signal, helper:", helper.poll())
"""
PRINTING = """\
import os, signal, sys, time
rank = os.environ["RANK"]
for step in range(300):
    print("out", step, "of", rank)
    print("err", step, file=sys.stderr)
print("unfinished", end="")
open(f"done-{rank}", "w").close()
while not all(os.path.exists(f"done-{each}") for each in range(4)):
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text(SCRIPT)
    return "train.py"


@pytest.mark.parametrize(
    ("how", "code"),
    [("0", 0), ("3", 3), ("138", 138), ("signal9", 137), ("signal15", 143), ("signal2", 130)],
)
def test_the_launch_ends_with_the_code_of_the_rank(
    tmp_path: Path, script: str, how: str, code: int
) -> None:
    with launch(tmp_path, script, how, "0") as process:
        assert exit_code(process) == code


def test_with_two_ranks_the_first_failure_tells(tmp_path: Path, script: str) -> None:
    with launch(tmp_path, script, "signal9", "1", processes=2) as process:
        assert exit_code(process) == 137


def test_on_two_nodes_only_the_failing_one_has_the_code(tmp_path: Path, script: str) -> None:
    """The other's ranks die along, and its code is one that ExitCode does not restart."""
    port = free_port()
    with ExitStack() as stack:
        agents = [
            stack.enter_context(launch(tmp_path, script, "138", "1", nodes=2, port=port))
            for _ in range(2)
        ]
        assert sorted(exit_code(agent) for agent in agents) == [1, 138]


def test_an_agent_is_not_kept_by_what_it_never_asks(tmp_path: Path) -> None:
    """Some 200 ms of torch's import, in every replica (decision 210)."""
    (tmp_path / "train.py").write_text("print('started')")
    with launch(tmp_path, "train.py", env={"PYTHONPROFILEIMPORTTIME": "1"}) as process:
        output = process.communicate(timeout=TIMEOUT_SECONDS)[0].decode()
    assert process.returncode == 0, output
    imported = {line.rpartition("|")[2].strip() for line in output.splitlines() if "|" in line}
    assert "torch.distributed.run" in imported, output
    assert not imported & {"torch._meta_registrations", "torch._prims", "torch._refs"}


def imported_then(more: str) -> str:
    """The program up to where torchrun is imported, and then this."""
    steps = "leave_own_folder_out", "end_on_sigterm", "let_ranks_be_observed", "import_torchrun"
    head = torchrun_program(elastic=False).removesuffix("main(*RANK_PATCHES)\n")
    return head + "".join(f"{step}()\n" for step in steps) + more


@pytest.mark.parametrize(
    "module", ["_prims", "_refs", "_decomp.decompositions", "_dynamo", "distributed.tensor"]
)
def test_whoever_asks_in_an_agent_is_answered(tmp_path: Path, module: str) -> None:
    """A rendezvous or log handler of somebody else's, or torch itself as it tells of a failure."""
    more = f"""\
import torch
assert "torch._prims" not in sys.modules
import torch.{module}
assert type(sys.modules["torch.{module}"].__loader__) is type(torch.__loader__)
assert (torch.empty(3, 4, device="meta") @ torch.empty(4, 5, device="meta")).shape == (3, 5)
assert torch._meta_registrations.meta_mm is torch.ops.aten.mm.default.py_kernels[
    torch._C.DispatchKey.Meta
]
sys.exit(7)
"""
    done = subprocess.run(
        [sys.executable, "-c", imported_then(more)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 7, done.stderr


def test_a_torch_that_asks_while_it_is_imported_is_answered(tmp_path: Path) -> None:
    """Of another version: torch's own need not be as it is today."""
    package = tmp_path / "site" / "torch"
    elastic = package / "distributed" / "elastic"
    for folder in ("agent/server", "multiprocessing/errors"):
        (elastic / folder).mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from torch import _meta_registrations\nfrom torch._meta_registrations import shape\n"
    )
    (package / "_meta_registrations.py").write_text("shape = (3, 5)\n")
    (package / "distributed" / "run.py").write_text("def main(): print(torch.shape)\nimport torch")
    (elastic / "agent/server/api.py").write_text("class SimpleElasticAgent: _exit_barrier = None\n")
    (elastic / "multiprocessing/api.py").write_text(
        "class SignalException(Exception): pass\n"
        "class SubprocessHandler: close = _popen = None\n"
        "class SubprocessContext: _close = None\n"
    )
    (elastic / "multiprocessing/errors/__init__.py").write_text(
        "class ChildFailedError(Exception): pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", torchrun_program(elastic=False)],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert (done.stdout, done.returncode) == ("(3, 5)\n", 0), done.stderr


def test_modules_beside_the_script_are_none_of_the_agents(tmp_path: Path) -> None:
    for name in ("types", "signal", "threading", "importlib", "enum"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "train").write_text("#!/bin/sh\nexit 4\n")
    (tmp_path / "bin" / "train").chmod(0o755)
    with launch(tmp_path, "--no-python", "bin/train") as process:
        assert exit_code(process) == 4


def test_a_rank_that_is_to_end_keeps_what_it_has_started_until_it_has_ended(tmp_path: Path) -> None:
    """As the workers of a DataLoader, without which it cannot go on to a place where it saves."""
    (tmp_path / "train.py").write_text(SAVING)
    with launch(tmp_path, "train.py", processes=2) as process:
        assert process.stdout is not None
        begun = [next(line for line in process.stdout if b"begun" in line) for _ in range(2)]
        process.terminate()
        rest = process.communicate(timeout=TIMEOUT_SECONDS)[0].decode()
    assert sorted(re.findall(r"rank \d saved after \d+ signal, helper: None", rest)) == [
        "rank 0 saved after 1 signal, helper: None",
        "rank 1 saved after 1 signal, helper: None",
    ], (begun, rest)
    assert process.returncode == 143
    for helper in map(int, re.findall(rb"helper (\d+)", b"".join(begun))):
        until = time.monotonic() + TIMEOUT_SECONDS
        while Path(f"/proc/{helper}").exists():
            assert time.monotonic() < until, "what a rank left behind goes on"
            time.sleep(0.01)


def test_lines_of_ranks_are_whole_and_begin_with_their_rank(tmp_path: Path) -> None:
    """Unbuffered, each word of a `print` is a write of its own."""
    (tmp_path / "train.py").write_text(PRINTING)
    with launch(tmp_path, "train.py", processes=4, env={"PYTHONUNBUFFERED": "1"}) as process:
        said = process.communicate(timeout=TIMEOUT_SECONDS)[0].decode().splitlines()
    for rank in range(4):
        out = [line for line in said if line.startswith(f"[rank{rank}]: out")]
        assert out == [f"[rank{rank}]: out {step} of {rank}" for step in range(300)]
        errors = [line for line in said if line.startswith(f"[rank{rank}]: err")]
        assert errors == [f"[rank{rank}]: err {step}" for step in range(300)]
        assert f"[rank{rank}]: unfinished" in said
    assert process.returncode == 137


def test_a_lone_rank_writes_as_it_would(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('50%\\r100%', end='')")
    with launch(tmp_path, "train.py") as process:
        assert process.communicate(timeout=TIMEOUT_SECONDS)[0] == b"50%\r100%"


def test_sigterm_of_the_launch_is_143(tmp_path: Path) -> None:
    (tmp_path / "sleep.py").write_text("import time; print('started', flush=True); time.sleep(60)")
    with launch(tmp_path, "sleep.py") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if b"started" in line:
                break
        process.terminate()
        assert exit_code(process) == 143


def test_an_agent_that_waits_for_the_others_leaves_on_sigterm(tmp_path: Path) -> None:
    """torch's own waits in C++ for up to 300 s, and takes no notice."""
    (tmp_path / "stay.py").write_text(STAY)
    port = free_port()
    with (
        launch(tmp_path, "stay.py", "stay", nodes=2, port=port),
        launch(tmp_path, "stay.py", "go", nodes=2, port=port, log_level="INFO") as process,
    ):
        assert process.stdout is not None
        assert any(b"seconds for other agents to finish" in line for line in process.stdout)
        process.terminate()
        assert exit_code(process) == 143


def test_sigterm_before_torch_is_loaded_is_143(tmp_path: Path) -> None:
    with launch(tmp_path, "-c", "pass", nodes=2) as process:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not _handles_sigterm(process.pid) and time.monotonic() < deadline:
            time.sleep(0.001)
        process.terminate()
        assert exit_code(process) == 143


def _handles_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) & (1 << (signal.SIGTERM - 1)))


def test_python3_alone_is_enough(tmp_path: Path) -> None:
    """No `torchrun` and no `python` in the PATH."""
    tools = tmp_path / "bin"
    tools.mkdir()
    wrapper = tools / "python3"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    (tmp_path / "ok.py").write_text("raise SystemExit(5)")
    with launch(tmp_path, "ok.py", path=str(tools)) as process:
        assert exit_code(process) == 5


def test_an_image_without_python_is_told_and_ends_with_127(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    with launch(tmp_path, "ok.py", path=str(tools)) as process:
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 127
        assert b"neither torchrun nor python" in output


def test_the_launch_is_one_process(tmp_path: Path) -> None:
    """No shell and no wrapper stays between the container and torchrun."""
    (tmp_path / "parent.py").write_text("import os; print('parent', os.getppid(), flush=True)")
    with launch(tmp_path, "parent.py") as process:
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        assert f"parent {process.pid}".encode() in output
