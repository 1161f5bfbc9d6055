"""What is recorded of a version is what a server of that version answers."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cluster.plane import RunningControlPlane
from tests.cluster.yard import Yard, until
from tests.differential.cases import SERVICE
from tests.differential.newer import SAMPLES, judged
from tests.differential.record import (
    OF_SUBJECT,
    answers,
    fates,
    of_plane,
    recording,
    subjects,
)
from trainyard.cli.main import cli
from trainyard.kinds import immutability_policies
from trainyard.schema import field_versions, kubernetes_schemas

LONG_SECONDS = 1800.0
"""Two thousand requests take minutes on a busy machine."""


@pytest.mark.parametrize("subject", ["core", "managers", "jobs"])
async def test_the_recording_is_what_the_server_answers(
    subject: str, plane: RunningControlPlane, yard: Yard
) -> None:
    path = recording(subject, plane.version)
    if subject not in subjects(plane) or not path.exists():
        pytest.skip(f"nothing is recorded there ({path.name}): python -m tests.differential.record")
    recorded = json.loads(path.read_text())
    if (
        plane.version >= immutability_policies.SINCE
    ):  # recorded without them; other tests may have made them
        for each in immutability_policies.policies():
            await yard.kubectl(
                "delete", each["kind"], each["metadata"]["name"], "--ignore-not-found"
            )

    prefixes = (f"recorded-{subject}-{number}" for number in itertools.count())

    def differences() -> set[str]:
        with of_plane(plane) as ask:
            found = answers(ask, subject, next(prefixes))
        return {name for name in recorded if found.get(name) != recorded[name]}

    # A server goes on by policies that are gone for a moment.
    await until(lambda: asyncio.to_thread(differences), lambda found: not found, LONG_SECONDS)


def test_what_is_newer_is_dropped_and_refused_as_we_say(plane: RunningControlPlane) -> None:
    if not plane.is_one:
        pytest.skip("pods are judged by an older server there")
    with of_plane(plane) as ask:
        found = {subject: fates(ask, subject, "again") for subject in OF_SUBJECT}
    ours = {name: judged(*sample, plane.version) for name, sample in SAMPLES.items()}
    assert {name: told for name, told in found["newer"].items() if told != ours[name]} == {}
    for subject, told in found.items():
        path = recording(subject, plane.version)
        if path.exists():
            assert told == json.loads(path.read_text())


def test_a_server_knows_the_fields_that_we_say(plane: RunningControlPlane) -> None:
    """By what it publishes of itself; definitions that have been renamed are looked for in vain."""
    if not plane.is_one:
        pytest.skip("pods are served by an older server there")
    version = plane.version[1]
    published = json.loads(plane.get("/openapi/v2")[1])["definitions"]
    wrong, compared = set(), 0
    for name in ("pod_template", "core"):
        for owner, schema in kubernetes_schemas.definitions(name).items():
            theirs = published.get(f"io.k8s.api.core.v1.{owner}", {}).get("properties", {})
            for field in schema.get("properties", ()) if theirs else ():
                compared += 1
                if (field in theirs) != (field_versions.first_version(owner, field) <= version):
                    wrong.add(f"{owner}.{field}")
    assert (wrong, compared > 500) == (set(), True)


def test_the_current_cluster_is_asked_for_its_version(
    plane: RunningControlPlane, tmp_path: Path
) -> None:
    path = tmp_path / "service.json"
    path.write_text(json.dumps(SERVICE))
    options = ["--cluster", "current", "--kubeconfig", str(plane.kubeconfig)]
    result = CliRunner().invoke(cli, ["validate", str(path), *options])
    said = ".".join(map(str, plane.version))
    assert result.output == f"{path}: 1 object valid for Kubernetes {said}\n"
