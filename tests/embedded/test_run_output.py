"""What `trainyard run` does when its output, or its user, is not as one would wish."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import IO

import pytest

from tests.embedded.command_line import PATIENCE_SECONDS, CommandLine, job, shell
from tests.tools import soak
from trainyard.podruntime.log_reader import MISSING

RUN = [sys.executable, "-m", "trainyard.cli.main", "run"]


def _run(
    trainyard: CommandLine, file: str, out: int | IO[str] = subprocess.PIPE, **environment: str
) -> tuple[int, str, str]:
    process = subprocess.Popen(
        [*RUN, "-f", file],
        cwd=trainyard.folder,
        env={**trainyard.environment, **environment},
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    said, errors = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, said or "", errors


def test_a_terminal_without_a_replicas_characters_shows_the_rest(trainyard: CommandLine) -> None:
    file = trainyard.manifest("m.yaml", job("odd", shell("echo done ✓")))
    code, said, errors = _run(trainyard, file, PYTHONIOENCODING="ascii")
    assert (code, errors) == (0, "")
    assert "[worker-0] done ?" in said


def test_a_full_disk_behind_the_output_is_one_message(trainyard: CommandLine) -> None:
    file = trainyard.manifest("m.yaml", job("full", shell("echo x")))
    with open("/dev/full", "w") as full:
        code, _, errors = _run(trainyard, file, full)
    assert code == 1
    assert errors == "error: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("arguments", [["crds"], ["list", "--help"], ["render", "-f", "m.yaml"]])
def test_no_command_fails_with_a_traceback_on_a_full_disk(
    trainyard: CommandLine, arguments: list[str]
) -> None:
    trainyard.manifest("m.yaml", job("full", shell("echo x")))
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*RUN[:-1], *arguments],
            cwd=trainyard.folder,
            env=trainyard.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "error: cannot write the output: No space left on device\n"


def test_a_reader_that_has_seen_enough_ends_the_run_silently(trainyard: CommandLine) -> None:
    script = shell("while echo line; do sleep 0.05; done")
    process = trainyard.start("run", "-f", trainyard.manifest("m.yaml", job("pipe", script)))
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(PATIENCE_SECONDS) == 141


def _read_until(stream: IO[str], enough: Callable[[str], bool]) -> str:
    """What is printed up to the line that makes it enough; the end of the output fails."""
    said = ""
    while not enough(said):
        line = stream.readline()
        assert line, said
        said += line
    return said


def test_a_second_interrupt_ends_replicas_that_ignore_the_first(trainyard: CommandLine) -> None:
    script = shell("trap '' TERM; echo up; while :; do sleep 0.2; done")
    file = trainyard.manifest("m.yaml", job("stubborn", script, replicas=3))
    process = trainyard.start("run", "-f", file)
    assert process.stdout is not None
    said = _read_until(process.stdout, lambda text: text.count("] up") == 3)
    process.send_signal(signal.SIGINT)
    said += _read_until(process.stdout, lambda text: "Ctrl-C again" in text)
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=120)
    assert process.returncode == 130, said + rest
    assert "Traceback" not in rest


MEGABYTES = soak(20, 200)
_BURST = f"""
import os, sys, time
print("is read", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
for start in range(0, {MEGABYTES * 10_000}, 500):
    rest = b"".join(b"%09d %s\\n" % (n, b"x" * 89) for n in range(start, start + 500))
    while rest:
        rest = rest[os.write(1, rest):]
print("the last line")
"""


@pytest.mark.parametrize("is_background", [False, True], ids=["own cluster", "background"])
def test_all_that_is_written_in_the_last_moment_is_told(
    trainyard: CommandLine, *, is_background: bool
) -> None:
    """Decision 107: many times what is kept of a log, to a slow reader, once it reads."""
    go = trainyard.folder / "go"
    file = trainyard.manifest("m.yaml", job("burst", [sys.executable, "-c", _BURST, str(go)]))
    limits = ["--log-max-size", "512Ki", "--log-max-files", "2"]
    if is_background:
        trainyard.run("up", *limits)
    process = subprocess.Popen(
        [*RUN, "-f", file, *([] if is_background else limits)],
        cwd=trainyard.folder,
        env=trainyard.environment,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    numbers, others = [], []
    with process.stdout as lines:
        for number, line in enumerate(lines):
            text = line.removeprefix(b"[worker-0] ")
            numbers += [int(text[:9])] if text[:9].isdigit() else []
            others += [] if text[:9].isdigit() else [text]
            if text == b"is read\n":
                go.touch()
            if number % 500 == 0:
                time.sleep(0.001)
    assert process.wait(PATIENCE_SECONDS) == 0
    assert numbers == list(range(MEGABYTES * 10_000))
    assert b"the last line\n" in others
    assert not [line for line in others if MISSING.encode() in line]
    if is_background:
        trainyard.run("down")


def test_two_jobs_of_one_name_are_refused_before_either_runs(trainyard: CommandLine) -> None:
    twin = job("twin", shell("echo ran"))
    code, said, errors = _run(trainyard, trainyard.manifest("m.yaml", twin, twin))
    assert code == 1
    assert "is the name of the job at line 1 too" in errors
    assert "ran" not in said


def test_a_run_ends_with_the_cluster_that_is_brought_down(trainyard: CommandLine) -> None:
    file = trainyard.manifest("m.yaml", job("long", shell("echo up; sleep 60")))
    trainyard.run("up")
    process = trainyard.start("run", "-f", file)
    assert process.stdout is not None
    _read_until(process.stdout, lambda text: "] up" in text)
    trainyard.run("down")
    rest, _ = process.communicate(timeout=120)
    assert process.returncode == 1, rest
    assert "error: the embedded cluster was brought down while the job ran" in rest
