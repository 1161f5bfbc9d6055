"""Whom the end of a replica's training asks (SIGTERM), with real processes below a small program.

Ranks write a line for every SIGTERM that they get, and one when they have ended.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainyard.payloads import processes

SECONDS = 60
RANK = """\
import os, signal, sys, time
folder, name, saving, code = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
def note(word):
    with open(folder + "/notes", "a") as notes:
        notes.write(f"{word} {name}\\n")
asked = []
def ask(*_):
    asked.append(1)
    note("asked")
signal.signal(signal.SIGTERM, ask)
if "helper" in sys.argv and not os.fork():
    time.sleep(3600)
note("started")
while not asked:
    time.sleep(0.01)
time.sleep(saving)
print("last words", flush=True)
note("ended")
sys.exit(code)
"""
SUPERVISOR = """\
import ctypes, subprocess, sys, time
from pathlib import Path
from trainyard.payloads.launch.rank_shutdown import RankShutdown
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
run, ranks, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
child = subprocess.Popen(sys.argv[4:], start_new_session=True)
def noted(word):
    return (run / "notes").read_text().count(word) if (run / "notes").exists() else 0
while noted("started") < ranks:
    time.sleep(0.01)
ending = RankShutdown(run)
ending.begin(seconds)
while not ending.step():
    child.poll()
    time.sleep(0.02)
print("over")
"""


class Training:
    """Commands that a launch could run, and what their ranks noted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "rank.py").write_text(RANK)
        (folder / "asked").mkdir()

    def rank(self, name: str, saving: float = 0.1, code: int = 0, *more: str) -> str:
        """The command line of a rank."""
        argv = [sys.executable, f"{self.folder}/rank.py", str(self.folder), name]
        return " ".join([*argv, str(saving), str(code), *more])

    def end(self, *argv: str, ranks: int = 1, seconds: float = SECONDS) -> str:
        """Run the command, end it once so many ranks have started; what it printed."""
        head = [sys.executable, "-c", SUPERVISOR, str(self.folder), str(ranks), str(seconds)]
        done = subprocess.run(
            [*head, *argv], capture_output=True, text=True, timeout=2 * SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("over\n")
        return done.stdout

    def notes(self) -> list[str]:
        """What was noted, sorted."""
        return sorted((self.folder / "notes").read_text().splitlines())


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return Training(tmp_path)


ONCE = ["asked one", "ended one", "started one"]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("{one}", id="the shell becomes the rank"),
        pytest.param("{one}; touch {folder}/went-on", id="something comes after it"),
        pytest.param("true; ( {one} ); :", id="in a subshell"),
        pytest.param("{one} 2>&1 | tee {folder}/log", id="its output is filtered"),
        pytest.param("{one} > {folder}/log & wait", id="in the background"),
        pytest.param("trap 'kill -TERM $pid' TERM; {one} & pid=$!; wait; wait", id="a trap"),
        pytest.param("trap '' TERM; {one}", id="a shell that is deaf"),
        pytest.param("env A=b nice {one}; :", id="programs that become others"),
        pytest.param(
            "{python} -c 'import subprocess, sys; subprocess.run(sys.argv[1:])' {one}; :",
            id="a launcher that passes nothing on",
        ),
    ],
)
def test_a_rank_is_asked_once_wherever_it_is(training: Training, script: str) -> None:
    one = training.rank("one", 0.1, 3, "helper")
    text = script.format(one=one, folder=training.folder, python=sys.executable)
    output = training.end("/bin/sh", "-c", text)
    assert training.notes() == ONCE
    assert not (training.folder / "went-on").exists()
    if "tee" in script:
        assert "last words" in (training.folder / "log").read_text()
        assert "last words" in output


def test_a_failing_rank_of_deepspeed_does_not_get_the_others_asked_again(
    training: Training,
) -> None:
    """`deepspeed.launcher.launch` signals all of them when one ends badly."""
    module = training.folder / "deepspeed" / "launcher"
    module.mkdir(parents=True)
    for folder in (module, module.parent):
        (folder / "__init__.py").touch()
    (module / "launch.py").write_text(
        "import subprocess, sys, time\n"
        "ranks = [subprocess.Popen(line.split()) for line in sys.argv[1:]]\n"
        "while not any(rank.poll() for rank in ranks):\n"
        "    time.sleep(0.01)\n"
        "for rank in ranks:\n"
        "    rank.terminate()\n"
    )
    program = f"cd {training.folder} && {sys.executable} -m deepspeed.launcher.launch"
    ranks = [training.rank("one", 0.1, 9), training.rank("two", 0.8)]
    training.end("/bin/sh", "-c", f"{program} '{ranks[0]}' '{ranks[1]}'; :", ranks=2)
    assert training.notes() == sorted([*ONCE, *(line.replace("one", "two") for line in ONCE)])


def test_a_rank_that_never_ends_is_killed_after_the_time_it_was_given(training: Training) -> None:
    started = time.monotonic()
    training.end("/bin/sh", "-c", f"{training.rank('one', 3600)}; :", seconds=5)
    assert time.monotonic() - started >= 5
    assert training.notes() == ["asked one", "started one"]


def test_one_that_its_launcher_asked_is_not_asked_again(training: Training) -> None:
    """`rank.py` leaves a mark; here the rank does, and nobody asks it."""
    script = f"echo > {training.folder}/asked/$$; exec {training.rank('one', 3600)}"
    training.end("/bin/sh", "-c", script, seconds=0.5)
    assert training.notes() == ["started one"]


OWN_FOLDER = processes.OWN_FOLDER.decode()


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("ssh -F x worker-1 hostname", processes.CONNECTION),
        (f"python3 -IS {OWN_FOLDER}/colossalai_run.py a", processes.CONNECTION),
        ("/opt/bin/python -u /opt/bin/deepspeed train.py", processes.CARRIER),
        (f"python3 {OWN_FOLDER}/rank.py x", processes.CARRIER),
        ("python3 -X dev -u -m deepspeed.launcher.launch --node_rank=0", processes.FORWARDER),
        (f"python3 -IS {OWN_FOLDER}/minder.py", processes.OURS),
        ("sh /run/session", processes.OURS),
        ("ssh a trainyard-minder", processes.OURS),
        ("python3 train.py deepspeed", processes.RANK),
        ("python3 /app/rank.py", processes.RANK),
        ("python3 -c pass ssh", processes.RANK),
        ("torchrun train.py", processes.RANK),
        ("bash -c true", processes.SHELL),
    ],
)
def test_the_part_of_a_process_is_told_by_what_it_runs(line: str, part: str) -> None:
    argv = [word.encode() for word in line.split()]
    name = line.split()[0].rpartition("/")[2]
    assert processes.part(argv, name, Path("/run")) == part
