"""`trainyard run` on a terminal: the live table, and log lines above it."""

from __future__ import annotations

import re
import sys

from tests.embedded.command_line import CommandLine, job, shell
from tests.embedded.terminal import on_terminal, started_on_terminal

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def test_the_table_shows_each_replica_while_it_runs(trainyard: CommandLine) -> None:
    script = shell("echo hello from $RANK; sleep 1.5")
    file = trainyard.manifest("m.yaml", job("shown", script, replicas=2))
    code, screen = on_terminal(trainyard, "run", "-f", file)
    assert code == 0
    text = _ESCAPES.sub("", screen)
    assert "REPLICA" in text
    assert re.search(r"worker-0 +Running", text)
    assert re.search(r"worker-1 +Running", text)
    assert "[worker-0] hello from 0" in text
    assert "[worker-1] hello from 1" in text
    assert "PyTorchTrainingJob shown: Succeeded" in text
    assert screen.rstrip().endswith("pods")  # the table is gone, the summary is last


def test_markup_and_colours_in_logs_are_left_alone(trainyard: CommandLine) -> None:
    script = shell(r"echo '[bold]not markup[/bold]'; printf '\033[31mred\033[0m\n'")
    file = trainyard.manifest("m.yaml", job("colours", script))
    _, screen = on_terminal(trainyard, "run", "-f", file)
    assert "[bold]not markup[/bold]" in _ESCAPES.sub("", screen)
    assert "\x1b[31mred" in screen


def test_a_terminal_that_can_do_nothing_gets_lines(trainyard: CommandLine) -> None:
    file = trainyard.manifest("m.yaml", job("dumb", shell("echo hello; sleep 0.5")))
    with started_on_terminal(trainyard, "run", "-f", file, TERM="dumb") as terminal:
        code, text = terminal.end()
    assert code == 0
    assert "[worker-0] hello" in text
    assert "\x1b" not in text


BAR = """
import sys, time, pathlib
step = 0
while not pathlib.Path("stop").exists():
    step += 1
    sys.stdout.write(f"\\rstep {step} of many")
    sys.stdout.flush()
    time.sleep(0.02)
"""


def test_a_line_of_carriage_returns_is_followed_while_it_grows(trainyard: CommandLine) -> None:
    """At two widths while `run` goes on, and by `logs -f`; it is a line once the script ends."""
    (trainyard.folder / "bar.py").write_text(BAR)
    command = [sys.executable, "bar.py"]
    file = trainyard.manifest("m.yaml", job("bar", command, replicas=2))
    trainyard.run("up")
    with started_on_terminal(trainyard, "run", "-f", file) as terminal:
        steps = [
            terminal.until(rf"worker-{replica} +Running .*step \d+ of many") for replica in (0, 1)
        ]
        terminal.resize(24, 10)
        terminal.until(r"worker-1  Running\s+step \d+ of many")
        shown = number_in(steps[0])
        for _ in range(3):  # it goes on
            terminal.forget()
            newer = number_in(terminal.until(r"step \d+ of many"))
            assert newer > shown
            shown = newer
        with started_on_terminal(trainyard, "logs", "-f", "bar", "-r", "worker-1") as follower:
            for _ in range(3):
                follower.forget()
                follower.until(r"\rstep \d+ of many\rstep")
            (trainyard.folder / "stop").touch()
            code, text = terminal.end()
            assert code == 0
            assert follower.end()[0] == 0
            assert follower.raw.endswith(" of many\r\n")
    assert re.search(r"\[worker-0\] step \d+ of many\r\n", _ESCAPES.sub("", text))


def number_in(text: str) -> int:
    found = re.search(r"step (\d+)", text)
    assert found
    return int(found[1])
