"""What `colossalai run` is started by tells of a process of the launch that is killed."""

from __future__ import annotations

import subprocess
import sys
from ast import literal_eval

import pytest

from trainyard.payloads.launch import colossalai_run

# No signal handler: as where the pipe of the killed one tells before SIGCHLD comes.
LOSES = """
import multiprocessing, os, runpy, signal, time
ours = runpy.run_path({path!r}, run_name="payload")
fork = multiprocessing.get_context("fork")
children = [fork.Process(target=time.sleep, args=(seconds,)) for seconds in (600, 600)]
for each in children:
    each.start()
if {kills}:
    os.kill(children[0].pid, signal.SIGKILL)
ours["exit_now"]({code})
"""


@pytest.mark.parametrize(
    ("kills", "code", "told"),
    [
        (True, 1, (137, "trainyard: a process of the launch was killed by signal 9\n")),
        (True, 143, (143, "")),
        (False, 5, (5, "")),
    ],
)
def test_a_killed_process_is_told_of_where_nobody_has_said_it(
    kills: bool, code: int, told: tuple[int, str]
) -> None:
    script = LOSES.format(path=colossalai_run.__file__, kills=kills, code=code)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == told, done.stderr


HOSTS = """
import runpy, sys
from pathlib import Path
from invoke import Context
class Stream:
    def write(self, text):
        print(repr(text))
    def flush(self):
        pass
runpy.run_path({path!r}, run_name="payload")["keep_lines_whole"]()
line = "printf 'one '; sleep 0.3; printf 'two\\\\nthree\\\\nfo'; sleep 0.3; printf ur"
Context().run(line, hide=False, out_stream=Stream())
"""


def test_what_comes_of_a_host_is_passed_on_in_whole_lines() -> None:
    """Each host has a process, and all write to the launcher's log."""
    script = HOSTS.format(path=colossalai_run.__file__)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    written = [literal_eval(text) for text in done.stdout.splitlines()]
    assert "".join(written) == "one two\nthree\nfour\n", done.stderr
    assert all(text == "" or text.endswith("\n") for text in written)
