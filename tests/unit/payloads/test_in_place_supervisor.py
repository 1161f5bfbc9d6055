"""What holds a pod does where no controller answers, with real processes: as the command would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.shipped_programs import ship
from trainyard.payloads import in_place
from trainyard.payloads.in_place.in_place_supervisor import InPlaceSupervisor

SECONDS = 60
IMPATIENT = """\
import os, sys
sys.path.insert(0, sys.argv.pop(1))
import hold
hold.PATIENCE_SECONDS = 0.3
os._exit(hold.main())
"""
"""As `hold.py` is run, which waits half a minute for a controller."""
TOLD = "attempt=1,grace=5,every=0.05,files=/nowhere,url=https://127.0.0.1:9/nobody"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ship(tmp_path_factory.mktemp("programs"), in_place.FILES)


def start(programs: Path, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", "-c", IMPATIENT, str(programs), *command],
        env={**os.environ, "TRAINYARD_HOLD": TOLD, "TRAINYARD_OBSERVE": "attempt=1,after=9"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("code", [0, 3])
def test_the_pod_ends_with_the_code_of_the_command(programs: Path, code: int) -> None:
    held = start(programs, "sh", "-c", f"echo out; echo err >&2; exit {code}")
    out, err = held.communicate(timeout=SECONDS)
    assert (held.returncode, out, err) == (code, "out\n", "err\n")


def test_a_signal_of_its_own_is_told_as_a_shell_would(programs: Path) -> None:
    held = start(programs, "sh", "-c", "kill -KILL $$")
    held.communicate(timeout=SECONDS)
    assert held.returncode == 128 + signal.SIGKILL


def test_the_end_of_the_pod_is_passed_on(programs: Path) -> None:
    held = start(
        programs, "sh", "-c", "trap 'echo saved; exit 5' TERM; echo up; while :; do sleep 0.1; done"
    )
    assert held.stdout is not None
    assert held.stdout.readline() == "up\n"
    held.terminate()
    out, _ = held.communicate(timeout=SECONDS)
    assert (held.returncode, out) == (5, "saved\n")


def test_the_command_finds_the_signals_as_they_were(programs: Path) -> None:
    """Python ignores SIGPIPE, and what holds the pod blocks what it waits for."""
    held = start(programs, "sh", "-c", "grep -E '^Sig(Blk|Ign)' /proc/self/status")
    out, _ = held.communicate(timeout=SECONDS)
    masks = {line.split()[0]: int(line.split()[1], 16) for line in out.splitlines()}
    assert masks["SigBlk:"] == 0
    assert not masks["SigIgn:"] & 1 << (signal.SIGPIPE - 1)


def test_nothing_of_the_command_outlives_it(programs: Path, tmp_path: Path) -> None:
    number = tmp_path / "pid"
    script = f"setsid sh -c 'echo $$ >{number}.new; mv {number}.new {number}; sleep 1000' & "
    held = start(
        programs, "sh", "-c", script + f"while [ ! -e {number} ]; do sleep 0.01; done; exit 1"
    )
    held.communicate(timeout=SECONDS)
    assert held.returncode == 1
    pid, until = int(number.read_text()), time.monotonic() + SECONDS
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < until, "a child of the command goes on"
        time.sleep(0.01)


def test_a_command_that_is_not_there_says_so_for_good(programs: Path) -> None:
    held = start(programs, "/no/such/program")
    out, _ = held.communicate(timeout=SECONDS)
    assert held.returncode == 127
    message = "cannot run /no/such/program: No such file or directory"
    assert out == f"trainyard: cannot start: /no/such/program: {message}\n"


def test_every_attempt_in_a_pod_has_its_own_number(capfd: pytest.CaptureFixture[str]) -> None:
    """The pod's variables have that of the first."""
    shown = "echo $TRAINYARD_ATTEMPT $TORCHELASTIC_RESTART_COUNT"
    variables = {
        **os.environ,
        "TRAINYARD_HOLD": TOLD,
        "TRAINYARD_ATTEMPT": "1",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    supervisor = InPlaceSupervisor(["sh", "-c", shown], variables)
    os.waitpid(supervisor.start(4, None).pid, 0)
    assert capfd.readouterr().out == "4 3\n"
