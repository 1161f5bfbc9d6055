"""Who owns which field after writes by several, as a real API server told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.differential.asking import Answer, Ask, over, play
from tests.differential.cases import JSON
from tests.differential.differences import DIFFERENCES
from tests.differential.managers import cases, counted
from tests.differential.test_recorded import UnixConnection
from tests.unit.embedded.apiserver.port import serving

_RECORDED = sorted((Path(__file__).parent / "recorded").glob("managers-*.json"))
_LISTED = DIFFERENCES["managers"]


def _all(ask: Ask) -> dict[str, list[Answer]]:
    found = {}
    for number, case in enumerate(cases()):
        name = f"managers-{number}"
        ask("POST", "/api/v1/namespaces", json.dumps({"metadata": {"name": name}}).encode(), JSON)
        found[case.name] = play(case, name, ask, counted)
    return found


def _answers(path: Path) -> dict[str, list[Answer]]:
    with over(lambda: UnixConnection(path), {}) as ask:
        return _all(ask)


@pytest.mark.parametrize("file", _RECORDED, ids=lambda file: file.stem)
async def test_every_field_has_the_owner_that_it_has_on_a_real_server(
    file: Path, tmp_path: Path
) -> None:
    async with serving(tmp_path) as port:
        ours = await asyncio.to_thread(_answers, port.socket)
    real: dict[str, list[Answer]] = json.loads(file.read_text())
    assert real.keys() == ours.keys(), "record again: python -m tests.differential.record"
    differing = {name for name, told in real.items() if told != ours[name]}
    assert {name: (real[name], ours[name]) for name in differing - _LISTED.keys()} == {}
    assert _LISTED.keys() - differing == set(), "no longer different"
