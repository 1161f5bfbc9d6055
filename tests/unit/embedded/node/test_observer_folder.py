"""The observer's programs on a node: one folder for all pods (decision 360)."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from trainyard.embedded.node.containers.observer_folder import ObserverFolder, is_observed
from trainyard.embedded.node.runtime_folder import RuntimeFolder
from trainyard.kube.embedded_contract import OBSERVE
from trainyard.payloads import shipping


def _memory(folder: Path) -> RuntimeFolder:
    return RuntimeFolder(f"{folder}/observer", "/there/observer")


def test_all_pods_of_a_node_have_the_same_folder_with_the_programs_in_it(tmp_path: Path) -> None:
    folder = ObserverFolder(_memory(tmp_path))
    place = folder.path()
    assert folder.path() == place
    (made,) = (tmp_path / "observer").iterdir()
    assert place == f"/there/observer/{made.name}"
    assert (made / shipping.HOOK).read_text() == shipping.observer_hook()
    archive = base64.b64decode(shipping.observer_archive())
    assert (made / shipping.OBSERVER_ARCHIVE).read_bytes() == archive
    for each in made.iterdir():
        assert each.stat().st_mode & 0o777 == 0o444


def test_the_next_agent_leaves_what_pods_have_mounted(tmp_path: Path) -> None:
    place = ObserverFolder(_memory(tmp_path)).path()
    (made,) = (tmp_path / "observer").iterdir()
    inodes = {each.name: each.stat().st_ino for each in made.iterdir()}
    assert ObserverFolder(_memory(tmp_path)).path() == place
    assert {each.name: each.stat().st_ino for each in made.iterdir()} == inodes


def test_an_agent_that_was_killed_while_it_wrote_leaves_no_half_of_them(tmp_path: Path) -> None:
    place = ObserverFolder(_memory(tmp_path)).path()
    digest = os.path.basename(place)
    made = tmp_path / "observer" / digest
    made.rename(tmp_path / "observer" / f".{digest}")
    (tmp_path / "observer" / f".{digest}" / shipping.OBSERVER_ARCHIVE).unlink()
    assert ObserverFolder(_memory(tmp_path)).path() == place
    assert {each.name for each in made.iterdir()} == {shipping.HOOK, shipping.OBSERVER_ARCHIVE}
    assert [each.name for each in (tmp_path / "observer").iterdir()] == [digest]


def test_it_is_for_containers_that_are_told() -> None:
    assert is_observed({"name": "main", "env": [{"name": "A"}, {"name": OBSERVE, "value": "x"}]})
    assert not is_observed({"name": "main", "env": [{"name": "A", "value": OBSERVE}]})
    assert not is_observed({"name": "main"})
