"""Which Python, torch and devices a run has, and whether its script's imports are there.

Asked of the very interpreter that the replicas will have, while trainyard starts up.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from trainyard.composition.cluster_shape import ClusterShape
from trainyard.embedded.node.containers.gpus import RESOURCE, detect
from trainyard.embedded.node.containers.inherited_environment import inherited_variables
from trainyard.machine import interpreters
from trainyard.machine.interpreters import foreign_package
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError

_ASK_SECONDS = 30.0
_INSTEAD = (
    "activate another environment, name one with --image '*=ENV', or run anyway with --no-check"
)
# For any Python from 3.8 on. Nothing is imported: torch alone would take seconds.
_QUESTION = """\
import json, os, re, sys
from importlib.util import find_spec
sys.path[:1] = [sys.argv[1]]
def has(name):
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return name in sys.modules
torch, cuda = "", ""
if has("torch") and find_spec("torch").origin:
    try:
        with open(os.path.join(os.path.dirname(find_spec("torch").origin), "version.py")) as file:
            text = file.read()
        torch = re.search(r"__version__ = ['\\"](.*)['\\"]", text)[1]
        cuda = (re.search(r"^(?:cuda|hip).*= ['\\"](.*)['\\"]", text, re.M) or ["", ""])[1]
    except (OSError, TypeError):
        pass
missing = [name for name in sys.argv[2:] if not has(name)]
foreign = ""
origin = has("trainyard") and find_spec("trainyard").origin or ""
if origin and not os.path.isdir(os.path.join(os.path.dirname(origin), "kinds")):
    foreign = origin
answer = [sys.executable, sys.version.split()[0], torch, cuda, missing, foreign]
print(json.dumps(answer))
"""


class InterpreterError(TrainyardError):
    """The replicas' Python is not there, or lacks a module; the text says which and where."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What an interpreter says of itself. ``cuda`` is that of its torch, or the version of ROCm."""

    executable: str
    version: str
    torch: str
    cuda: str
    missing: Sequence[str]
    """Of the modules that it was asked about."""
    foreign: str
    """Where a package of our import name is that is not ours; "" where there is none."""


class Interpreter:
    """An interpreter that has been asked, and answers by the time that somebody wants to know."""

    def __init__(
        self,
        options: ClusterShape,
        image: str,
        *,
        modules: Sequence[str] = (),
        folder: str = "",
        env: Mapping[str, str] | None = None,
        cluster_python: str = "",
        python: str = "",
    ) -> None:
        """Ask the interpreter of containers with this image. ``folder`` is where a script looks
        for modules first, ``env`` what is set beside the caller's variables, ``cluster_python``
        what the cluster that is up runs for who has no environment, ``python`` what runs whatever
        the caller has."""
        self.options = options
        caller = inherited_variables(os.environ, options.passed)
        python = python or interpreters.active_interpreter(os.environ) or cluster_python
        found = interpreters.environment_of_image(caller, image, options.images, python=python)
        self.environment = found | dict(env or {})
        self.python = interpreters.find_interpreter(self.environment)
        self._facts: Facts | None = None
        self._asked = self._ask(modules, folder) if self.python else None

    def _ask(self, modules: Sequence[str], folder: str) -> subprocess.Popen[str] | None:
        assert self.python is not None
        try:
            return subprocess.Popen(
                [self.python, "-c", _QUESTION, folder, *modules],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError:
            return None

    @property
    def interpreter_name(self) -> str:
        """What the interpreter is called in a command."""
        path = self.environment.get("PATH")
        return "python" if shutil.which("python", path=path) or not self.python else "python3"

    def facts(self) -> Facts | None:
        """What the interpreter answered; None if there is none, or it does not run."""
        if self._facts is None and self._asked is not None:
            try:
                answer, _ = self._asked.communicate(timeout=_ASK_SECONDS)
                self._facts = Facts(*json.loads(answer.splitlines()[-1]))
            except subprocess.TimeoutExpired:
                self._asked.kill()
                self._asked.communicate()
            except (ValueError, IndexError, TypeError):
                pass
            self._asked = None
        return self._facts

    def lines(self, isolation: str) -> list[str]:
        """The first lines of a run: what it runs on, and what is wrong with that."""
        facts = self.facts()
        if facts is None or not facts.foreign:
            return [self._line(isolation)]
        text, fix = foreign_package(facts.executable, facts.foreign)
        return [self._line(isolation), f"warning: {text}; remove it: {fix}"]

    def _line(self, isolation: str) -> str:
        facts = self.facts()
        if facts is None:
            python = f"{self.python} does not run" if self.python else "no python in the PATH"
            return f"{python}, {self._devices('')}, isolation {isolation}"
        torch = f"torch {facts.torch}" if facts.torch else "no torch"
        devices = self._devices("" if facts.cuda or not facts.torch else ", which torch cannot use")
        return (
            f"Python {facts.version} ({facts.executable}), {torch}, {devices}, "
            f"isolation {isolation}"
        )

    def _devices(self, remark: str) -> str:
        found, pretended = len(detect()), self.options.resources.get(RESOURCE)
        if pretended is not None:
            return f"{pretended} GPUs pretended"
        return f"{found} GPU{'s' if found > 1 else ''}{remark}" if found else "no GPU"

    def require(self, file: str, by_launcher: Mapping[str, str], instead: str = _INSTEAD) -> None:
        """Raise InterpreterError where the script of this file cannot find what it imports.

        `by_launcher` has the modules that only a launcher needs, and its name. `instead` is what
        the caller can do, where a module is not to be installed.
        """
        facts = self.facts()
        if self.python is None:
            raise InterpreterError(
                f"there is no python in the PATH to run {file} with: activate an environment, or "
                "name one with --image '*=ENV'"
            )
        if facts is None or not facts.missing:
            return
        imported = ", ".join(name for name in facts.missing if name not in by_launcher)
        launched = [
            f"the launcher {by_launcher[m]} needs {m}" for m in facts.missing if m in by_launcher
        ]
        reasons = [*([f"{file} imports {imported}"] if imported else []), *launched]
        one = len(facts.missing) == 1
        raise InterpreterError(
            f"{', and '.join(reasons)}, which {'is' if one else 'are'} not installed for "
            f"{facts.executable}: install {'it' if one else 'them'} there ({facts.executable} -m "
            f"pip install …), {instead}"
        )
