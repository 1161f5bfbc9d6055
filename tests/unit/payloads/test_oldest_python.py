"""The programs inside the pods run on Python 3.8, as the files that are mounted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.shipped_programs import ship
from trainyard import payloads
from trainyard.payloads import launch, node_check
from trainyard.payloads.payload_messages import LaunchDescription

FOLDER = Path(payloads.__file__).parent
SECONDS = 60
PROGRAMS = sorted({*launch.FILES, *node_check.FILES})
DESCRIPTION: LaunchDescription = {
    "pod": "pod",
    "port": 2222,
    "sshd": "/usr/sbin/sshd",
    "graceSeconds": 25,
    "reportSessions": True,
    "disableCustomEnv": False,
    "customEnv": [],
    "hosts": ["a", "b"],
    "places": {"domain": "job.svc"},
    "launch": {"kind": "deepspeed", "form": "python", "program": ["t.py", "a b"], "slots": 2},
    "workersStay": False,
}


@pytest.fixture(scope="module")
def python() -> str:
    """A Python 3.8 of this machine."""
    versions = Path("~/.pyenv/versions").expanduser()
    for path in (shutil.which("python3.8"), *versions.glob("3.8.*/bin/python")):
        # pyenv puts a stand-in into PATH that only tells which versions there are.
        if path is not None and not subprocess.run([path, "-c", ""], check=False).returncode:
            return str(path)
    pytest.skip("there is no Python 3.8 here: neither python3.8 in PATH nor one of pyenv")


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """The folder as a pod has it, without whatever else the package holds."""
    return ship(tmp_path / "launch", {**launch.FILES, **node_check.FILES})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The pod's private folder."""
    (tmp_path / "run" / "reports").mkdir(parents=True)
    return tmp_path / "run"


def evaluate(python: str, mounted: Path, code: str) -> str:
    code = f"import sys; sys.path.insert(0, {str(mounted)!r}); {code}"
    argv = [python, "-IS", "-W", "error", "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_mounted_program_needs_nothing_else(python: str, mounted: Path, name: str) -> None:
    assert evaluate(python, mounted, f"import {name.removesuffix('.py')}; print('ok')") == "ok\n"


def test_the_other_files_of_the_package_are_valid_too(python: str) -> None:
    for path in FOLDER.rglob("*.py"):
        evaluate(python, FOLDER.parent, f"compile(open({str(path)!r}).read(), 'x', 'exec')")
    types = "import payload_messages; print(sorted(payload_messages.Elastic.__annotations__))"
    assert evaluate(python, FOLDER, types) == "['min', 'settleSeconds']\n"


def test_the_deepspeed_line(python: str, mounted: Path, run: Path) -> None:
    for name in ("deepspeed", "pdsh"):
        (run / name).touch(mode=0o755)
    code = f"""
import json, os, programs
from pathlib import Path
os.environ["PATH"] = {str(run)!r}
spec = json.loads({json.dumps(DESCRIPTION)!r})
argv, _ = programs.program(spec, Path({str(run)!r})).command(["a", "b"])
print(json.dumps(argv))"""
    argv = json.loads(evaluate(python, mounted, f"exec({code!r})"))
    assert argv[:5] == [
        str(run / "deepspeed"),
        *("--hostfile", str(run / "hostfile")),
        *("--master_addr", "a.job.svc"),
    ]
    assert argv[5:8] == [str(mounted / "rank.py"), "python", "t.py"]


def test_a_rank_reports_how_it_ended(python: str, mounted: Path, run: Path) -> None:
    (run / "script.py").write_text("raise SystemExit(7)\n")
    environment = {**os.environ, "TRAINYARD_RUN": str(run), "RANK": "5"}
    argv = [python, str(mounted / "rank.py"), "python", str(run / "script.py")]
    assert subprocess.run(argv, env=environment, check=False, timeout=SECONDS).returncode == 7
    end, start = sorted(os.listdir(run / "reports"))
    assert start == "start-5"
    assert end.startswith("end-5-7-")


def test_a_minder_reports_and_obeys(python: str, mounted: Path, run: Path) -> None:
    idle = "trap '' USR1 USR2; read nothing"
    with subprocess.Popen(["sh", "-c", idle], stdin=subprocess.PIPE) as supervisor:
        argv = [python, "-IS", str(mounted / "minder.py"), str(run), str(supervisor.pid)]
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, bufsize=1) as minder:
            assert minder.stdin is not None
            assert minder.stdout is not None
            assert minder.stdout.readline().startswith("hello ")
            (run / "reports" / "start-0").touch()
            assert minder.stdout.readline() == "start-0\n"
            for order, answer in (("reset", "forgot\n"), ("end", "bye\n")):
                minder.stdin.write(f"{order}\n")
                assert minder.stdout.readline() == answer
            minder.stdin.close()
            assert minder.wait(SECONDS) == 0
        supervisor.communicate(timeout=SECONDS)
    assert (run / "grace").read_text() == "5"


def test_an_unfit_pod_is_told_so_by_the_supervisor(python: str, mounted: Path, run: Path) -> None:
    (run / "launch.json").write_text(json.dumps({**DESCRIPTION, "sshd": "/nowhere/sshd"}))
    keys = run / "keys"
    keys.mkdir()
    for name in ("id_ed25519", "ssh_host_ed25519_key", "ssh_host_ed25519_key.pub"):
        (keys / name).write_text("key\n")
    (keys / "authorized_keys").write_text("key\n")
    argv = [python, "-IS", str(mounted / "supervise.py"), "--spec", str(run / "launch.json")]
    argv += ["--keys", str(keys), "--run", str(run)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 127
    assert "sshd not found: /nowhere/sshd" in done.stderr
    assert (run / "session").read_text().startswith("run=")
