"""What commands import before they do anything: starting up is imports, and users wait for it.

The lists are what is imported today. Something new in one of them needs a reason: measure with
`python -X importtime -m trainyard.cli.main …` (a millisecond is 3 % of `--help`, pydantic takes
50), import it where it is used if that helps, and else add it here.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.unit.gates.sources import PACKAGE, sources

from trainyard.composition.controller_process import channel_authority

MANIFEST = """\
apiVersion: batch.tensorstack.dev/v1beta1
kind: PyTorchTrainingJob
metadata: {name: quick}
spec:
  replicaSpecs:
    - type: worker
      template: {spec: {containers: [{name: pytorch, image: any, command: ["true"]}]}}
"""


class Imports(NamedTuple):
    """Other people's packages, rooms of ours, and modules of Python that take long."""

    packages: frozenset[str]
    rooms: frozenset[str]
    slow: frozenset[str]


def _of(packages: str, rooms: str, slow: str) -> Imports:
    return Imports(frozenset(packages.split()), frozenset(rooms.split()), frozenset(slow.split()))


_MODELS = "annotated_types click pydantic pydantic_core typing_extensions typing_inspection yaml"
COMMANDS = {
    "--help": _of("click", "cli schema", "inspect"),
    "validate": _of(_MODELS, "api cli composition kinds kube manifest schema", "decimal inspect"),
    "run": _of(
        f"{_MODELS} httptools orjson uvloop",
        "api cli client composition embedded kinds kube lifecycle machine manifest operator "
        "payloads podruntime schema",
        "asyncio concurrent.futures ctypes decimal inspect socket ssl",
    ),
}
_SLOW = _of(
    "",
    "",
    "asyncio concurrent.futures cryptography ctypes decimal email.message html http.client "
    "importlib.metadata importlib.resources inspect multiprocessing socket sqlite3 ssl statistics "
    "unittest urllib.request xml.etree.ElementTree",
).slow
# Hooks of the environment that run in every interpreter of it.
_NOT_OURS = (
    "_distutils_hack",
    "_sysconfigdata",
    "_virtualenv",
    "apport_python_hook",
    "sitecustomize",
    "usercustomize",
)

WITHOUT_LATE_IMPORTS = """
import sys
sys.argv[0] = "trainyard"
from trainyard.composition import late_imports
late_imports._FIRST_SECONDS = 1e9
from trainyard.cli.main import main
main()
"""
"""A run that lasts longer than a second imports the rest as well."""

COMMANDS["run script.py"] = COMMANDS["run"]._replace(
    packages=COMMANDS["run"].packages - {"yaml"}  # its manifest is never a text
)


_OF_JOBS = [
    "delete",
    "events",
    "exec_",
    "list_",
    "logs",
    "pause",
    "queue",
    "resume",
    "scale",
    "show",
    "stacks",
    "submit",
    "top",
    "wait",
]


@pytest.mark.parametrize("command", _OF_JOBS)
def test_a_command_on_jobs_imports_neither_their_models_nor_what_judges_them(command: str) -> None:
    """They take half of the time until such a command is ready."""
    code = f"""\
import sys, trainyard.cli.commands.{command}
later = ("pydantic", "trainyard.diagnosis", "trainyard.manifest.reader")
later += ("trainyard.api.function_capture",)
print(*(each for each in later if each in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_imports_what_is_listed_and_no_more(command: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(MANIFEST)
    (tmp_path / "script.py").write_text("print('done')\n")
    (tmp_path / "state").mkdir(mode=0o700)
    channel_authority(tmp_path / "state" / "channel.json")  # once for each user (decision 218)
    arguments = command.split()
    if arguments in (["validate"], ["run"]):
        arguments += ["-f", "job.yaml"]
    program = (
        ["-c", WITHOUT_LATE_IMPORTS] if arguments[0] == "run" else ["-m", "trainyard.cli.main"]
    )
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *program, *arguments],
        env={**os.environ, "TRAINYARD_STATE_DIR": str(tmp_path / "state")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    allowed = COMMANDS[command]
    found = _imported(done.stderr)
    new = [sorted(more - known) for more, known in zip(found, allowed, strict=True)]
    assert new == [[], [], []], f"{command} imports more than before; see {__file__}"
    gone = [sorted(known - more) for more, known in zip(found, allowed, strict=True)]
    assert gone[:2] == [[], []], f"{command} needs less than listed in {__file__}; well done"


def test_a_cluster_is_ready_before_what_knows_jobs_is_imported() -> None:
    """`up` returns before its controller is there (decision 335), and so before pydantic is."""
    later = (
        "pydantic",
        "trainyard.composition.controller_process",
        "trainyard.lifecycle",
        "trainyard.manifest",
    )
    composed = "trainyard.composition.embedded_cluster"
    served = f"trainyard.cli.commands.up, {composed}, trainyard.embedded.storage.store"
    code = f"import sys, {served}; print([m for m in {later} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"


def test_dataclasses_compile_their_methods_when_these_are_called() -> None:
    """But for the rooms that keep the standard library's (decision 164)."""
    apart = ("api/", "payloads/", "podruntime/", "schema/dataclass.py")
    eager = [
        source.name
        for source in sources()
        if not source.name.startswith(apart)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
        if any(alias.name == "dataclass" for alias in node.names)
    ]
    assert eager == [], "import dataclass from trainyard.schema.dataclass"


def test_reading_a_job_imports_no_model_of_a_status() -> None:
    code = f"""
import sys
from trainyard.manifest.reader import read

assert not read({MANIFEST!r}).problems
print([name for name in sys.modules if name.startswith("trainyard.") and name.endswith(".status")])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"


def test_reading_a_job_builds_one_validator() -> None:
    """That of its kind: none for a model that is only the default of a field (decision 164)."""
    code = f"""
from trainyard.manifest.reader import read
from trainyard.schema.model import Model

def below(model):
    return [inner for each in model.__subclasses__() for inner in (each, *below(each))]

assert not read({MANIFEST!r}).problems
print(*(each.__name__ for each in below(Model) if each.__pydantic_complete__))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "PyTorchTrainingJob"


def test_annotations_of_models_are_not_texts() -> None:
    """pydantic would compile each of them again (decision 164)."""
    texts = [
        source.name
        for source in sources()
        if "from pydantic import" in source.text and " = Field(" in source.text
        if "from __future__ import annotations" in source.text
    ]
    assert texts == []


def _imported(report: str) -> Imports:
    names = {
        line.rsplit("|", 1)[-1].strip()
        for line in report.splitlines()
        if line.startswith("import time:") and "imported package" not in line
    }
    tops = {name.split(".")[0] for name in names}
    packages = {
        top
        for top in tops - sys.stdlib_module_names - {"trainyard"}
        if not top.startswith(_NOT_OURS) and top != "org"
    }
    ours = {name.split(".")[1] for name in names if name.startswith("trainyard.")}
    rooms = {name for name in ours if (PACKAGE / name).is_dir()}
    return Imports(frozenset(packages), frozenset(rooms), frozenset(names & _SLOW))
