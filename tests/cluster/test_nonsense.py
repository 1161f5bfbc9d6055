"""What can never run, sent to a server that has our definitions and nothing else of ours."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.cluster.kubelet import running_kubelet
from tests.cluster.yard import Yard, pytorch_job, until
from tests.unit.kinds.test_crds import NONSENSE

BY_CEL = ""
"""The place of what only a rule at the root refuses, which a server before 1.25 does not know."""


async def test_the_server_refuses_every_nonsense_and_says_where(yard: Yard) -> None:
    admitted: dict[str, Any] = {}
    has_cel = yard.plane.version >= (1, 25)
    for name, (manifest, place) in NONSENSE.items():
        if place == BY_CEL and not has_cel:
            continue
        try:
            # Not by kubectl's own knowledge: by the server.
            told = await yard.kubectl(
                *("create", "--validate=false", "-f", "-"),
                stdin=yaml.safe_dump(manifest),
                fails=True,
            )
        except AssertionError as error:
            admitted[name] = error
            continue
        assert "is invalid" in told, f"{name}: {told}"
        # Old servers leave the numbers of items out.
        assert _unnumbered(place) in _unnumbered(told), f"{name}: {told}"
    assert admitted == {}
    assert await yard.kubectl("get", "pj,dj,cj,gj", "--ignore-not-found") == ""


def _unnumbered(text: str) -> str:
    return re.sub(r"\[\d+\]", "", text)


async def test_elastic_without_torchrun_runs_at_its_size_and_is_told(yard: Yard) -> None:
    """It is no nonsense (decision 30): without torchrun, what is elastic has no effect."""
    bounds = {"enabled": True, "minReplicas": 1, "expectedReplicas": 3, "maxReplicas": 4}
    async with yard.operator(), running_kubelet(yard.client, yard.namespace) as kubelet:
        await yard.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(job := _elastic(bounds)))
        await yard.reaches(job["metadata"]["name"], "Running")
        assert len(await yard.pods()) == 2
        events = ("get", "events", "-o", "jsonpath={.items[*].reason}")
        await until(lambda: yard.kubectl(*events), lambda reasons: "IgnoredField" in reasons)
        await kubelet.end_all(job["metadata"]["name"], 0)
        await yard.reaches(job["metadata"]["name"], "Succeeded")


def _elastic(bounds: dict[str, Any]) -> dict[str, Any]:
    return pytorch_job("digits", elastic=bounds)
