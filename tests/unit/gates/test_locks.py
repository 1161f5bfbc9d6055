"""What `make` installs: the same of every package in all lock files, and torch once, for CPUs."""

from __future__ import annotations

import re

from tests.unit.gates.sources import ROOT

_PIN = re.compile(r"^([a-z0-9][-a-z0-9_.]*)==(\S+)", re.MULTILINE)
LOCKS = {
    path.name: dict(_PIN.findall(path.read_text())) for path in ROOT.glob("requirements/*.lock")
}


def test_torch_comes_from_its_own_lock_alone() -> None:
    """An extra of ours that is locked with the rest would bring gigabytes for GPUs."""
    assert "torch" in LOCKS["torch.lock"]
    heavy = [
        f"{file}: {name}"
        for file, pins in LOCKS.items()
        for name in pins
        if name.startswith(("nvidia-", "cuda-")) or (name == "torch" and file != "torch.lock")
    ]
    assert heavy == []


def test_no_two_locks_pin_a_package_differently() -> None:
    versions: dict[str, set[str]] = {}
    for pins in LOCKS.values():
        for name, version in pins.items():
            versions.setdefault(name, set()).add(version)
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}
