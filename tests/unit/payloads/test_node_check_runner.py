"""What checks a node where no controller answers, with real processes: the command starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shipped_programs import ship
from trainyard.payloads import node_check
from trainyard.payloads.node_check.node_check_runner import python_of_command

SECONDS = 300
IMPATIENT = """\
import sys
sys.path.insert(0, sys.argv.pop(1))
import node_check
node_check.SILENCE_SECONDS = 0.3
sys.exit(node_check.main())
"""
"""As `node_check.py` is run, which waits half a minute for a controller."""
TOLD = "attempt=1,limit={limit},every=0.05,host=h,files=/nowhere,url=https://127.0.0.1:9/nobody"


def start(
    folder: Path, *command: str, torch: str | None = None, limit: int = 200
) -> subprocess.Popen[str]:
    """With a torch that says this when it is imported, or does, or with the one of this Python."""
    if torch is not None:
        (folder / "torch.py").write_text(torch)
    programs = ship(folder / "programs", node_check.FILES)
    (folder / "sitecustomize.py").write_text("print('what images print')\n")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(folder), "PATH": path}
    return subprocess.Popen(
        [sys.executable, "-I", "-c", IMPATIENT, str(programs), *command],
        env={**environment, "TRAINYARD_NODE_CHECK": TOLD.format(limit=limit)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("torch", "why"),
    [
        ("raise ImportError('none here')", "torch cannot be used: none here"),
        ("import os; os._exit(3)", "what tests the node ended with code 3"),
        ("print('hello')", "torch cannot be used: No module named 'torch.distributed'"),
    ],
)
def test_the_command_starts_whatever_torch_does(tmp_path: Path, torch: str, why: str) -> None:
    checked = start(tmp_path, "sh", "-c", "echo out; echo err >&2; exit 3", torch=torch)
    out, err = checked.communicate(timeout=SECONDS)
    assert checked.returncode == 3
    first, second = out.splitlines()
    assert first.startswith(f"trainyard: node check: {why}"), err
    assert second == "out"
    assert err.endswith("err\n")


def test_a_torch_that_hangs_is_waited_for_no_longer_than_may_be(tmp_path: Path) -> None:
    checked = start(tmp_path, "echo", "out", torch="import time; time.sleep(1000)", limit=1)
    out, _ = checked.communicate(timeout=SECONDS)
    assert "it took too long to try a matmul; the command starts\nout\n" in out


def test_a_controller_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    checked = start(tmp_path, "grep", "^SigIgn", "/proc/self/status")
    out, err = checked.communicate(timeout=SECONDS)
    assert "the controller does not answer; the command starts" in out, err
    # As the command finds them without us; Python ignores SIGPIPE.
    assert not int(out.split()[-1], 16) & 1 << (signal.SIGPIPE - 1)


def test_the_end_of_the_pod_is_not_waited_for(tmp_path: Path) -> None:
    up = "print('up', flush=True); import sys, time; print('up', file=sys.stderr, flush=True)"
    checked = start(tmp_path, "echo", "out", torch=f"{up}; time.sleep(1000)")
    assert checked.stderr is not None
    while checked.stderr.readline() != "up\n":
        pass
    checked.terminate()  # and nothing is left that would hold the pipe
    out, _ = checked.communicate(timeout=SECONDS)
    assert (checked.returncode, out) == (128 + signal.SIGTERM, "")


def test_a_command_that_is_not_there_is_told_as_a_shell_would(tmp_path: Path) -> None:
    checked = start(tmp_path, "/nowhere/at-all", torch="raise ImportError")
    out, _ = checked.communicate(timeout=SECONDS)
    assert checked.returncode == 127
    assert (
        "cannot start: /nowhere/at-all: cannot run /nowhere/at-all: No such file or directory"
        in out
    )


def test_the_python_of_the_command_is_asked_for_its_torch(tmp_path: Path) -> None:
    own = tmp_path / "torchrun"
    own.write_text(f"#!{sys.executable}\n")
    own.chmod(0o755)
    assert python_of_command(["sh", "-c", "x", sys.executable, "train.py"]) == sys.executable
    assert python_of_command([str(own), "train.py"]) == sys.executable
    assert Path(python_of_command(["/usr/bin/mine"])).name.startswith("python")
