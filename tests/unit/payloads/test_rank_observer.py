"""The observer in real interpreters: chained, silent, gone at exit and away while they fork.

A module of the name stands for torch, which says what torch's group would; what is reported is in
`tests/embedded/test_hangs.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.observer_folder import lay_out
from trainyard.evidence.tracebacks import find_exceptions
from trainyard.payloads import crash_stack, shipping

SECONDS = 120
MANY = os.environ.get("TRAINYARD_SOAK") == "1"
C10D = """\
class _Group:
    def rank(self): return 0
    def size(self): return 1
class _World:
    default_pg = _Group()
_world = _World()
"""
FORKS = """\
import os, sys, time
import torch.distributed.distributed_c10d
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if not pid:
        import colorsys
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7 if hasattr(
        os, "waitstatus_to_exitcode") else True
sys.exit(5)
"""
EXITS = """\
import torch.distributed.distributed_c10d, sys, time
time.sleep(float(sys.argv[1]))
sys.exit(5)
"""


def pythons() -> list[str]:
    """Every Python of this machine, of those that payloads run on."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    places = [sys.executable, *map(str, sorted(root.glob("versions/3.*/bin/python")))]
    works = "import sys; sys.exit(sys.version_info < (3, 8))"
    return [p for p in places if not subprocess.run([p, "-c", works], check=False).returncode]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The folder as a pod has it."""
    folder = tmp_path / "observer"
    lay_out(folder)
    library = tmp_path / "library" / "torch" / "distributed"
    library.mkdir(parents=True)
    (library.parent / "__init__.py").touch()
    (library / "__init__.py").touch()
    (library / "distributed_c10d.py").write_text(C10D)
    (library.parent.parent / "sitecustomize.py").write_text("import sys; sys.mine = True\n")
    return folder


def run(
    python: str, site: Path, *arguments: str, more: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run it as a pod would, with nobody to report to."""
    value = f"attempt=1,after=1,files={site},{more}url=https://127.0.0.1:9/x?pod=y"
    path = f"{site}:{site.parent / 'library'}"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "TRAINYARD_OBSERVE": value}
    return subprocess.run(
        [python, "-W", "default", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS * (20 if MANY else 1),
        check=False,
    )


@pytest.fixture(params=pythons() if MANY else [sys.executable], ids=lambda path: path)
def python(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_users_own_sitecustomize_is_imported_too(python: str, site: Path) -> None:
    code = "import sys, sitecustomize as s; print(sys.mine, 'library' in s.__file__)"
    done = run(python, site, "-c", code)
    assert (done.stdout, done.stderr) == ("True True\n", "")


def test_a_python_without_torch_loads_nothing_of_the_observer(python: str, site: Path) -> None:
    code = "import sys, json; print([n for n in sys.modules if 'trainyard' in n or n == 'ssl'])"
    done = run(python, site, "-c", code)
    assert (done.stdout, done.stderr) == ("[]\n", "")


CRASHES = {
    "Segmentation fault": "import ctypes\ndef broken():\n    ctypes.string_at(0)\nbroken()\n",
    "Aborted": "import os\ndef broken():\n    os.abort()\nbroken()\n",
}


@pytest.mark.parametrize("what", CRASHES)
def test_a_crash_leaves_its_stack_in_the_containers_message(
    python: str, site: Path, what: str
) -> None:
    (message := site / "message").touch()
    done = run(python, site, "-c", CRASHES[what], more=f"message={message},")
    assert done.returncode < 0
    assert (done.stdout, done.stderr) == ("", "")
    (raised,) = find_exceptions(message.read_text().splitlines())
    assert (raised.text, raised.is_native) == (what, True)
    assert raised.frames[-1].function in ("broken", "string_at")


@pytest.mark.parametrize("made", [True, False])
def test_what_did_not_crash_writes_no_message(python: str, site: Path, *, made: bool) -> None:
    message = site / "message"
    if made:
        message.touch()
    done = run(python, site, "-c", "raise SystemExit(3)", more=f"message={message},")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
    assert message.read_text() == "" if made else not message.exists()


MANY_MODULES = """
import os, sys, threading, torch.distributed.distributed_c10d
import _ctypes
for number in range(200):
    sys.modules[f"a_package_of_extension_modules.number_{number}"] = _ctypes
import faulthandler
enabled, told = faulthandler.enable, threading.Event()
faulthandler.enable = lambda *args, **kwargs: (enabled(*args, **kwargs), told.set())
told.wait(20 if "kept" not in os.environ["TRAINYARD_OBSERVE"] else 3)
os.abort()
"""


@pytest.mark.parametrize("kept", ["", "kept=1,"])
def test_a_crash_below_which_python_lists_too_many_modules_goes_to_the_log(
    site: Path, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless a program of ours outlives the rank, and shortens it."""
    (message := site / "message").touch()
    done = run(sys.executable, site, "-c", MANY_MODULES, more=f"message={message},{kept}")
    logged, left = "Aborted" in done.stderr, "Aborted" in message.read_text()
    assert (logged, left) == (not kept, bool(kept)), done.stderr
    if kept:
        monkeypatch.setenv("TRAINYARD_OBSERVE", f"message={message}")
        assert len(message.read_text()) > 4096
        stack = crash_stack.read_crash()
        assert stack.endswith("in <module>\n")
        crash_stack.write_crash(stack)
        assert message.read_text() == stack
        crash_stack.write_crash("")
        assert message.read_text() == ""


def test_a_fault_handler_of_the_users_own_goes_before(python: str, site: Path) -> None:
    (message := site / "message").touch()
    crash = CRASHES["Aborted"]
    done = run(python, site, "-X", "faulthandler", "-c", crash, more=f"message={message},")
    assert "in broken" in done.stderr
    assert message.read_text() == ""


def test_torch_is_observed_by_a_thread(python: str, site: Path) -> None:
    code = (
        "import torch.distributed, threading, sys;"
        "print([t.name for t in threading.enumerate() if t.daemon])"
    )
    done = run(python, site, "-c", code)
    assert (done.stdout, done.stderr) == ("['trainyard-observer']\n", "")


def test_forks_and_exits_are_as_they_were(python: str, site: Path) -> None:
    forks = run(python, site, "-c", FORKS, "1000" if MANY else "50")
    assert (forks.returncode, forks.stdout, forks.stderr) == (5, "", "")
    for number in range(1000 if MANY else 5):
        done = run(python, site, "-c", EXITS, str(number % 5 * 0.04))
        assert (done.returncode, done.stdout, done.stderr) == (5, "", "")


def test_a_parent_is_observed_after_a_fork_as_before(python: str, site: Path) -> None:
    code = (
        "import os, torch.distributed, threading\n"
        "for _ in range(3):\n"
        "    if not (pid := os.fork()):\n"
        "        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
        "print([t.name for t in threading.enumerate() if t.daemon])"
    )
    done = run(python, site, "-c", code)
    assert (done.stdout, done.stderr) == ("['trainyard-observer']\n", "")


def test_one_that_cannot_begin_says_nothing(python: str, site: Path) -> None:
    lay_out(site, {"rank_observer.py": "raise RuntimeError('broken')"})
    done = run(python, site, "-c", "import torch.distributed; print('well')")
    assert (done.stdout, done.stderr) == ("well\n", "")


def test_variables_that_were_looked_at_do_not_outlive_their_use(python: str, site: Path) -> None:
    code = """
import sys, weakref, gc, threading
sys.path.insert(0, sys.argv[1])
from trainyard_observer import process_sampling
class Tensor: pass
def main():
    tensor = Tensor()
    seen = weakref.ref(tensor)
    frame = sys._getframe()
    looking = process_sampling.ProcessSampler()
    worker = threading.Thread(target=looking._fingerprint, args=(frame, True))
    worker.start(); worker.join()
    del tensor, frame
    return seen() is None, locals().get("seen") is seen
print(main())
"""
    done = run(python, site, "-c", code, str(site / shipping.OBSERVER_ARCHIVE))
    assert (done.stdout, done.stderr) == ("(True, True)\n", "")


@pytest.mark.parametrize(
    ("turn", "differs"),
    [
        ("pass", False),
        ("counter.value < 0", False),
        ("len(done)", False),
        ("counter.value += 1", True),
        ("done.append(None)", True),
        ("number += 1", True),
    ],
)
def test_what_a_loop_changes_is_seen(python: str, site: Path, turn: str, *, differs: bool) -> None:
    """In a variable, in an object of the script's own, in a list."""
    script = site / "script.py"
    script.write_text(f"""
import sys, types
sys.path.insert(0, sys.argv[1])
from trainyard_observer import process_sampling
class Counter:
    value = 0
def main():
    counter, done, number = Counter(), [], 2 ** 40
    SEEN.append(process_sampling.ProcessSampler()._fingerprint(sys._getframe(), True))
    {turn}
    SEEN.append(process_sampling.ProcessSampler()._fingerprint(sys._getframe(), True))
SEEN = []
main()
print(SEEN[0] != SEEN[1])
""")
    done = run(python, site, str(script), str(site / shipping.OBSERVER_ARCHIVE))
    assert (done.stdout, done.stderr) == (f"{differs}\n", "")


@pytest.mark.parametrize(("turn", "differs"), [("pass", False), ("kept.append(None)", True)])
def test_what_changes_in_a_library_is_seen_there_alone(
    python: str, site: Path, turn: str, *, differs: bool
) -> None:
    packages = site / "site-packages"
    packages.mkdir()
    (packages / "library.py").write_text(f"""
def work(asked, answered):
    kept = []
    asked.release()
    answered.acquire()
    {turn}
    asked.release()
    answered.acquire()
""")
    script = site / "script.py"
    script.write_text("""
import sys, threading
sys.path[:0] = sys.argv[1:]
from trainyard_observer import process_sampling
import library
def look():
    for _ in range(2):
        asked.acquire()
        sys.seen.append(looking.frames()[2:4])
        answered.release()
sys.seen, looking = [], process_sampling.ProcessSampler()
asked, answered = threading.Lock(), threading.Lock()
asked.acquire(), answered.acquire()
thread = threading.Thread(target=look)
thread.start()
library.work(asked, answered)
thread.join()
(values, inner), (values_then, inner_then) = sys.seen
print(values == values_then, inner != inner_then)
""")
    done = run(python, site, str(script), str(site / shipping.OBSERVER_ARCHIVE), str(packages))
    assert (done.stdout, done.stderr) == (f"True {differs}\n", "")


def test_the_users_innermost_line_is_told_however_deep_it_is(python: str, site: Path) -> None:
    packages = site / "site-packages"
    packages.mkdir()
    (packages / "library.py").write_text("""
def deep(count, last):
    return deep(count - 1, last) if count else last()
""")
    script = site / "script.py"
    script.write_text("""
import sys
sys.path[:0] = sys.argv[1:]
from trainyard_observer import process_sampling
import library
def main():
    looking = process_sampling.ProcessSampler()
    frames = library.deep(60, looking.frames)[0]
    print(len(frames), *[name for file, _, name in frames if looking.is_user_file(file)])
main()
""")
    done = run(python, site, str(script), str(site / shipping.OBSERVER_ARCHIVE), str(packages))
    assert (done.stdout, done.stderr) == ("40 main\n", "")


@pytest.mark.parametrize(
    ("rank", "size", "backend", "alone"),
    [
        ("0", "2", "None", True),
        ("0", "2", "'gloo'", False),  # torch notes it, and keeps it when the group is destroyed
        ("1", "2", "None", False),
        ("0", "1", "None", False),
        ("0", "x", "None", False),
        ("", "2", "None", False),
        ("0", "2", "", False),  # of a torch that notes nothing
    ],
)
def test_the_first_of_several_ranks_that_never_met_is_known(
    python: str, site: Path, rank: str, size: str, backend: str, alone: bool
) -> None:
    module = site.parent / "library" / "torch" / "distributed" / "distributed_c10d.py"
    module.write_text(f"_backend = {backend}\n" if backend else "")
    code = (
        "import os, sys, torch.distributed.distributed_c10d\n"
        f"os.environ['WORLD_SIZE'] = {size!r}\n"
        f"if {rank!r}: os.environ['RANK'] = {rank!r}\n"
        "observer = sys.modules['trainyard_observer.rank_observer']\n"
        "settings = observer.Settings(os.environ[observer.VARIABLE])\n"
        "observer.stack_server.ADDRESS += '-second'\n"
        "print(observer.Observer(settings, None).works_alone(is_certain=True))\n"
    )
    done = run(python, site, "-W", "ignore", "-c", code)
    assert (done.stdout, done.stderr) == (f"{alone}\n", "")
