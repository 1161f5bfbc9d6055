"""What a real API server makes of our CustomResourceDefinitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.yard import Yard
from tests.unit.kinds import manifests
from trainyard.kinds.kind_registry import KINDS, Kind
from trainyard.kinds.shared.legacy_spellings import Rename
from trainyard.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from trainyard.kube.transport import Request

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*/*.yaml"))
SERVED = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))


@SERVED
async def test_the_server_accepts_the_definition_as_structural(kind: Kind, yard: Yard) -> None:
    found = await yard.client.get(CUSTOM_RESOURCE_DEFINITIONS, kind.full_name)
    conditions = {each["type"]: each for each in found["status"]["conditions"]}
    assert conditions["Established"]["status"] == "True"
    assert conditions["NamesAccepted"]["status"] == "True"
    assert conditions.get("NonStructuralSchema", {"status": "False"})["status"] == "False"


@SERVED
async def test_the_server_keeps_all_of_the_definition(kind: Kind, yard: Yard) -> None:
    """Apart from the rules in CEL, which only a server from 1.25 on knows."""
    sent = kind.crd
    found = await yard.client.get(CUSTOM_RESOURCE_DEFINITIONS, kind.full_name)
    assert holds(found["spec"], sent["spec"], has_cel=yard.plane.version >= (1, 25)) == []


def holds(found: Any, sent: Any, path: str = "spec", *, has_cel: bool) -> list[str]:
    """Where `found` lacks something of `sent`; what it has besides are defaults."""
    if isinstance(sent, dict):
        if not isinstance(found, dict):
            return [path]
        return [
            place
            for key, value in sent.items()
            if has_cel or key != "x-kubernetes-validations"
            for place in holds(found.get(key), value, f"{path}.{key}", has_cel=has_cel)
        ]
    if isinstance(sent, list):
        if not isinstance(found, list) or len(found) != len(sent):
            return [path]
        pairs = enumerate(zip(found, sent, strict=True))
        return [
            place
            for number, (one, other) in pairs
            for place in holds(one, other, f"{path}[{number}]", has_cel=has_cel)
        ]
    return [] if found == sent else [path]


@SERVED
async def test_kubectl_knows_the_kind_by_its_short_names(kind: Kind, yard: Yard) -> None:
    for name in (*kind.short_names, kind.singular, kind.plural):
        printed = await yard.kubectl("get", name, "--ignore-not-found")
        assert printed == ""


@SERVED
async def test_the_subresources_are_served(kind: Kind, yard: Yard) -> None:
    answer = await yard.client.raw(Request("GET", f"/apis/{kind.group}/{kind.version}"), "discover")
    served = {each["name"] for each in json.loads(answer.body)["resources"]}
    assert f"{kind.plural}/status" in served
    assert (f"{kind.plural}/scale" in served) is kind.elastic


async def test_kubectl_prints_the_columns(yard: Yard) -> None:
    await yard.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifests.pytorch()))
    printed = await yard.kubectl("get", "pj")
    assert printed.split("\n")[0].split() == ["NAME", "PHASE", "RUNNING", "RESTARTS", "AGE"]
    wide = await yard.kubectl("get", "pj", "-o", "wide")
    assert "QUEUE" in wide.split("\n")[0]
    assert "expectedReplicas" in await yard.kubectl("explain", "pj.spec.elastic")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
async def test_examples_are_accepted_and_stored_as_they_are(path: Path, yard: Yard) -> None:
    await yard.kubectl("apply", "-f", str(path))
    for document in yaml.safe_load_all(path.read_text()):
        await stored_as_sent(document, yard)


@pytest.mark.parametrize("build", manifests.BUILDERS.values(), ids=list(manifests.BUILDERS))
async def test_server_side_apply_takes_jobs_of_every_kind(build: Any, yard: Yard) -> None:
    job = build()
    for _ in range(2):
        await yard.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(job))
    await stored_as_sent(job, yard)


@pytest.mark.parametrize(
    ("kind", "rename"),
    [
        (kind.kind, rename)
        for kind in KINDS.values()
        for rename in (kind.legacy.renames if kind.legacy else ())
    ],
    ids=lambda each: each if isinstance(each, str) else ".".join((*each.parent, each.old)),
)
async def test_old_spellings_are_not_pruned(kind: str, rename: Rename, yard: Yard) -> None:
    value: Any = {"enable": True, "Queue": "default"}.get(rename.old, ["train.py"])
    job = manifests.BUILDERS[kind]()
    if rename.old in ("Module", "Exec"):
        job = manifests.changed(job, "spec.config.run.python", None)
    job = manifests.changed(job, ".".join((*rename.parent, rename.old)), value)
    await yard.kubectl("apply", "-f", "-", stdin=manifests.dump(job))
    await stored_as_sent(job, yard)


async def test_the_old_layout_of_a_colossalai_job_is_not_pruned(yard: Yard) -> None:
    job = manifests.colossalai_old()
    await yard.kubectl("apply", "-f", "-", stdin=manifests.dump(job))
    await stored_as_sent(job, yard)


async def test_a_field_that_nobody_knows_is_refused_or_dropped(yard: Yard) -> None:
    """kubectl validates before it sends, or asks the server to."""
    job = manifests.changed(manifests.pytorch(), "spec.runMode.debug.enabeld", True)
    errors = await yard.kubectl("apply", "-f", "-", stdin=manifests.dump(job), fails=True)
    assert "enabeld" in errors


async def stored_as_sent(sent: dict[str, Any], yard: Yard) -> None:
    kind = KINDS[sent["kind"]]
    stored = await yard.client.get(
        kind.resource, sent["metadata"]["name"], yard.namespace if kind.namespaced else None
    )
    assert stored["spec"] == sent["spec"]
