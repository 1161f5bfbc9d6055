"""Payloads run on Python 3.8, the oldest of the images that users bring (`docs/images.md`).

`make check` judges the text (vermin); here a real one reads it, where there is one.
"""

from __future__ import annotations

import base64
import io
import os
import re
import shutil
import subprocess
import zipfile
from functools import cache
from pathlib import Path

import pytest
from tests.shipped_programs import ship
from tests.unit.gates.sources import PACKAGE

from trainyard.embedded.resources.pod.pod_defaults import TERMINATION_MESSAGE_PATH
from trainyard.payloads import launch, node_check, shipping

FILES = {**launch.FILES, **node_check.FILES}
ALONE = (
    "event_file_fetcher",
    "function_call",
    "observer.sitecustomize_hook",
    "observer.stack_collector",
    "torchrun.torchrun_program",
    "training_report",
)
"""Modules that pods get as they are."""
SHIPPED = sorted(
    [*FILES, *(f"{name}.py" for name in ALONE)]
    + [f"trainyard_observer/{name.rpartition('.')[2]}.py" for name in shipping.OBSERVER]
)
# As any name but __main__, so that nothing starts.
_READ = (
    "import runpy, sys; sys.path.append(sys.argv[2]); runpy.run_path(sys.argv[1], run_name='read')"
)


@cache
def _python() -> str | None:
    """A Python 3.8 on PATH or of pyenv, whose shim on PATH may stand for none."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    places = [shutil.which("python3.8"), *sorted(root.glob("versions/3.8*/bin/python3.8"))]
    for place in filter(None, places):
        if subprocess.run([place, "-c", ""], capture_output=True, timeout=120).returncode == 0:
            return str(place)
    return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that is shipped, as it is in pods."""
    found = ship(tmp_path_factory.mktemp("programs"), FILES)
    for name in ALONE:
        (found / f"{name}.py").write_text(shipping.source(name))
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(shipping.observer_archive()))) as archive:
        archive.extractall(found)
    return found


@pytest.fixture
def python() -> str:
    """Without one the test is skipped, in CI too: the oldest Python is not everywhere."""
    found = _python()
    if found is None:
        pytest.skip("there is no Python 3.8 on PATH or among pyenv's versions")
    return found


@pytest.mark.parametrize("name", SHIPPED)
def test_a_payload_can_be_read_by_python_3_8(python: str, folder: Path, name: str) -> None:
    done = subprocess.run(
        [python, "-I", "-B", "-W", "error", "-c", _READ, str(folder / name), str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_program_in_the_place_of_torchrun_can_be_compiled_by_python_3_8(python: str) -> None:
    text = shipping.torchrun_program(elastic=True)
    compiled = subprocess.run([python, "-c", f"compile({text!r}, 'x', 'exec')"], timeout=120)
    assert compiled.returncode == 0


def test_the_supervisor_explains_itself_on_python_3_8(python: str, folder: Path) -> None:
    done = subprocess.run(
        [python, "-I", "-B", "-W", "error", str(folder / "supervise.py"), "--help"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage:" in done.stdout


def test_what_a_program_in_a_pod_imports_is_shipped_with_it(folder: Path) -> None:
    """What is left of this package's name there is for type checkers, and so indented."""
    for name in SHIPPED:
        assert not re.findall(r"^(?:from|import) trainyard\b", (folder / name).read_text(), re.M), (
            name
        )


def test_every_module_is_shipped_unless_it_is_for_the_controller() -> None:
    modules = {
        ".".join(path.relative_to(PACKAGE / "payloads").with_suffix("").parts)
        for path in PACKAGE.glob("payloads/**/*.py")
        if path.name != "__init__.py"
    }
    shipped = {*FILES.values(), *shipping.OBSERVER, *ALONE}
    appended = {"torchrun.torchrun_elastic", "torchrun.torchrun_ranks"}
    inlined = {"rank_output", "crash_stack"}
    types = {"payload_messages", "node_check.node_check_messages"}
    assert modules - shipped - appended - inlined - types == {"shipping"}


def test_payloads_and_the_node_have_the_same_default_for_a_termination_message() -> None:
    default = f'"{TERMINATION_MESSAGE_PATH}"'
    assert all(
        default in shipping.source(name) for name in ("crash_stack", "observer.sitecustomize_hook")
    )
