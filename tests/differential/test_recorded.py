"""The embedded API server answers as real ones did; differences are listed, each with a reason."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from pathlib import Path

import pytest

from tests.differential.asking import Answer, Ask, over, play
from tests.differential.cases import JSON, POD, cases, changed
from tests.differential.differences import DIFFERENCES
from tests.differential.objects import PODS
from tests.unit.embedded.apiserver.port import serving
from trainyard.kinds.shared.pods.pod_template_rules import check_template

SUBJECTS = ("core", "jobs")
_FOLDER = Path(__file__).parent / "recorded"
RECORDED = sorted(each for subject in SUBJECTS for each in _FOLDER.glob(f"{subject}-*.json"))
OF_CORE = [file for file in RECORDED if file.name.startswith("core")]
_SECONDS = 120.0


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_SECONDS)
        self.sock.connect(str(self._path))


def _answers(path: Path) -> dict[str, dict[str, list[Answer]]]:
    with over(lambda: UnixConnection(path), {}) as ask:
        return {subject: _all(ask, subject) for subject in SUBJECTS}


def _all(ask: Ask, subject: str) -> dict[str, list[Answer]]:
    found = {}
    for number, case in enumerate(cases(subject)):
        name = f"{subject}-{number}"
        ask("POST", "/api/v1/namespaces", json.dumps({"metadata": {"name": name}}).encode(), JSON)
        found[case.name] = play(case, name, ask)
    return found


def _counts(answer: Answer) -> tuple[int, str, str]:
    return answer["code"], answer.get("reason", ""), answer.get("kind", "")


def _agree(real: Answer, ours: Answer) -> bool:
    """A fault of the real server, where ours refuses, is no example to follow."""
    return _counts(real) == _counts(ours) or (real["code"] >= 500 and 400 <= ours["code"] < 500)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[Answer]]]:
    """What the embedded server answers to every case, by what it is about."""

    async def asked() -> dict[str, dict[str, list[Answer]]]:
        async with serving(tmp_path_factory.mktemp("api")) as port:
            return await asyncio.to_thread(_answers, port.socket)

    return asyncio.run(asked())


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_every_answer_is_a_real_server_s_or_listed(
    ours: dict[str, dict[str, list[Answer]]], file: Path
) -> None:
    recorded: dict[str, list[Answer]] = json.loads(file.read_text())
    subject, _, _ = file.stem.partition("-")
    told, listed = ours[subject], DIFFERENCES[subject]
    assert recorded.keys() == told.keys(), "record again: python -m tests.differential.record"
    differing = {
        name: (real, told[name])
        for name, real in recorded.items()
        if not all(_agree(*pair) for pair in zip(real, told[name], strict=True))
    }
    new = {name: pair for name, pair in differing.items() if name not in listed}
    assert new == {}
    assert listed.keys() - differing.keys() == set(), "no longer different"


@pytest.mark.parametrize("file", OF_CORE, ids=lambda file: file.stem)
def test_what_is_refused_as_a_pod_is_refused_in_a_job(file: Path) -> None:
    """Else the job would be there, and never its pods."""
    recorded = json.loads(file.read_text())
    made = [case.name for case in cases() if case.name.partition(" ")[0] == "pod"][: len(PODS)]
    accepted = []
    for name, changes in zip(made, PODS, strict=True):
        (answer,) = recorded[name]
        blamed = answer.get("fields", [])
        spec = changed(POD, changes).get("spec")
        if name in DIFFERENCES["core"] or not blamed or not isinstance(spec, dict):
            continue
        of_spec = all(field.startswith("spec.") for field in blamed)
        if answer["code"] == 422 and of_spec and not _is_found_by_types(spec):
            found = check_template({"spec": spec}, ())
            accepted += [name] if not found and name not in NOT_IN_TEMPLATES else []
    assert accepted == []


NOT_IN_TEMPLATES = {
    "pod spec.containers.0.image=' a'": "Kubernetes allows it in templates",
}


def _is_found_by_types(spec: dict[str, object]) -> bool:
    """The schema of a job finds it before any rule is asked."""
    from trainyard.schema.kubernetes_schemas import check_part

    return bool(check_part(spec, "PodSpec"))
