"""How `trainyard doctor` shows what it found, and what it makes of Pythons, GPUs and launchers."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from trainyard.cli.commands import doctor
from trainyard.composition.kinds_extension import EXTENSION
from trainyard.embedded import machine_checks
from trainyard.embedded.doctor_findings import DoctorContext, DoctorFinding, Python
from trainyard.machine.state_folder import Paths


def screen(monkeypatch: pytest.MonkeyPatch, found: list[DoctorFinding], columns: int) -> list[str]:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((columns, 24)))
    return [click.unstyle(line) for line in doctor._screen(found)]


def test_what_is_wrong_comes_last_and_of_many_the_rest_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "pods default/empty cannot be read: " + "of a very long reason " * 10
    damaged = [DoctorFinding("objects", "problem", text, "kubectl delete pods empty")] * 100
    found = [
        *damaged,
        DoctorFinding("disk", "note", "little"),
        DoctorFinding("Python", "ok", "3.11 " * 100),
    ]
    for columns in (20, 60, 120, 300):
        lines = screen(monkeypatch, found, columns)
        assert max(map(len, lines)) <= max(28, min(columns, 120))
        assert lines[0].startswith("ok      Python: 3.11")
        assert lines[1] == "note    disk: little"
        assert "objects: 97 more; -o json tells of all" in " ".join(map(str.strip, lines))
        assert lines[-1] == "100 problems, 1 note"
        assert len(lines) <= (40 if columns >= 120 else 100)
        assert sum("→ kubectl" in line for line in lines) == 3


def test_in_a_pipe_no_line_is_cut() -> None:
    long = "word " * 100
    found = [DoctorFinding("a", "ok", long), DoctorFinding("b", "problem", long, long)]
    lines = [click.unstyle(line) for line in doctor._screen(found)]
    assert [line.count("word") for line in lines] == [100, 100, 100, 0]


TRAINS = Python("/env/bin/python", "3.12.1", "2.5.0+cu124", "12.4")


def patient(tmp_path: Path, python: Python) -> DoctorContext:
    return DoctorContext(Paths(tmp_path), EXTENSION, python=python)


@pytest.mark.parametrize(
    ("python", "state", "expected"),
    [
        (TRAINS, "ok", r"3.12.1 (/env/bin/python), torch 2.5.0+cu124"),
        (Python("/env/bin/python", "3.12.1"), "note", "without torch"),
        (Python("/env/bin/python"), "problem", "/env/bin/python does not run"),
        (Python(), "problem", "there is none in the PATH"),
    ],
)
def test_pythons(tmp_path: Path, python: Python, state: str, expected: str) -> None:
    [found] = machine_checks.python(patient(tmp_path, python))
    assert (found.state, bool(found.fix)) == (state, state != "ok")
    assert expected in found.text


def test_launchers_are_looked_for_where_replicas_find_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_checks, "_EXTRA_PATHS", "")
    for name in ("ssh", "sshd", "colossalai"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    [found] = machine_checks.launchers(patient(tmp_path, TRAINS._replace(path=str(tmp_path))))
    assert found.text == (
        "torchrun, colossalai, ssh, sshd; missing: deepspeed, pdsh; "
        "so nothing is launched by deepspeed"
    )
    assert found.fix.endswith("pip install deepspeed; apt-get install pdsh")


@pytest.mark.parametrize(
    ("tool", "python", "state", "expected"),
    [
        ("echo NVIDIA A100; echo NVIDIA A100", TRAINS, "ok", "2 (NVIDIA A100)"),
        ("echo NVIDIA A100", TRAINS._replace(cuda=""), "note", "which torch 2.5.0+cu124 cannot"),
        ("exit 9", TRAINS, "note", "nvidia-smi tells of none"),
    ],
)
def test_gpus(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
    python: Python,
    state: str,
    expected: str,
) -> None:
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{tool}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(machine_checks, "detect", lambda: (0, 1))
    [found] = machine_checks.gpus(patient(tmp_path, python))
    assert found.state == state
    assert expected in found.text
