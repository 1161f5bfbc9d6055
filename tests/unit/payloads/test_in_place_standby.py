"""A Python that waits for the next attempt, with real processes: nothing of its program before the
word, and with the word the program as it always is."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.observer_folder import lay_out
from trainyard.payloads.in_place.in_place_process import CommandProcess

SECONDS = 120
PRELOADED = """\
import os
open(os.environ["MARKS"] + "/imported", "w").close()
"""
PROGRAM = """\
import json, os, sys
before = sorted({"preloaded", "colorsys"} & set(sys.modules))
import colorsys
with open(os.environ["MARKS"] + "/new", "w") as file:
    told = [__name__, __file__, sys.argv, sys.path[0], before, colorsys.__file__]
    json.dump([*told, "TRAINYARD_STANDBY" in os.environ, __spec__ is None], file)
os.rename(os.environ["MARKS"] + "/new", os.environ["MARKS"] + "/ran")
sys.exit(7)
"""


class Place:
    """Where a command runs, with the observer's hook before it."""

    def __init__(self, folder: Path) -> None:
        self.marks, self.script = folder / "marks", folder / "script" / "train.py"
        self.hook, self.lib = folder / "hook", folder / "lib"
        for each in (self.marks, self.script.parent, self.lib):
            each.mkdir(parents=True)
        lay_out(self.hook)
        (self.lib / "preloaded.py").write_text(PRELOADED)
        self.script.write_text(PROGRAM)
        path = f"{self.hook}:{self.lib}"
        self.variables = {**os.environ, "MARKS": str(self.marks), "PYTHONPATH": path}
        self.started: list[CommandProcess] = []
        self.living: list[CommandProcess] = []

    def start(self, modules: str | None) -> CommandProcess:
        argv = [sys.executable, str(self.script), "a", "-b"]
        started = CommandProcess(argv, self.variables, 1, modules)
        self.started.append(started)
        self.living.append(started)
        return started

    def code_of(self, started: CommandProcess) -> int:
        """Its exit code, once it has ended."""
        self.living.remove(started)
        _, status = os.waitpid(started.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def told(self) -> list[object]:
        """What the program has said of itself."""
        told: list[object] = json.loads((self.marks / "ran").read_text())
        return told

    def await_mark(self, name: str) -> None:
        until = time.monotonic() + SECONDS
        while not (self.marks / name).exists():
            assert time.monotonic() < until, name
            time.sleep(0.01)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    yield found
    for each in found.living:
        each.kill()
        os.waitpid(each.pid, 0)
    for each in found.started:
        each.close()


def test_a_command_says_that_it_could_wait_and_does_not(place: Place) -> None:
    started = place.start("")
    assert place.code_of(started) == 7
    assert started.can_stand_by()


@pytest.mark.parametrize("own", ["", "raise OSError('in use')"], ids=["alone", "beside a bad one"])
def test_nothing_of_the_program_runs_before_the_word(place: Place, own: str) -> None:
    """Whatever the user's own sitecustomize does."""
    (place.lib / "sitecustomize.py").write_text(own)
    started = place.start("preloaded+no_such_module+colorsys")
    place.await_mark("imported")
    assert not (place.marks / "ran").exists()
    assert started.release()
    assert place.code_of(started) == 7
    *told, imported, _, is_told, has_no_spec = place.told()
    assert told == [
        "__main__",
        str(place.script),
        [str(place.script), "a", "-b"],
        str(place.script.parent),
    ]
    assert imported == ["colorsys", "preloaded"]
    assert (is_told, has_no_spec) == (False, True)


def test_it_is_observed_from_the_word_on_and_once(place: Place) -> None:
    """What is read of an attempt is what came after its start, not what the one before wrote."""
    torch = place.lib / "torch" / "distributed"
    torch.mkdir(parents=True)
    (torch.parent / "__init__.py").touch()
    (torch / "__init__.py").touch()
    seen = "import os, threading\nnames = [each.name for each in threading.enumerate()]\n"
    (place.lib / "afterwards.py").write_text(
        seen + "open(os.environ['MARKS'] + '/waiting', 'x').write(' '.join(names))\n"
        "os.rename(os.environ['MARKS'] + '/waiting', os.environ['MARKS'] + '/waits')\n"
    )
    place.script.write_text(seen + "open(os.environ['MARKS'] + '/ran', 'x').write(' '.join(names))")
    place.variables["TRAINYARD_OBSERVE"] = "url=https://127.0.0.1:9/x?pod=y"
    started = place.start("torch.distributed+afterwards")
    place.await_mark("waits")
    assert (place.marks / "waits").read_text() == "MainThread"
    assert started.release()
    assert place.code_of(started) == 0
    assert (place.marks / "ran").read_text() == "MainThread trainyard-observer"


def test_without_the_word_it_ends_and_nothing_has_run(place: Place) -> None:
    started = place.start("preloaded")
    place.await_mark("imported")
    started.close()  # as when what holds the pod is gone
    assert place.code_of(started) == 1
    assert not (place.marks / "ran").exists()


def test_a_module_beside_the_script_goes_before_what_was_imported(place: Place) -> None:
    own = place.script.with_name("colorsys.py")
    own.write_text("")
    started = place.start("preloaded+colorsys")
    place.await_mark("imported")
    assert started.release()
    assert place.code_of(started) == 7
    *_, imported, colorsys, _, _ = place.told()
    assert (imported, colorsys) == ([], str(own))


def test_without_the_observers_own_program_nothing_runs(place: Place) -> None:
    """A hook that cannot wait must not let the program begin a second time."""
    lay_out(place.hook, {"in_place_standby.py": None})
    assert place.code_of(place.start("preloaded")) == 1
    assert not (place.marks / "ran").exists()


def test_what_meets_no_hook_is_never_started_to_wait(place: Place) -> None:
    place.variables["PYTHONPATH"] = ""
    started = place.start("")
    assert place.code_of(started) == 7
    assert not started.can_stand_by()
