"""The mutants that mutmut wrote, and one test session that judges them (a plugin of pytest).

mutmut generates the mutants and finds which tests call which function. To judge them it would start
pytest for each, with hundreds of tests in no order, and go through a switch at every call of every
function. Here tests are collected once, and run against the code as it is; each mutant gets a fork
of that process, in which one function has the mutant's code, and the tests that noticed its
neighbours come first. So it is about ten times as fast.
"""

from __future__ import annotations

import ast
import difflib
import gc
import importlib
import importlib.util
import json
import os
import resource
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

FOLDER = Path("mutants")
ORDERS = FOLDER / "orders.json"
"""Names of mutants to judge; there only while a session is to judge them."""
VERDICTS = FOLDER / "verdicts.jsonl"
_STATS = FOLDER / "mutmut-stats.json"
_CPU_SECONDS = 10
"""Of one test: a hundred times what most take. Loops without end are noticed by it."""
_MEMORY = 4 << 30
_ORIGINAL = "orig"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one function."""

    name: str
    """As mutmut calls it: module, mangled function and number."""

    @property
    def function(self) -> str:
        """The mangled function, with its module."""
        return self.name.rpartition("__mutmut_")[0]

    @property
    def module(self) -> str:
        """Dotted."""
        return self.name.rpartition(".")[0]

    @property
    def title(self) -> str:
        """The function as one would write it: `internal_status.InternalStatus.encode`."""
        return ".".join((self.module.rpartition(".")[2], *self._path))

    @property
    def _path(self) -> list[str]:
        """The names that lead to the function from its module."""
        mangled = self.function.rpartition(".")[2]
        return mangled.removeprefix("xǁ").split("ǁ") if "ǁ" in mangled else [mangled[2:]]

    def change(self) -> list[str]:
        """The lines that differ: what is taken out with -, what is put in with +."""
        functions = _texts(self.module)
        mangled = self.name.rpartition(".")[2]
        original = functions[f"{mangled.rpartition('__mutmut_')[0]}__mutmut_{_ORIGINAL}"]
        lines = difflib.unified_diff(original, functions[mangled], n=0, lineterm="")
        return [line for line in lines if line[:2] not in ("--", "++", "@@")]

    def apply(self) -> None:
        """Give the function the mutant's code, in this process."""
        ours = _find(importlib.import_module(self.module), self._path)
        path, name = self._path[:-1], self.name.rpartition(".")[2]
        original = f"{self.function.rpartition('.')[2]}__mutmut_{_ORIGINAL}"
        copy = _copy(self.module)
        if _find(copy, [*path, original]).__code__.co_code != ours.__code__.co_code:
            raise RuntimeError(f"{self.title} has changed since its mutants were generated")
        theirs = _find(copy, [*path, name])
        ours.__code__ = theirs.__code__
        ours.__defaults__, ours.__kwdefaults__ = theirs.__defaults__, theirs.__kwdefaults__


def _find(module: ModuleType, path: list[str]) -> FunctionType:
    """A function, taken out of what makes it a class method."""
    found: Any = module
    for name in path:
        found = vars(found)[name]
    inner = getattr(found, "__func__", found)
    assert isinstance(inner, FunctionType), path
    return inner


def _source(module: str) -> Path:
    return FOLDER / "src" / Path(*module.split(".")).with_suffix(".py")


@cache
def _copy(module: str) -> ModuleType:
    """The generated module, under a name of its own: a quarry of code."""
    name = f"mutants_of_{module.replace('.', '_')}"
    spec = importlib.util.spec_from_file_location(name, _source(module))
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


@cache
def _texts(module: str) -> dict[str, list[str]]:
    """Every function of a generated module, its head without its name, by its mangled name."""
    texts = {}
    for node in ast.walk(ast.parse(_source(module).read_text())):
        if isinstance(node, ast.FunctionDef) and "__mutmut_" in node.name:
            name, node.name, node.decorator_list = node.name, "_", []
            texts[name] = ast.unparse(node).splitlines()
    return texts


