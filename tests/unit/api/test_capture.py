"""A function goes where only its Python is: by its source, and by pickle.

Each case is a script of its own, which captures a function of its `__main__`; the program that
replicas run then calls it in another process, in another folder.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trainyard.payloads import function_call

_CAPTURE = """

if __name__ == "__main__":
    import json, pathlib, sys
    from trainyard.api.function_capture import capture
    from trainyard.schema.errors import TrainyardError
    try:
        found = capture(*CALL)
    except TrainyardError as error:
        print(error, end="")
        sys.exit(3)
    there = pathlib.Path(sys.argv[1])
    told = {**found.call, "back": "files", "modules": {}, "path": []}
    (there / "call.json").write_text(json.dumps(told))
    (there / "values.pickle").write_bytes(found.values)
"""


class Done(NamedTuple):
    """How a call has ended."""

    value: Any
    failure: Any
    output: str


Run = Callable[..., Done]


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The folder where it runs."""
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    return tmp_path / "there"


@pytest.fixture
def run(there: Path) -> Run:
    """Capture in a script, and call elsewhere; several ranks one after the other."""

    def run(text: str, *, ranks: int = 1) -> Done:
        captured = capture_in(there, text)
        assert captured.returncode == 0, captured.stdout + captured.stderr
        (there / "call.py").write_bytes(Path(function_call.__file__).read_bytes())
        output = ""
        for rank in range(ranks):
            done = subprocess.run(
                [sys.executable, "-I", "call.py"],
                cwd=there,
                env={"RANK": str(rank)},
                capture_output=True,
                text=True,
                timeout=120,
            )
            output += done.stdout + done.stderr
        read = {path.name: pickle.loads(path.read_bytes()) for path in there.glob("[rf]*")}
        failures = [found for name, found in read.items() if name.startswith(function_call.FAILURE)]
        return Done(read.get(function_call.RESULT), failures[0] if failures else None, output)

    return run


def capture_in(there: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run a script that captures its `CALL`."""
    script = there.parent / "here" / "script.py"
    script.write_text(text + _CAPTURE)
    return subprocess.run(
        [sys.executable, str(script), str(there)], capture_output=True, text=True, timeout=120
    )


def test_a_function_takes_what_it_names_along(run: Run) -> None:
    done = run(
        """
import json as notation
import math
from collections import Counter
from dataclasses import dataclass, field

RATE = 0.5
table = {"rate": RATE}
unused = open(__file__)

@dataclass
class Config:
    rate: float = RATE
    names: list[str] = field(default_factory=list)

class Deep(Config):
    def double(self):
        return super().__repr__() + str(self.rate * 2)

twice = lambda x: x * 2

def helper(n):
    return 1 if n == 0 else n * helper(n - 1)

def train(config: Config, scale=math.pi, *, note=table):
    note["seen"] = True
    return [helper(5), config.rate, scale > 3, table["seen"], twice(4),
            notation.dumps(Counter("aab")), Deep(rate=2.0).double(), type(config).__module__]

CALL = train, (Config(rate=4.0),)
"""
    )
    assert done.value == [
        *(120, 4.0, True, True, 8, '{"a": 2, "b": 1}'),
        *("Deep(rate=2.0, names=[])4.0", "__main__"),
    ], done.output


def test_closures_decorators_and_partial_functions(run: Run) -> None:
    done = run(
        """
import functools

LOG = []

def logged(label):
    def wrap(function):
        @functools.wraps(function)
        def call(*args):
            LOG.append(label)
            return function(*args)
        return call
    return wrap

def doubled(function):
    def call(*args):
        return 2 * function(*args)
    return call

@logged("one")
def one(x):
    return x + 1

@doubled
def two(x):
    return x + 10

def make(model):
    def even(n):
        return True if n == 0 else odd(n - 1)
    def odd(n):
        return False if n == 0 else even(n - 1)
    def train(optimizer, extra=model):
        return [one(1), two(1), LOG, even(10), model is optimizer["of"], extra is model]
    return train

model = {"weights": 1}
CALL = functools.partial(make(model), {"of": model}),
"""
    )
    assert done.value == [2, 22, ["one"], True, True, True], done.output


def test_what_is_raised_comes_back_with_the_users_lines(run: Run) -> None:
    done = run(
        """
class Broken(Exception):
    pass

def inner():
    raise ValueError("no good")  # here

def train():
    try:
        inner()
    except ValueError as error:
        raise KeyError("outer") from error

CALL = train,
"""
    )
    assert done.value is None
    assert repr(pickle.loads(done.failure["exception"])) == "KeyError('outer')"
    assert 'raise ValueError("no good")  # here' in done.failure["text"]
    assert "line 6, in inner" in done.failure["text"]
    assert "call.py" not in done.failure["text"]


def test_only_rank_0_sends_back_what_was_returned(run: Run, there: Path) -> None:
    text = (
        "import os\ndef f():\n    return os.environ['RANK'], os.environ['LOCAL_RANK']\nCALL = f,\n"
    )
    assert run(text, ranks=3).value == ("0", "0")
    assert [path.name for path in there.glob("result*")] == ["result"]


def test_processes_that_start_anew_find_the_functions(run: Run) -> None:
    done = run(
        """
import multiprocessing

def square(x):
    return x * x

def train():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.map(square, [1, 2, 3])

CALL = train,
"""
    )
    assert done.value == [1, 4, 9], done.output


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("CALL = lambda: 1,", "a lambda cannot be run by replicas: give it a name, with def"),
        ("CALL = [].append,", "is not a function: write one that calls it, with def"),
        ("class A:\n  def f(self): pass\nCALL = A().f,", "f is a method, bound to an object"),
        ("async def f(): pass\nCALL = f,", "f() is a generator or a coroutine: write"),
        ("exec('def f(): pass')\nCALL = f,", "the source of f is not to be had, by which"),
        (
            "import threading\nlock = threading.Lock()\ndef f():\n  lock\nCALL = f,",
            "the global 'lock', which f uses, cannot be carried to the replicas: cannot pickle",
        ),
        (
            "def g():\n  h = open('/dev/null')\n  def f():\n    h\n  return f\nCALL = g(),",
            "'h', which g.<locals>.f takes from around it, cannot be carried to the replicas",
        ),
        (
            "import sys\ndef f(x): pass\nCALL = f, (), {'x': sys.stdout}",
            "argument 'x' of f() cannot be carried to the replicas: cannot pickle '",
        ),
    ],
)
def test_what_cannot_be_carried_is_told(there: Path, text: str, told: str) -> None:
    captured = capture_in(there, text)
    assert captured.returncode == 3, captured.stderr
    assert told in captured.stdout
