"""Which volumes of a manifest `trainyard chaos` can make full."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.api.chaos.chaos_claims import unfillable
from trainyard.kinds.shared.labels import FOLDER
from trainyard.schema.errors import TrainyardError


def job(*volumes: dict[str, Any]) -> dict[str, Any]:
    template = {"spec": {"containers": [], "volumes": [{"name": "v", **v} for v in volumes]}}
    return {"kind": "GenericJob", "spec": {"replicaSpecs": [{"template": template}]}}


def claim(name: str) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": name}}


NAMED = {"kind": "PersistentVolumeClaim", "metadata": {"name": "own", "annotations": {FOLDER: "/"}}}
PATH = {"hostPath": {"path": "/data"}}


def test_what_lies_on_the_machines_disk_is_told() -> None:
    volumes = (claim("out"), claim("in"), claim("own"), PATH, {"emptyDir": {}})
    found = unfillable([NAMED, job(*volumes)], frozenset({"in"}))
    assert found == ["claim in", "claim own", "hostPath /data"]
    assert unfillable([job(claim("out"))], frozenset()) == []


@pytest.mark.parametrize(
    ("documents", "but"),
    [
        ([job()], "full; mount"),
        ([{"kind": "GenericJob"}], "full; mount"),
        ([job(claim("in"), PATH)], "full but claim in, hostPath /data, on this machine's own disk"),
        ([NAMED, job(claim("own"))], "full but claim own, on"),
    ],
)
def test_a_job_that_writes_nowhere_else_is_refused(
    documents: list[dict[str, Any]], but: str
) -> None:
    with pytest.raises(TrainyardError, match=f"disk cannot be done: .*{but}"):
        unfillable(documents, frozenset({"in"}))