def generated() -> list[Mutant]:
    """All mutants, in the order of their modules and functions."""
    metas = sorted(FOLDER.rglob("*.py.meta"))
    names = [name for meta in metas for name in json.loads(meta.read_text())["exit_code_by_key"]]
    return [Mutant(name) for name in names]


def verdicts() -> Iterator[tuple[Mutant, bool]]:
    """What the session found: whether a test noticed the mutant."""
    for line in VERDICTS.read_text().splitlines():
        verdict = json.loads(line)
        yield Mutant(verdict["mutant"]), verdict["noticed"]


@dataclass(slots=True)
class Session:
    """Runs in place of a test session's own loop."""

    _noticed: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """How many mutants each test noticed, by function and by module."""
    _children: dict[int, tuple[Mutant, int]] = field(default_factory=dict)
    """By process: a mutant, and where to read which test noticed it."""

    def pytest_runtestloop(self, session: Any) -> bool:
        """Judge all mutants."""
        stats = json.loads(_STATS.read_text())
        took: dict[str, float] = stats["duration_by_test"]
        calls = {
            name: set(tests) for name, tests in stats["tests_by_mangled_function_name"].items()
        }
        gc.collect()
        gc.freeze()  # else the collector would touch, and so copy, every page in every fork
        with VERDICTS.open("w", buffering=1) as file:
            for mutant in map(Mutant, json.loads(ORDERS.read_text())):
                calling = calls.get(mutant.function, set())
                # Of tests that came later it is not known what they call.
                items = [i for i in session.items if i.nodeid in calling or i.nodeid not in took]
                while len(self._children) >= (os.cpu_count() or 1):
                    file.write(self._reap())
                self._start(mutant, self._ordered(mutant, items, took))
            while self._children:
                file.write(self._reap())
        return True

    def _ordered(self, mutant: Mutant, items: list[Any], took: dict[str, float]) -> list[Any]:
        near, far = self._noticed[mutant.function], self._noticed[mutant.module]
        return sorted(items, key=lambda i: (-near[i.nodeid], -far[i.nodeid], took.get(i.nodeid, 0)))

    def _start(self, mutant: Mutant, items: list[Any]) -> None:
        _copy(mutant.module)  # before the fork: once for all
        read, write = os.pipe()
        pid = os.fork()
        if pid:
            os.close(write)
            self._children[pid] = mutant, read
            return
        try:
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            mutant.apply()
            failed = next((item.nodeid for item in items if _fails(item)), "")
            os.write(write, failed.encode())
            os._exit(bool(failed))
        except BaseException as defect:
            print(f"{mutant.name}: {defect!r}", file=sys.stderr, flush=True)
            os._exit(2)

    def _reap(self) -> str:
        """Wait for one; the verdict, a line."""
        pid, status = os.wait()
        mutant, answer = self._children.pop(pid)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 2:
            raise RuntimeError(f"{mutant.name} could not be judged")
        with os.fdopen(answer) as file:
            test = file.read()
        if test:
            self._noticed[mutant.function][test] += 1
            self._noticed[mutant.module][test] += 1
        return json.dumps({"mutant": mutant.name, "noticed": status != 0, "by": test}) + "\n"


def _fails(item: Any) -> bool:
    """Whether a test fails; one that takes too long ends the process."""
    signal.setitimer(signal.ITIMER_PROF, _CPU_SECONDS)
    hook = item.config.hook
    try:
        hook.pytest_runtest_setup(item=item)
        hook.pytest_runtest_call(item=item)
        hook.pytest_runtest_teardown(item=item, nextitem=None)
    except BaseException:
        return True
    return False


def pytest_configure(config: Any) -> None:
    """Where there are orders, they take the place of the usual run."""
    if ORDERS.exists():
        config.pluginmanager.register(Session())
